"""Wide tables: what a flush and a merge of few rows cost as the number of columns grows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

import weir
from benchmarks.context import Context, Result
from benchmarks.harness import Case, Contender, Sense, Target, measure
from benchmarks.layered_table import WrongAnswerError

__all__ = ["run"]

_COLUMNS = (10, 100, 2_000)
_ROWS = 100
_CALLS = 3
_SLACK = 1.5


def run(context: Context) -> Result:
    """Flush and merge the same few rows with more and more columns."""
    works = {"flush": _flushing, "flush and merge": _merging}
    tables = {count: _table(context.directory / f"wide-{count}", count) for count in _COLUMNS}
    cases = []
    for name, session in works.items():
        context.say(f"wide: {name}")
        contenders = [Contender(_label(count), partial(session, tables[count])) for count in _COLUMNS]
        few, many = _COLUMNS[-2:]
        cases.append(
            Case(
                "wide",
                name,
                measure(contenders, rounds=context.scale.rounds, calls=_CALLS),
                # In proportion to the columns, and no more than half as much again.
                (Target(_label(many), Sense.WITHIN, many / few * _SLACK, (_label(few),)),),
                rows_per_call=_ROWS,
            )
        )
    return Result(
        "wide",
        f"Flush and merge of {_ROWS} rows, with more and more columns",
        ("int64 columns, one shard, fsync off; half of the keys are in the base table already",),
        tuple(cases),
    )


def _label(columns: int) -> str:
    return f"{columns:,} columns"


def _table(directory: Path, columns: int) -> weir.Table:
    names = [f"c{number}" for number in range(columns - 1)]
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), *(pa.field(name, pa.int64()) for name in names)]
    )
    return weir.create(directory, schema, primary_key="id", fsync=False, maintenance="off")


def _batches(table: weir.Table) -> Iterator[pa.Table]:
    """Yield rows, of which the next half begins where this one has its middle."""
    start = table.scan().count()
    for number in itertools.count():
        values = pa.array(np.arange(_ROWS) + start + number * _ROWS // 2)
        yield pa.table([values] * len(table.schema), schema=table.schema)


@contextmanager
def _flushing(table: weir.Table) -> Iterator[Callable[[], object]]:
    batches = _batches(table)
    with table.writer() as writer:

        def flush() -> None:
            writer.upsert(next(batches))
            writer.flush()

        yield flush
    table.maintenance.merge()


@contextmanager
def _merging(table: weir.Table) -> Iterator[Callable[[], object]]:
    batches = _batches(table)
    with table.writer() as writer:

        def merge() -> None:
            writer.upsert(next(batches))
            writer.flush()
            table.maintenance.merge()

        yield merge
    if table.status().base_rows != table.scan().count():
        raise WrongAnswerError("a merge has left rows behind")

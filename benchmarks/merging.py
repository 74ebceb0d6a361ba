"""Merges of many shards: in this process and on Spark, and what a row costs as the base table grows.

That is measured with the same number of rows for every size of the base table, and with the same share of
it, as merges have that wait for a share (:class:`weir.MergePolicy`). A merge of few rows into the largest is
compared with the library's ``merge_insert``, each by an engine of its own, as by a process that has just
started: in the others the key index is in the read cache from the second merge on.

Every merge begins with the same table: a base, and one unmerged generation in each of eight shards. The
table is copied by hard links, since a merge changes no file that is there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

import weir
from benchmarks.context import Context, Result
from benchmarks.harness import Case, Contender, Measurement, Sense, Target, measure
from benchmarks.layered_table import WrongAnswerError
from benchmarks.spark.processor_time import ProcessorTimes
from weir.engine.runner import Runner, ThreadRunner

__all__ = ["run"]

_SHARDS = 8
_CHUNK_ROWS = 500_000
_DELETED_SHARE = 20
"""One of so many merged keys is a delete."""

_SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("value", pa.int64()), ("label", pa.string())]
)
_IN_PROCESS = "in-process"
_ON_SPARK = "Spark"
_FACTOR = 1.5
_FLAT = 1.3
_FEW_ROWS = 1_000
_FEW_FACTOR = 2.3
_LIBRARY = "merge_insert"
_SHARE = 50
"""One of so many rows of the base table is merged at once where merges wait for a share."""


def run(context: Context) -> Result:
    """Measure merges by both runners, and merges of as many rows into larger and larger tables."""
    scale = context.scale
    merged = scale.generation_rows * _SHARDS
    cases = []
    with _spark() as spark:
        if spark is not None:
            context.say("merging: in-process and on Spark")
            source = _table(context, scale.base_rows, merged)
            runners = {_IN_PROCESS: ThreadRunner(), _ON_SPARK: spark}
            contenders = [
                Contender(name, partial(_merging, source, runner, merged)) for name, runner in runners.items()
            ]
            taken = measure(contenders, rounds=scale.rounds, calls=1, warm_up=0)
            target = Target(_ON_SPARK, Sense.FASTER, _FACTOR, (_IN_PROCESS,))
            name = f"merge of {merged:,} rows of {_SHARDS} shards into {scale.base_rows:,}"
            cases.append(Case("merging", name, taken, (target,), rows_per_call=merged))
    sizes = [size for size in (1, 5, 20) if size * 1_000_000 <= scale.largest_base_rows]
    notes = []
    if sizes:
        context.say("merging: larger and larger base tables")
        of_number, taken = _measured(context, dict.fromkeys(sizes, merged))
        targets = tuple(Target(_size(size), Sense.WITHIN, _FLAT, (_size(1),)) for size in sizes[1:])
        cases.append(
            Case("merging", f"merge of {merged:,} rows, by rows of the base", taken, targets, merged)
        )
        context.say("merging: the same share of larger and larger base tables")
        shares = {size: size * 1_000_000 // _SHARE for size in sizes}
        of_share, taken = _measured(context, shares)
        cases += [
            Case("merging", f"merge of {rows:,} rows into {_size(size)}", (one,), (), rows)
            for (size, rows), one in zip(shares.items(), taken, strict=True)
        ]
        context.say("merging: few rows into the largest base table")
        of_few, case = _few(context, sizes[-1])
        cases.append(case)
        notes = [
            f"{_FEW_ROWS:,} rows, {of_few.describe()}",
            f"{merged:,} rows, {of_number.describe()}",
            f"1 of {_SHARE} rows, {of_share.describe()}",
        ]
    return Result(
        "merging",
        f"merge of one generation in each of {_SHARDS} shards",
        (
            "without fsync; half of the merged keys are in the base table, one in "
            f"{_DELETED_SHARE} is a delete",
            "in-process: two threads; Spark: local[2], with Python workers that have started",
            "as many shards as fit into 256 MiB are merged in one commit, and so by one task",
            "the merge with everything that belongs to it: extending the key index, publishing the shards",
            *notes,
        ),
        tuple(cases),
    )


def _measured(context: Context, merged: Mapping[int, int]) -> tuple[ProcessorTimes, tuple[Measurement, ...]]:
    """Measure merges into base tables of several sizes, in turns.

    Parameters
    ----------
    merged : mapping of int to int
        For every size, in millions of rows, how many rows to merge.
    """
    times = ProcessorTimes()
    contenders = []
    for size, rows in merged.items():
        source = _table(context, size * 1_000_000, rows)
        contenders.append(Contender(_size(size), partial(_metered, times, _size(size), source, rows)))
    return times, measure(contenders, rounds=context.scale.rounds, calls=1, warm_up=0)


def _few(context: Context, size: int) -> tuple[ProcessorTimes, Case]:
    """Measure merges of few rows into a base table of some million rows, beside the library's."""
    times = ProcessorTimes()
    source = _table(context, size * 1_000_000, _FEW_ROWS)
    contenders = [
        Contender(name, partial(_metered, times, name, source, _FEW_ROWS, divided=divided, is_cold=True))
        for name, divided in ((_LIBRARY, False), (_IN_PROCESS, None))
    ]
    taken = measure(contenders, rounds=context.scale.rounds, calls=1, warm_up=0)
    target = Target(_IN_PROCESS, Sense.FASTER, _FEW_FACTOR, (_LIBRARY,))
    name = f"merge of {_FEW_ROWS:,} rows into {_size(size)}"
    return times, Case("merging", name, taken, (target,), _FEW_ROWS)


@contextmanager
def _metered(
    times: ProcessorTimes,
    name: str,
    source: Path,
    rows: int,
    *,
    divided: bool | None = None,
    is_cold: bool = False,
) -> Iterator[Callable[[], None]]:
    """Yield a merge whose processor time is taken."""
    merging = _merging(source, ThreadRunner(), rows, divided=divided, is_cold=is_cold)
    with merging as merge, times.metered(name, merge) as metered:
        yield metered


def _size(millions: int) -> str:
    return f"{millions} million rows"


@contextmanager
def _spark() -> Iterator[Runner | None]:
    """Yield a runner on Spark with workers that have started, or None where there is no Spark."""
    try:
        from weir.spark import SparkRunner
        from weir.spark.session import start_session
    except weir.errors.WeirError:
        yield None
        return
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = start_session("local[2]", "weir benchmarks")
    try:
        runner = SparkRunner(session)
        for _ in range(2):
            # So that Python workers have started, and Java has compiled what runs them.
            list(runner.run(abs, range(4)))
        yield runner
    finally:
        session.stop()


def _table(context: Context, base_rows: int, merged_rows: int) -> Path:
    """Write a table whose base has the even ids, and whose generations have ids of both kinds."""
    path = context.directory / f"merging-{base_rows}-{merged_rows}"
    if path.exists():
        return path
    base = context.directory / f"merging-{base_rows}"
    if not base.exists():
        context.say(f"merging: writing {base_rows:,} rows")
        lance.write_dataset(_base_batches(base_rows), base, schema=_SCHEMA)
    shutil.copytree(base, path, copy_function=os.link)
    table = weir.adopt(path, primary_key="id", shard_by=weir.bucket("id", _SHARDS), fsync=False)
    ids = np.random.default_rng(7).choice(2 * base_rows, size=merged_rows, replace=False)
    deleted = ids[::_DELETED_SHARE]
    kept = np.setdiff1d(ids, deleted, assume_unique=True)
    with table.writer(max_memtable_rows=10 * merged_rows) as writer:
        writer.upsert(_rows(kept, generation=1))
        writer.delete(pa.table({"id": deleted}))
    return path


def _base_batches(rows: int) -> Iterator[pa.RecordBatch]:
    for first in range(0, rows, _CHUNK_ROWS):
        ids = 2 * np.arange(first, min(first + _CHUNK_ROWS, rows), dtype=np.int64)
        yield from _rows(ids, generation=0).to_batches()


def _rows(ids: np.ndarray, *, generation: int) -> pa.Table:
    labels = pa.array(ids % 1000).cast(pa.string())
    return pa.table([pa.array(ids), pa.array(ids + generation), labels], schema=_SCHEMA)


@contextmanager
def _merging(
    source: Path, runner: Runner, rows: int, *, divided: bool | None = None, is_cold: bool = False
) -> Iterator[Callable[[], None]]:
    """Yield a merge of a copy of a table, to be called once."""
    copy = source.with_name(f"{source.name}-copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(source, copy, copy_function=os.link)
    with weir.Engine() if is_cold else nullcontext() as engine:
        table = (weir if engine is None else engine).open(copy, fsync=False)

        def merge() -> None:
            report = table.maintenance.merge(runner=runner, divided=divided)
            if report.shards != _SHARDS or not 0 < report.rows_upserted < rows:
                raise WrongAnswerError(f"{type(runner).__name__} merged {report}")

        yield merge
    shutil.rmtree(copy)

"""The change feed: rows read of a log, against reading the same files with nothing but Arrow."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import ipc

import weir
from benchmarks.context import Context, Result
from benchmarks.harness import Case, Contender, Sense, Target, measure
from benchmarks.samples import SCHEMA, SampleRows
from weir.engine.context import default_context

__all__ = ["run"]

_CALLS = 5
_FACTOR = 4.0

_WEIR = "weir changes()"
_BEFORE = "weir changes(before=True)"
_ARROW = "pyarrow, the same files"

_Read = Callable[[], int]


@dataclass(frozen=True, slots=True)
class _Log:
    """A log of writes of one size.

    Parameters
    ----------
    rows_per_write, writes : int
        How large each is, and how many there are.
    quick_writes : int
        How many there are in a trial.
    """

    rows_per_write: int
    writes: int
    quick_writes: int


_LOGS = (_Log(100, 3_000, 100), _Log(10_000, 50, 5))


def run(context: Context) -> Result:
    """Measure the feed over logs of small and of large writes."""
    cases = []
    for log in _LOGS:
        context.say(f"changes: writes of {log.rows_per_write:,} rows")
        writes = log.quick_writes if context.scale.quick else log.writes
        table, files = _written(context.directory / f"changes-{log.rows_per_write}", log, writes)
        rows = writes * log.rows_per_write
        reads: dict[str, _Read] = {
            _WEIR: partial(_feed, table.uri, before=False),
            _BEFORE: partial(_feed, table.uri, before=True),
            _ARROW: partial(_arrow, files),
        }
        for name, read in reads.items():
            if read() != rows:
                raise AssertionError(f"{name} did not read the {rows:,} rows that were written")
        contenders = [Contender(name, partial(_session, read)) for name, read in reads.items()]
        measured = measure(contenders, rounds=context.scale.rounds, calls=_CALLS)
        target = Target(_WEIR, Sense.WITHIN, _FACTOR, (_ARROW,))
        name = f"{rows:,} rows in writes of {log.rows_per_write:,}"
        cases.append(Case("changes", name, measured, (target,), rows_per_call=rows))
    return Result(
        "changes",
        "Change feed of one shard, from the beginning of its log",
        (
            f"{_WEIR}: opening the table included, checksums verified, shard, position, epoch and operation "
            "of every row added; nothing cached before or after",
            f"{_BEFORE}: each change with the row before it, and there is none: what looking for it costs",
            f"{_ARROW}: open_stream and read_all of every log entry, in a loop; no checksums",
            "128-dim float32 vectors, int64 id, text of about 10 bytes; the operating system's page cache is "
            "warm for all",
        ),
        cases,
    )


def _written(directory: Path, log: _Log, writes: int) -> tuple[weir.Table, list[Path]]:
    table = weir.create(directory, SCHEMA, primary_key="id", fsync=False)
    samples = SampleRows(1)
    with table.writer(max_memtable_rows=10_000_000, flush_on_close=False) as writer:
        for start in range(0, writes * log.rows_per_write, log.rows_per_write):
            writer.upsert(samples.table(np.arange(start, start + log.rows_per_write)))
    return table, sorted(directory.glob("_mem_wal/*/wal/*.arrow"))


def _feed(uri: str, *, before: bool) -> int:
    default_context().cache.clear()
    return sum(change.rows.num_rows for change in weir.open(uri).changes(before=before))


def _arrow(files: list[Path]) -> int:
    rows = 0
    for file in files:
        with ipc.open_stream(pa.py_buffer(file.read_bytes())) as reader:
            rows += reader.read_all().num_rows
    return rows


def _session(read: _Read) -> nullcontext[_Read]:
    return nullcontext(read)

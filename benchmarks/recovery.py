"""Recovery: how long a writer takes to claim a shard whose former writer left a long log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import weir
from benchmarks.context import Context, Result
from benchmarks.harness import Case, Contender, Measurement, Sense, Target, measure
from benchmarks.layered_table import WrongAnswerError
from benchmarks.samples import SCHEMA, SampleRows
from weir.engine.context import default_context
from weir.write.table_writer import TableWriter

__all__ = ["run"]

_ROWS_PER_ENTRY = 20_000
_UNBOUNDED = 1 << 40
_MEGABYTES_PER_SECOND = 300
_FULL_MEGABYTES, _TRIAL_MEGABYTES = 1_000, 50

_WEIR = "weir"
_RATE = f"{_MEGABYTES_PER_SECOND} MB/s"


def run(context: Context) -> Result:
    """Write a log, then claim its shard again and again."""
    megabytes = _TRIAL_MEGABYTES if context.scale.quick else _FULL_MEGABYTES
    context.say("recovery: writing the log")
    directory = context.directory / "recovery"
    rows, entries, size = _write_log(directory, megabytes)
    context.say("recovery: replay")
    rounds = context.scale.rounds
    measured = measure(
        [Contender(_WEIR, lambda: _recovery(directory, rows))], rounds=rounds, calls=1, warm_up=0
    )
    # The target is no contender's time but a rate.
    asked = Measurement(_RATE, ((size / (_MEGABYTES_PER_SECOND * 1e6),),) * rounds)
    return Result(
        "recovery",
        f"Claim of a shard and replay of its log: {entries} WAL entries, {rows:,} rows, {size / 1e6:,.0f} MB",
        (
            "from asking for a writer until it has taken the first row, durably: lease, epoch, reading the "
            "log, checksums, fence entry, MemTable",
            "an empty process cache; the operating system's page cache is warm",
            f"128-dim float32 vectors, int64 id, text of about 10 bytes; {_ROWS_PER_ENTRY:,} rows per entry; "
            "fsync off; max_unflushed_bytes beyond the size of the log",
            f"{_RATE}: what the target asks, not a measurement",
        ),
        (
            Case(
                "recovery",
                "claim and replay",
                (*measured, asked),
                (Target(_WEIR, Sense.FASTER, 1.0, (_RATE,)),),
                rows_per_call=rows,
            ),
        ),
    )


def _write_log(directory: Path, megabytes: int) -> tuple[int, int, int]:
    """Write entries that are never flushed; return rows, entries and bytes on disk."""
    table = weir.create(directory, SCHEMA, primary_key="id", fsync=False)
    samples = SampleRows(1)
    size, entries = 0, 0
    with _writer(table) as writer:
        while size < megabytes * 1e6:
            start = entries * _ROWS_PER_ENTRY
            rows = samples.table(np.arange(start, start + _ROWS_PER_ENTRY))
            writer.upsert(rows)
            size, entries = size + rows.nbytes, entries + 1
    logs = directory.glob("_mem_wal/*/wal/*")
    return entries * _ROWS_PER_ENTRY, entries, sum(path.stat().st_size for path in logs)


@contextmanager
def _recovery(directory: Path, rows: int) -> Iterator[Callable[[], object]]:
    default_context().cache.clear()
    table = weir.open(directory, fsync=False)
    first = SampleRows(2).table(np.arange(1))
    with _writer(table) as writer:
        yield lambda: writer.upsert(first)
        found = table.scan().count()
    default_context().cache.clear()
    if found != rows:
        raise WrongAnswerError(f"{found:,} rows are there after recovery, not {rows:,}")


def _writer(table: weir.Table) -> TableWriter:
    return table.writer(
        max_unflushed_bytes=_UNBOUNDED,
        max_memtable_bytes=_UNBOUNDED,
        max_memtable_rows=_UNBOUNDED,
        flush_on_close=False,
    )

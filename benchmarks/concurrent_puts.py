"""Durable puts of one row from 32 threads: how many are through in a second, at equal flush intervals."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

import weir
from benchmarks.context import Context, Result
from benchmarks.disk import release
from benchmarks.harness import Case, Contender, Sense, Target, measure
from benchmarks.samples import SCHEMA, SampleRows

__all__ = ["run"]

_THREADS = 32
_FACTOR = 10.0
_PUTS_PER_THREAD = {1: 20, 10: 10, 100: 3}
"""By flush interval in milliseconds. 100 is the library's default."""
_NEVER_FLUSHED = 1_000_000

_WEIR = "weir"
_WEIR_FSYNC = "weir, fsync"
_LIBRARY = "pylance"

_PRIMARY_KEY = {b"lance-schema:unenforced-primary-key": b"true"}

_Put = Callable[[pa.Table], object]


def run(context: Context) -> Result:
    """Measure bursts of puts from many threads, one case per flush interval."""
    place = _Place(context.directory)
    cases = []
    for interval, puts in _PUTS_PER_THREAD.items():
        name = f"{_THREADS} threads, {interval} ms"
        context.say(f"concurrent: {name}")
        bursts = _bursts(puts)
        writers: dict[str, Callable[[], AbstractContextManager[_Put]]] = {
            _WEIR: partial(place.weir_writer, interval, fsync=False),
            _WEIR_FSYNC: partial(place.weir_writer, interval, fsync=True),
            _LIBRARY: partial(place.library_writer, interval),
        }
        measurements = measure(
            [Contender(who, partial(_burst, bursts, writer)) for who, writer in writers.items()],
            rounds=context.scale.rounds,
            calls=5,
            block_seconds=4.0,
        )
        target = Target(_WEIR, Sense.FASTER, _FACTOR, (_LIBRARY,))
        cases.append(Case("concurrent", name, measurements, (target,), rows_per_call=_THREADS * puts))
    return Result(
        "concurrent",
        f"Durable puts of one row, {_THREADS} threads, one shard",
        (
            f"{_WEIR}: fsync off, as the library; {_WEIR_FSYNC}: file and directory are fsynced before a put "
            "returns (Weir's default)",
            f"{_LIBRARY}: mem_wal_writer with durable_write on (its default)",
            "the flush interval is max_wal_delay of Weir and max_wal_flush_interval_ms of the library: how "
            "long the first put of a WAL entry waits for others",
            "one call: every thread makes so many puts, each when the one before has returned: "
            + ", ".join(f"{puts} at {interval} ms" for interval, puts in _PUTS_PER_THREAD.items()),
            "at 1 ms it is the processor that limits Weir, not the log: each put takes some 0.1 ms of it",
        ),
        cases,
    )


class _Place:
    """Where each side gets a new shard for every block."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers = itertools.count()
        key = SCHEMA.field("id").with_metadata(_PRIMARY_KEY)
        schema = SCHEMA.set(SCHEMA.get_field_index("id"), key)
        self._library = lance.write_dataset(schema.empty_table(), str(directory / "concurrent-library"))
        self._library.initialize_mem_wal(unsharded=True)

    @contextmanager
    def weir_writer(self, interval: int, *, fsync: bool) -> Iterator[_Put]:
        """Open a writer of a new Weir table."""
        directory = self._directory / f"concurrent-weir-{next(self._numbers)}"
        table = weir.create(directory, SCHEMA, primary_key="id", fsync=fsync)
        with table.writer(
            max_wal_delay=interval / 1000, max_memtable_rows=_NEVER_FLUSHED, flush_on_close=False
        ) as writer:
            yield writer.upsert
        release(directory)

    @contextmanager
    def library_writer(self, interval: int) -> Iterator[_Put]:
        """Open a writer of a new shard of the library's table."""
        shard = str(uuid.uuid4())
        with self._library.mem_wal_writer(
            shard, max_wal_flush_interval_ms=interval, max_memtable_rows=_NEVER_FLUSHED
        ) as writer:
            yield writer.put
        release(self._directory / "concurrent-library" / "_mem_wal" / shard)


def _bursts(puts: int) -> list[list[pa.Table]]:
    """Return the rows that each thread puts."""
    samples = SampleRows(1)
    ids = np.arange(_THREADS * puts).reshape(_THREADS, puts)
    return [[samples.table(np.array([number])) for number in mine] for mine in ids]


@contextmanager
def _burst(
    bursts: Sequence[Sequence[pa.Table]], open_writer: Callable[[], AbstractContextManager[_Put]]
) -> Iterator[Callable[[], object]]:
    with ThreadPoolExecutor(_THREADS) as threads, open_writer() as put:

        def put_in_turn(rows: Sequence[pa.Table]) -> None:
            for row in rows:
                put(row)

        def put_all() -> None:
            for done in [threads.submit(put_in_turn, rows) for rows in bursts]:
                done.result()

        yield put_all

"""Durable puts: how long one thread waits until 1 to 10,000 rows are in the write-ahead log."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
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

_FLUSH_INTERVALS_MS = (1, 5, 10, 100)
_WARM_UP = 3
_FACTOR = 1.5

_Opener = Callable[[], AbstractContextManager[Callable[[pa.Table], object]]]

_WEIR = "weir"
_WEIR_FSYNC = "weir, fsync"

_PRIMARY_KEY = {b"lance-schema:unenforced-primary-key": b"true"}


@dataclass(frozen=True, slots=True)
class _Puts:
    """Puts of one size.

    Parameters
    ----------
    rows : int
        Rows of each.
    calls : int
        Puts that one block times.
    max_memtable_rows : int
        The same on both sides.
    """

    rows: int
    calls: int
    max_memtable_rows: int

    def batches(self, count: int) -> list[pa.Table]:
        samples = SampleRows(self.rows)
        starts = range(0, count * self.rows, self.rows)
        return [samples.table(np.arange(start, start + self.rows)) for start in starts]


_NEVER_FLUSHED = 1_000_000
_SINGLE = tuple(
    _Puts(rows, calls, _NEVER_FLUSHED) for rows, calls in ((1, 100), (100, 100), (1_000, 60), (10_000, 20))
)
_SUSTAINED = _Puts(rows=10_000, calls=30, max_memtable_rows=100_000)


def run(context: Context) -> Result:
    """Measure durable puts of several sizes, one by one and as a long run of them."""
    place = _Place(context.directory)
    peers = tuple(_library_name(interval) for interval in _FLUSH_INTERVALS_MS)
    cases = []
    for puts in _SINGLE:
        name = f"put of {puts.rows:,} row{'s' if puts.rows > 1 else ''}"
        context.say(f"ingest: {name}")
        batches = puts.batches(_WARM_UP + puts.calls)
        measurements = measure(
            [
                Contender(who, partial(_one_by_one, batches, opener))
                for who, opener in _openers(place, puts).items()
            ],
            rounds=context.scale.rounds,
            calls=puts.calls,
            warm_up=_WARM_UP,
        )
        target = Target(_WEIR, Sense.FASTER, _FACTOR, peers)
        cases.append(Case("ingest", name, measurements, (target,), rows_per_call=puts.rows))
    total = _SUSTAINED.rows * _SUSTAINED.calls
    context.say("ingest: sustained")
    batches = _SUSTAINED.batches(_SUSTAINED.calls)
    sustained = measure(
        [
            Contender(who, partial(_all_at_once, batches, opener))
            for who, opener in _openers(place, _SUSTAINED).items()
        ],
        rounds=min(3, context.scale.rounds),
        calls=1,
        warm_up=0,
    )
    cases.append(Case("ingest", f"{total:,} rows in puts of {_SUSTAINED.rows:,}", sustained, (), total))
    return Result(
        "ingest",
        "Durable puts, one thread, one shard",
        (
            f"{_WEIR}: fsync off, as the library; {_WEIR_FSYNC}: file and directory are fsynced before a put "
            "returns (Weir's default)",
            "pylance: mem_wal_writer with durable_write on (its default), which calls no fsync on local "
            "disk; the interval is max_wal_flush_interval_ms, and the best one is the reference",
            "both: 128-dim float32 vectors, int64 id, text of about 10 bytes; Arrow tables as input; "
            "new keys in every put; an empty table; a new shard in every round",
            f"single puts: max_memtable_rows of {_NEVER_FLUSHED:,} on both sides, so that no flush "
            f"falls into the timing; the long run: {_SUSTAINED.max_memtable_rows:,} on both sides, flushes "
            "in the background, closing not timed",
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
        self._library = lance.write_dataset(schema.empty_table(), str(directory / "library"))
        self._library.initialize_mem_wal(unsharded=True)

    @contextmanager
    def weir_put(self, puts: _Puts, *, fsync: bool) -> Iterator[Callable[[pa.Table], object]]:
        """Open a writer of a new Weir table; its value writes rows durably."""
        directory = self._directory / f"weir-{next(self._numbers)}"
        table = weir.create(directory, SCHEMA, primary_key="id", fsync=fsync)
        options = {"max_memtable_rows": puts.max_memtable_rows, "flush_on_close": False}
        with table.writer(**options) as writer:
            yield writer.upsert
        release(directory)

    @contextmanager
    def library_put(self, puts: _Puts, *, interval: int) -> Iterator[Callable[[pa.Table], object]]:
        """Open the library's writer of a new shard."""
        shard = str(uuid.uuid4())
        with self._library.mem_wal_writer(
            shard, max_wal_flush_interval_ms=interval, max_memtable_rows=puts.max_memtable_rows
        ) as writer:
            yield writer.put
        release(self._directory / "library" / "_mem_wal" / shard)


def _openers(place: _Place, puts: _Puts) -> dict[str, _Opener]:
    return {
        _WEIR: partial(place.weir_put, puts, fsync=False),
        _WEIR_FSYNC: partial(place.weir_put, puts, fsync=True),
        **{
            _library_name(interval): partial(place.library_put, puts, interval=interval)
            for interval in _FLUSH_INTERVALS_MS
        },
    }


@contextmanager
def _one_by_one(batches: Sequence[pa.Table], opener: _Opener) -> Iterator[Callable[[], object]]:
    turn = itertools.cycle(batches)
    with opener() as put:
        yield lambda: put(next(turn))


@contextmanager
def _all_at_once(batches: Sequence[pa.Table], opener: _Opener) -> Iterator[Callable[[], object]]:
    with opener() as put:

        def put_all() -> None:
            for batch in batches:
                put(batch)

        yield put_all


def _library_name(interval: int) -> str:
    return f"pylance, {interval} ms"

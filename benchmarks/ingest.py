"""Durable puts: how long one thread waits until 1 to 10,000 rows are in the write-ahead log."""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa

import weir
from benchmarks.context import Context, Result
from benchmarks.disk import release
from benchmarks.harness import Case, Contender, Sense, Target, measure
from benchmarks.samples import SCHEMA, SampleRows
from benchmarks.sqlite import insert, open_durable

__all__ = ["run"]

_WARM_UP = 3
_FACTOR = 1.5
_SUSTAINED_FACTOR = 1.2
_LIBRARY = {f"pylance, {interval} ms": interval for interval in (1, 5, 10, 100)}
"""The library by its interval between flushes of the log."""

_Put = Callable[[Any], object]
_OpenWriter = Callable[[], AbstractContextManager[_Put]]
_NewShard = Callable[[], AbstractContextManager[_OpenWriter]]

_WEIR = "weir"
_WEIR_FSYNC = "weir, fsync"
_FILE = "a file of its bytes"
_FILE_FSYNC = "a file of its bytes, fsync"
_SQLITE = "SQLite, fsync"

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
    flush_on_close : bool
        Whether closing Weir's writer flushes; the library's always does.
    """

    rows: int
    calls: int
    max_memtable_rows: int
    flush_on_close: bool

    def batches(self, count: int) -> list[pa.Table]:
        samples = SampleRows(self.rows)
        starts = range(0, count * self.rows, self.rows)
        return [samples.table(np.arange(start, start + self.rows)) for start in starts]


_NEVER_FLUSHED = 1_000_000
_SINGLE = tuple(
    _Puts(rows, calls, _NEVER_FLUSHED, flush_on_close=False)
    for rows, calls in ((1, 100), (100, 100), (1_000, 60), (10_000, 20))
)
_SUSTAINED = _Puts(rows=10_000, calls=30, max_memtable_rows=100_000, flush_on_close=True)


def run(context: Context) -> Result:
    """Measure durable puts of several sizes, one by one and as a long run of them."""
    place = _Place(context.directory)
    # What the process and the disk have done before decides as much as who writes.
    cases = [_sustained(context, place, "in a new process")]
    for puts in _SINGLE:
        name = f"put of {puts.rows:,} row{'s' if puts.rows > 1 else ''}"
        context.say(f"ingest: {name}")
        batches = puts.batches(_WARM_UP + puts.calls)
        measurements = measure(
            [
                *(
                    Contender(who, partial(_put_by_put, batches, new_shard))
                    for who, new_shard in _shards(place, puts).items()
                ),
                *_without_engine(place, batches),
            ],
            rounds=context.scale.rounds,
            calls=puts.calls,
            warm_up=_WARM_UP,
        )
        target = Target(_WEIR, Sense.FASTER, _FACTOR, tuple(_LIBRARY))
        cases.append(Case("ingest", name, measurements, (target,), rows_per_call=puts.rows))
    cases.append(_sustained(context, place, "after all of these"))
    return Result(
        "ingest",
        "Durable puts, one thread, one shard",
        (
            f"{_WEIR}: fsync off, as the library; {_WEIR_FSYNC}: file and directory are fsynced before a put "
            "returns (Weir's default)",
            "pylance: mem_wal_writer with durable_write on (its default), which calls no fsync on local "
            "disk; the interval is max_wal_flush_interval_ms, and the best one is the reference",
            f"{_FILE}: the rows as an Arrow IPC stream in a new file, as a put of either leaves them, and "
            f"nothing else; {_FILE_FSYNC}: file and directory are fsynced",
            f"{_SQLITE}: one transaction of INSERTs, journal_mode WAL, synchronous FULL",
            "all: 128-dim float32 vectors, int64 id, text of about 10 bytes; Arrow tables as input; "
            "new keys in every put; an empty table; a new shard in every round",
            f"single puts: max_memtable_rows of {_NEVER_FLUSHED:,} on both sides, so that no flush "
            "falls into the timing",
            f"the long run: {_SUSTAINED.max_memtable_rows:,} on both sides, flushes in the background, "
            "timed from opening the writer until closing it has flushed the last rows",
        ),
        cases,
    )


def _sustained(context: Context, place: _Place, when: str) -> Case:
    """Measure a long run of puts, with its flushes."""
    total = _SUSTAINED.rows * _SUSTAINED.calls
    context.say(f"ingest: sustained, {when}")
    batches = _SUSTAINED.batches(_SUSTAINED.calls)
    measurements = measure(
        [
            Contender(who, partial(_all_of_it, batches, new_shard))
            for who, new_shard in _shards(place, _SUSTAINED).items()
        ],
        rounds=context.scale.rounds,
        calls=1,
        warm_up=0,
    )
    target = Target(_WEIR, Sense.FASTER, _SUSTAINED_FACTOR, tuple(_LIBRARY))
    name = f"{total:,} rows in puts of {_SUSTAINED.rows:,}, {when}"
    return Case("ingest", name, measurements, (target,), total)


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
    def weir_shard(self, puts: _Puts, *, fsync: bool) -> Iterator[_OpenWriter]:
        """Make a Weir table; the value opens its writer."""
        directory = self._directory / f"weir-{next(self._numbers)}"
        table = weir.create(directory, SCHEMA, primary_key="id", fsync=fsync)

        @contextmanager
        def open_writer() -> Iterator[_Put]:
            with table.writer(
                max_memtable_rows=puts.max_memtable_rows, flush_on_close=puts.flush_on_close
            ) as writer:
                yield writer.upsert

        yield open_writer
        release(directory)

    @contextmanager
    def library_shard(self, puts: _Puts, *, interval: int) -> Iterator[_OpenWriter]:
        """Choose a new shard of the library's table; the value opens its writer."""
        shard = str(uuid.uuid4())

        @contextmanager
        def open_writer() -> Iterator[_Put]:
            with self._library.mem_wal_writer(
                shard, max_wal_flush_interval_ms=interval, max_memtable_rows=puts.max_memtable_rows
            ) as writer:
                yield writer.put

        yield open_writer
        release(self._directory / "library" / "_mem_wal" / shard)

    @contextmanager
    def file_directory(self, *, fsync: bool) -> Iterator[_OpenWriter]:
        """Make a directory; the value opens what writes every put as a file of its own."""
        directory = self._directory / f"files-{next(self._numbers)}"
        directory.mkdir()
        yield partial(_file_writer, directory, fsync=fsync)
        release(directory)

    @contextmanager
    def sqlite_database(self) -> Iterator[_OpenWriter]:
        """Make a database of SQLite; the value opens its connection."""
        directory = self._directory / f"sqlite-{next(self._numbers)}"
        directory.mkdir()
        yield partial(_sqlite_writer, directory / "rows.db")
        release(directory)


@contextmanager
def _file_writer(directory: Path, *, fsync: bool) -> Iterator[_Put]:
    numbers = itertools.count()

    def put(content: pa.Buffer) -> None:
        descriptor = os.open(directory / str(next(numbers)), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        os.write(descriptor, content)
        if fsync:
            os.fsync(descriptor)
            os.fsync(parent)
        os.close(descriptor)

    parent = os.open(directory, os.O_RDONLY)
    try:
        yield put
    finally:
        os.close(parent)


def _as_stream(rows: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return sink.getvalue()


@contextmanager
def _sqlite_writer(path: Path) -> Iterator[_Put]:
    connection = open_durable(path, "CREATE TABLE rows (id INTEGER PRIMARY KEY, vector BLOB, label TEXT)")
    yield partial(insert, connection, "INSERT OR REPLACE INTO rows VALUES (?, ?, ?)")
    connection.close()


def _as_sqlite_rows(rows: pa.Table) -> list[tuple[int, bytes, str]]:
    """Return rows as SQLite takes them: made outside the timing, as Weir's Arrow tables are."""
    vectors = rows["vector"].combine_chunks().flatten().to_numpy().reshape(rows.num_rows, -1)
    return list(
        zip(
            rows["id"].to_pylist(), (one.tobytes() for one in vectors), rows["label"].to_pylist(), strict=True
        )
    )


def _shards(place: _Place, puts: _Puts) -> dict[str, _NewShard]:
    return {
        _WEIR: partial(place.weir_shard, puts, fsync=False),
        _WEIR_FSYNC: partial(place.weir_shard, puts, fsync=True),
        **{who: partial(place.library_shard, puts, interval=interval) for who, interval in _LIBRARY.items()},
    }


def _without_engine(place: _Place, batches: Sequence[pa.Table]) -> Iterator[Contender]:
    """Yield plain files and SQLite, with the rows as each writes them: what the disk takes of a put."""
    streams = [_as_stream(rows) for rows in batches]
    for who, fsync in ((_FILE, False), (_FILE_FSYNC, True)):
        yield Contender(who, partial(_put_by_put, streams, partial(place.file_directory, fsync=fsync)))
    rows = [_as_sqlite_rows(rows) for rows in batches]
    yield Contender(_SQLITE, partial(_put_by_put, rows, place.sqlite_database))


@contextmanager
def _put_by_put(batches: Sequence[object], new_shard: _NewShard) -> Iterator[Callable[[], object]]:
    turn = itertools.cycle(batches)
    with new_shard() as open_writer, open_writer() as put:
        yield lambda: put(next(turn))


@contextmanager
def _all_of_it(batches: Sequence[pa.Table], new_shard: _NewShard) -> Iterator[Callable[[], object]]:
    with new_shard() as open_writer:

        def put_all() -> None:
            with open_writer() as put:
                for batch in batches:
                    put(batch)

        yield put_all

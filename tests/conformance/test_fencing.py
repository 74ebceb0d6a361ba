"""A writer of Weir fenced by the library's and the other way round, while rows stream: nothing is lost.

The library knows no leases. It claims by the epoch alone, so it takes a shard whose lease is live, and
the holder of that lease is fenced like any other. Among writers of Weir the lease goes on to count.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from lance.mem_wal import ShardWriter
from tests.conformance import library
from tests.conformance.tables import KINDS, Model

import weir
from weir.errors import FencedError, LeaseHeldError
from weir.write.table_writer import TableWriter

KIND = KINDS["int64"]
SCHEMA = KIND.plain_schema


@pytest.fixture
def place(tmp_path: Path) -> Path:
    weir.create(tmp_path / "t", SCHEMA, primary_key="key0", fsync=False)
    return tmp_path / "t"


class Stream:
    """A thread that writes row after row until it is refused, and keeps what was acknowledged."""

    def __init__(self, first: int, write: Callable[[int], object]) -> None:
        self.acknowledged: list[int] = []
        self.refused: BaseException | None = None
        self._first = first
        self._write = write
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = self._first
        try:
            while True:
                self._write(number)
                self.acknowledged.append(number)
                number += 1
        except (FencedError, OSError) as error:
            self.refused = error

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + 60
        while len(self.acknowledged) < count and self._thread.is_alive():
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def join(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()


def test_writers_fence_each_other_in_mid_stream(place: Path) -> None:
    """Each takes the shard from the other while that one is writing, three times."""
    streams: list[Stream] = []
    table = weir.open(place, fsync=False)

    def by_weir(writer: TableWriter) -> Callable[[int], object]:
        return lambda number: writer.upsert(KIND.rows([(number,)], number))

    def by_library(writer: ShardWriter) -> Callable[[int], object]:
        return lambda number: writer.put(KIND.rows([(number,)], number))

    for turn in range(3):
        ours = table.writer(takeover=True)
        ours.__enter__()
        streams.append(Stream(10_000 * (2 * turn + 1), by_weir(ours)))
        streams[-1].wait_for(20)
        (shard,) = library.shards_of(place)
        theirs = library.open_writer(place, shard)
        streams.append(Stream(10_000 * (2 * turn + 2), by_library(theirs)))
        streams[-1].wait_for(20)
        streams[-2].join()
        assert isinstance(streams[-2].refused, FencedError)
        ours.__exit__(RuntimeError, RuntimeError("fenced"), None)
    with table.writer() as last:
        last.upsert(KIND.rows([(-1,)], 0))
    streams[-1].join()
    for stream in streams[1::2]:
        assert "fence" in str(stream.refused).lower() or "epoch" in str(stream.refused).lower()

    found = set(table.scan(columns=["key0"]).to_table()["key0"].to_pylist())
    acknowledged = {number for stream in streams for number in stream.acknowledged} | {-1}
    # The write that was refused may be there, once it had been appended; nothing else may.
    in_doubt = {stream.acknowledged[-1] + 1 for stream in streams}
    assert acknowledged <= found <= acknowledged | in_doubt
    table.maintenance.merge()
    assert set(table.scan(columns=["key0"]).to_table()["key0"].to_pylist()) == found


def test_the_epoch_decides_where_only_one_side_knows_leases(place: Path) -> None:
    model = Model(KIND)
    table = weir.open(place, fsync=False)
    with table.writer(flush_on_close=False) as holder:
        holder.upsert(model.upsert([(1,)]))
        ((shard, epoch),) = holder.epochs.items()
        with weir.Engine().open(place, fsync=False).writer() as other, pytest.raises(LeaseHeldError):
            other.upsert(KIND.rows([(2,)], 0))
        # The lease is live, and the library does not ask.
        theirs = library.open_writer(place, shard)
        assert library.manifest_of(place, shard).writer_epoch == epoch + 1
        theirs.put(model.upsert([(3,)]))
        with pytest.raises(FencedError):
            holder.upsert(KIND.rows([(4,)], 0))
        model.check(table.scan().to_table())
        # Who has been fenced holds nothing any more: the next writer of Weir need not take over.
        with table.writer() as after:
            after.upsert(model.upsert([(5,)]))
            assert after.epochs == {shard: epoch + 2}
            with pytest.raises(OSError, match=r"(?i)fence|epoch"):
                theirs.put(KIND.rows([(6,)], 0))
            after.upsert(model.upsert([(7,)]))
    model.check(table.scan().to_table())


def test_a_flush_of_a_fenced_writer_publishes_nothing(place: Path) -> None:
    """Rows that one side holds in memory only as a MemTable are replayed by the other."""
    model = Model(KIND)
    table = weir.open(place, fsync=False)
    ours = table.writer(flush_on_close=False)
    ours.upsert(model.upsert(KIND.keys[:4]))
    (shard,) = ours.epochs
    theirs = library.open_writer(place, shard)
    with pytest.raises(FencedError):
        ours.flush()
    ours.close()
    assert library.manifest_of(place, shard).flushed_generations == ()
    theirs.put(model.upsert(KIND.keys[3:6]))
    with table.writer() as after:
        after.upsert(model.upsert(KIND.keys[:1]))
        with pytest.raises(OSError, match=r"(?i)fence|epoch"):
            theirs.close()
        model.check(table.scan().to_table())
    model.check(library.scan(place))

"""Writes through the table itself: a writer is kept for them, and gives way."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import weir
from weir.errors import BackpressureError, FencedError, InputError, LeaseHeldError, OptionError, SchemaError
from weir.table import kept_writer
from weir.write.table_writer import TableWriter

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    return weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)


def rows(table: weir.Table) -> dict[int, int]:
    return {row["id"]: row["n"] for row in table.scan().to_pylist()}


def test_a_table_is_written_without_a_writer(table: weir.Table) -> None:
    assert table.upsert([{"id": n, "n": n} for n in range(6)]).rows == 6
    table.delete([0])
    table.delete(where="n = 1")
    table.update("n = 2", {"n": "n + 10"})
    table.patch([{"id": 3, "n": 33}])
    table.insert([{"id": 3, "n": 0}, {"id": 7, "n": 7}])
    table.upsert([{"id": 4, "n": 1}], condition="n < new.n")
    assert rows(table) == {2: 12, 3: 33, 4: 4, 5: 5, 7: 7}
    with pytest.raises(SchemaError):
        table.upsert([{"id": 1, "other": 1}])
    with pytest.raises(InputError):
        table.delete([1], where="n = 1")
    with pytest.raises(OptionError, match="lease_wait"):
        table.upsert([{"id": 1, "n": 1}], lease_wait=-1)
    table.upsert([{"id": 1, "n": 1}])
    assert rows(table)[1] == 1


def test_the_shards_are_claimed_once_and_given_to_a_writer(table: weir.Table) -> None:
    table.upsert([{"id": 1, "n": 1}])
    table.upsert([{"id": 2, "n": 2}])
    (shard,) = table.status().shards
    with table.writer() as writer:
        writer.upsert([{"id": 3, "n": 3}])
        assert set(writer.epochs.values()) == {shard.epoch + 1}
        table.upsert([{"id": 4, "n": 4}], lease_wait=0)
        (held,) = table.status().shards
        assert held.epoch == shard.epoch + 1
    with weir.Engine().open(table.uri, fsync=False).writer() as writer:
        writer.upsert([{"id": 5, "n": 5}])
        with pytest.raises(LeaseHeldError):
            table.upsert([{"id": 6, "n": 6}], lease_wait=0.2)
    table.upsert([{"id": 6, "n": 6}], lease_wait=timedelta(0))
    assert rows(table) == {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6}


def test_two_tables_of_one_process_take_turns(table: weir.Table) -> None:
    other = weir.open(table.uri, fsync=False)
    for number in range(3):
        table.upsert([{"id": 2 * number, "n": 0}], lease_wait=0)
        other.upsert([{"id": 2 * number + 1, "n": 1}], lease_wait=0)
    assert len(rows(table)) == 6


def test_a_write_waits_for_the_shard(table: weir.Table) -> None:
    writer = weir.Engine().open(table.uri, fsync=False).writer()
    writer.upsert([{"id": 1, "n": 1}])
    closing = threading.Timer(0.5, writer.close)
    closing.start()
    table.upsert([{"id": 2, "n": 2}], lease_wait=60)
    closing.join()
    assert rows(table) == {1: 1, 2: 2}


def test_a_stream_is_written_piece_by_piece(table: weir.Table) -> None:
    drawn: list[int] = []
    seen: list[tuple[int, int, int]] = []

    def stream() -> Iterator[dict[str, object]]:
        for number in range(25_000):
            drawn.append(number)
            # The last piece is refused, with the number of its row in the stream.
            yield {"id": None if number == 24_000 else number, "n": number}

    def told(rows: int) -> None:
        seen.append((rows, len(drawn), table.scan().count()))

    with pytest.raises(weir.errors.KeyValueError, match="row 24000"):
        table.upsert(stream(), progress=told)
    assert seen == [(10_000, 10_000, 10_000), (20_000, 20_000, 20_000)]
    assert table.upsert(iter([{"id": -1, "n": 1}]), progress=told).rows == 1
    assert table.upsert([{"id": -2, "n": 1}], progress=told).rows == 1
    assert [rows for rows, _, _ in seen[2:]] == [1, 1]


def test_an_idle_writer_lets_go(table: weir.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_writer, "_IDLE_SECONDS", 0.2)
    table.upsert([{"id": 1, "n": 1}])
    deadline = time.monotonic() + 60
    while table.status().shards[0].lease == "held" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert table.status().shards[0].lease != "held"
    table.upsert([{"id": 2, "n": 2}])
    assert rows(table) == {1: 1, 2: 2}


def test_many_threads_write_at_once(table: weir.Table) -> None:
    threads = [threading.Thread(target=lambda n=n: table.upsert([{"id": n, "n": n}])) for n in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(rows(table)) == 8


class WriteUnderWay:
    """A write through the table that has written one row, and waits to be told to write the next."""

    def __init__(self, table: weir.Table, first: int, second: int) -> None:
        self._begun, self._go_on = threading.Event(), threading.Event()
        self._rows = [{"id": first, "n": 0}], [{"id": second, "n": 0}]
        self.writer: TableWriter | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(table,))
        self._thread.start()
        assert self._begun.wait(60)

    def _run(self, table: weir.Table) -> None:
        try:
            table._kept.write(self._write, lease_wait=0)
        except BaseException as error:
            self.error = error
        finally:
            self._begun.set()

    def _write(self, writer: TableWriter) -> None:
        self.writer = writer
        writer.upsert(self._rows[0])
        self._begun.set()
        assert self._go_on.wait(60)
        writer.upsert(self._rows[1])

    def end(self) -> None:
        self._go_on.set()
        self._thread.join()
        if self.error is not None:
            raise self.error


@pytest.fixture
def sharded(tmp_path: Path) -> weir.Table:
    rule = weir.identity("id")
    return weir.create(tmp_path / "sharded", SCHEMA, primary_key="id", shard_by=rule, fsync=False)


def test_a_held_shard_or_a_full_one_leaves_the_writes_of_other_threads_alone(sharded: weir.Table) -> None:
    with weir.Engine().open(sharded.uri, fsync=False).writer() as other:
        other.upsert([{"id": 1, "n": 1}])
        under_way = WriteUnderWay(sharded, 2, 2)
        with pytest.raises(LeaseHeldError):
            sharded.upsert([{"id": 1, "n": 2}], lease_wait=0)

        def full(writer: TableWriter) -> None:
            raise BackpressureError("no room")

        with pytest.raises(BackpressureError):
            sharded._kept.write(full, lease_wait=0)
        used: list[TableWriter] = []
        sharded._kept.write(used.append, lease_wait=0)
        assert used == [under_way.writer]
        under_way.end()
    assert rows(sharded) == {1: 1, 2: 0}


def test_a_lost_shard_ends_the_writer_when_other_threads_have_written(sharded: weir.Table) -> None:
    sharded.upsert([{"id": 1, "n": 1}])
    under_way = WriteUnderWay(sharded, 2, 3)
    with weir.open(sharded.uri, fsync=False).writer(takeover=True) as other:
        other.upsert([{"id": 1, "n": 2}])
        with pytest.raises(FencedError):
            sharded.upsert([{"id": 1, "n": 3}], lease_wait=0)
    # A shard that the first writer holds until it is closed.
    following = threading.Thread(target=lambda: sharded.upsert([{"id": 2, "n": 4}], lease_wait=0))
    following.start()
    under_way.end()
    following.join()
    assert rows(sharded) == {1: 2, 2: 4, 3: 0}

"""Two writers of one shard, each with a way of its own to the store, of which one is cut."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

import weir
from tests.faults.proxy import Proxy, proxied
from tests.storage.s3 import S3Endpoint, s3_endpoint
from weir.engine.context import default_context
from weir.errors import FencedError, LeaseHeldError, StorageError
from weir.write.table_writer import TableWriter

__all__ = ["s3_endpoint"]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])


class Two:
    """The same table by two ways."""

    def __init__(self, endpoint: S3Endpoint, first: Proxy, second: Proxy) -> None:
        self.ways = (first, second)
        self._uri = endpoint.new_uri()
        self._options = endpoint.options
        weir.create(self._uri, SCHEMA, primary_key="id", storage_options=endpoint.options)
        self.first = weir.open(self._uri, storage_options=first.options)
        self.second = weir.open(self._uri, storage_options=second.options)

    def rows(self) -> dict[int, str]:
        default_context().cache.clear()
        found = weir.open(self._uri, storage_options=self._options).scan().to_table()
        assert len(set(found.column("id").to_pylist())) == found.num_rows
        return dict(zip(found.column("id").to_pylist(), found.column("name").to_pylist(), strict=True))


@pytest.fixture
def two(s3_endpoint: S3Endpoint) -> Iterator[Two]:
    with proxied(s3_endpoint) as first, proxied(s3_endpoint) as second:
        yield Two(s3_endpoint, first, second)


def stop_renewing(writer: TableWriter) -> None:
    """Let its leases run out, as those of a process that is cut off or dead do."""
    for held in writer._shards._held.values():
        held.heartbeat.stop()


def row(number: int, name: str) -> list[dict[str, object]]:
    return [{"id": number, "name": name}]


def test_a_writer_that_is_cut_off_is_fenced_when_it_comes_back(two: Two) -> None:
    writer = two.first.writer(max_memtable_rows=1000)
    writer.upsert(row(1, "before"))
    two.ways[0].partition()
    with pytest.raises(StorageError):
        writer.upsert(row(2, "nobody hears this"))
    with pytest.raises(LeaseHeldError):
        two.second.writer().upsert(row(3, "polite"))
    with two.second.writer(takeover=True) as other:
        other.upsert(row(3, "taken over"))
        two.ways[0].heal()
        with pytest.raises(FencedError):
            writer.upsert(row(4, "late"))
        with pytest.raises(FencedError):
            writer.flush()
        other.upsert(row(5, "after"))
    writer.close()
    assert two.rows() == {1: "before", 3: "taken over", 5: "after"}


def test_a_write_that_is_under_way_while_the_shard_is_taken_over_is_refused(two: Two) -> None:
    writer = two.first.writer()
    writer.upsert(row(1, "before"))
    with two.ways[0].holding(r"/wal/") as arrived:
        future = writer.upsert(row(2, "under way"), wait=False)
        assert arrived.wait(30)
        with two.second.writer(takeover=True, flush_on_close=False) as other:
            other.upsert(row(3, "taken over"))
    with pytest.raises(FencedError):
        future.result(60)
    assert two.rows() == {1: "before", 3: "taken over"}
    stop_renewing(writer)


def test_a_write_that_arrives_before_the_fence_is_replayed_by_the_claim(two: Two) -> None:
    writer = two.first.writer()
    writer.upsert(row(1, "before"))
    claimed: list[TableWriter] = []

    def claim() -> None:
        other = two.second.writer(takeover=True)
        other.upsert(row(3, "taken over"))
        claimed.append(other)

    with two.ways[1].holding(r"/wal/") as arrived:
        thread = threading.Thread(target=claim)
        thread.start()
        assert arrived.wait(30), "the fence entry is on its way, the epoch is published"
        receipt = writer.upsert(row(2, "just in time"))
    thread.join(60)
    (other,) = claimed
    with pytest.raises(FencedError):
        writer.upsert(row(2, "late"))
    stop_renewing(writer)
    other.flush()
    other.close()
    assert two.rows() == {1: "before", 2: "just in time", 3: "taken over"}
    assert list(receipt.positions.values()) == [3]


def test_a_flush_that_is_under_way_while_the_shard_is_taken_over_lists_nothing(two: Two) -> None:
    writer = two.first.writer()
    writer.upsert(row(1, "before"))
    failed: list[BaseException] = []

    def flush() -> None:
        try:
            writer.flush()
        except FencedError as error:
            failed.append(error)

    with two.ways[0].holding(r"/manifest/[01]+\.binpb") as arrived:
        thread = threading.Thread(target=flush)
        thread.start()
        assert arrived.wait(30)
        with two.second.writer(takeover=True) as other:
            other.upsert(row(1, "taken over"))
    thread.join(60)
    assert len(failed) == 1
    stop_renewing(writer)
    assert two.rows() == {1: "taken over"}
    assert two.second.maintenance.merge().generations == 1
    assert two.rows() == {1: "taken over"}


def test_two_writers_that_keep_taking_over_from_each_other_lose_nothing(two: Two) -> None:
    """Each is cut off in turns, in the middle of what it does."""
    expected: dict[int, str] = {}
    for turn in range(4):
        table, way = ((two.first, two.ways[0]), (two.second, two.ways[1]))[turn % 2]
        way.heal()
        writer = table.writer(takeover=True, flush_on_close=False)
        writer.upsert(row(turn, f"turn {turn}"))
        expected[turn] = f"turn {turn}"
        way.partition()
        with pytest.raises(StorageError):
            writer.upsert(row(turn, "cut off"))
        stop_renewing(writer)
    assert two.rows() == expected

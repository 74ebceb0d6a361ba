"""What is found while a table is opened is where its first read begins, and nothing that it relies on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from uuid import UUID

import pyarrow as pa
import pytest
from tests.storage.s3 import S3Endpoint, s3_endpoint

import weir
from weir.errors import CorruptionError
from weir.format.lancedb_shards import UNSHARDED
from weir.format.layout import wal_path
from weir.format.shard_manifest import ShardManifest
from weir.log.recorded_position import recorded_position
from weir.log.wal import PositionedEntry, Wal
from weir.snapshots import shard_view
from weir.storage.interface import ObjectStore

__all__ = ["s3_endpoint"]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])


class Case:
    """A table with ten rows in its log, its writer, and whoever opens it elsewhere."""

    def __init__(self, endpoint: S3Endpoint) -> None:
        self.uri, self.options = endpoint.new_uri(), endpoint.options
        self.table = self.made()
        self.writer = self.table.writer(flush_on_close=False)
        self.write(0)

    def made(self) -> weir.Table:
        return weir.create(self.uri, SCHEMA, primary_key="id", storage_options=self.options)

    def write(self, start: int) -> None:
        self.writer.upsert([{"id": id, "n": id} for id in range(start, start + 10)])

    def elsewhere(self) -> weir.Table:
        return weir.open(self.uri, storage_options=self.options, engine=weir.Engine(maintenance="off"))


@pytest.fixture
def case(s3_endpoint: S3Endpoint) -> Iterator[Case]:
    made = Case(s3_endpoint)
    yield made
    made.writer.close()


def collect(case: Case) -> None:
    for _ in range(2):
        case.table.maintenance.collect_garbage(horizon=timedelta(0))


def flush_and_merge(case: Case) -> None:
    case.writer.flush()
    case.table.maintenance.merge()
    collect(case)


def flush_twice(case: Case) -> None:
    case.writer.flush()
    case.write(100)
    case.writer.flush()


def make_anew(case: Case) -> None:
    """Another table comes to the place, with the same shard and versions of the same numbers."""
    case.writer.close()
    weir.drop(case.uri, storage_options=case.options)
    case.table = case.made()
    case.writer = case.table.writer(flush_on_close=False)
    case.write(500)


@pytest.mark.parametrize(
    ("between", "ids"),
    [
        (lambda case: None, [*range(10)]),
        (lambda case: [case.write(10 * n) for n in range(1, 13)], [*range(130)]),
        (lambda case: case.writer.flush(), [*range(10)]),
        (flush_twice, [*range(10), *range(100, 110)]),
        (flush_and_merge, [*range(10)]),
        (make_anew, [*range(500, 510)]),
    ],
    ids=["nothing", "a long log", "a flush", "two flushes", "a merge and two collections", "another table"],
)
def test_what_comes_between_opening_and_reading_is_seen(
    case: Case, between: Callable[[Case], object], ids: list[int]
) -> None:
    reader = case.elsewhere()
    between(case)
    assert sorted(reader.scan(["id"]).to_table().column("id").to_pylist()) == ids


def test_what_the_lease_has_come_to_know_after_the_log_was_read_is_read(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    was_read = threading.Event()
    read_tail = Wal.read_tail

    def read(self: Wal, manifest: ShardManifest, *, reached: int = 0) -> Iterator[PositionedEntry]:
        found = list(read_tail(self, manifest, reached=reached))
        was_read.set()
        return iter(found)

    def asked_last(store: ObjectStore, shard_id: UUID) -> int:
        assert was_read.wait(20)
        if not closed:
            closed.append(True)
            case.write(10)
            case.writer.close()
        return recorded_position(store, shard_id)

    closed: list[bool] = []
    reader = case.elsewhere()
    monkeypatch.setattr(Wal, "read_tail", read)
    monkeypatch.setattr(shard_view, "recorded_position", asked_last)
    assert reader.scan().count() == 20
    assert closed


def test_an_entry_that_is_gone_is_missed(case: Case) -> None:
    case.write(10)
    case.writer.close()
    reader = case.elsewhere()
    store: ObjectStore = case.table.internals.store
    store.delete([wal_path(UNSHARDED, 3)])
    with pytest.raises(CorruptionError, match="no entry at position 3"):
        reader.scan().count()

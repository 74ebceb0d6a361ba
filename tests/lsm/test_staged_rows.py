"""Generations that were published beside the log, as the change feed and reads at a token see them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from uuid import UUID

import lance
import pyarrow as pa
import pytest
from tests.maintenance.garbage.garbage_kit import HORIZON, Clock, collect, collect_fully, stored
from tests.write.flush.test_staged_generations import SCHEMA, published, staged, the_shard, the_values

import weir
from weir.base.table import BaseTable
from weir.changes.feed import EARLIEST, ChangeBatch
from weir.engine.context import default_context
from weir.errors import SnapshotExpiredError, StorageError
from weir.format import layout
from weir.format.shard_manifest import ShardManifest
from weir.format.snapshot_token import SnapshotToken
from weir.snapshots.capture import SnapshotCapture
from weir.storage.counting import CountingStore
from weir.storage.interface import Bytes
from weir.table.table import Table

State = dict[int, str]


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    return weir.create(
        tmp_path / "table", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 1), fsync=False
    )


def write(table: weir.Table, *pairs: tuple[int, str], flush: bool = False) -> None:
    with table.writer(flush_on_close=flush) as writer:
        for key, value in pairs:
            writer.upsert([{"id": key, "value": value}])


def state(rows: pa.Table) -> State:
    return dict(zip(rows["id"].to_pylist(), rows["value"].to_pylist(), strict=True))


def applied(batch: ChangeBatch, before: State) -> State:
    """Check what a batch says was there before each of its changes, and return what is there after them."""
    after = dict(before)
    for row in batch.rows.to_pylist():
        known = {"id": row["id"], "value": after[row["id"]]} if row["id"] in after else None
        assert row["_before"] == known
        if row["_op"] == "delete":
            after.pop(row["id"])
        else:
            after[row["id"]] = row["value"]
    return after


def places(
    table: weir.Table, since: SnapshotToken | str, before: State
) -> Iterator[tuple[SnapshotToken, State]]:
    """Yield every place of a feed and what the table is there."""
    for batch in table.changes(since=since, before=True, batch_rows=1):
        before = applied(batch, before)
        yield batch.token, before


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("is_flushed", "services"), [(True, "none"), (False, "a merge"), (False, "a flush and a merge")]
)
def test_a_place_behind_a_publication_has_what_was_published(
    table: weir.Table, is_flushed: bool, services: str
) -> None:
    write(table, (1, "log"), (2, "log"), (3, "log"), flush=is_flushed)
    begin = table.snapshot()
    assert not published(table, staged(table, (1, "a"), (2, None)), staged(table, (1, "b"), (4, "b")))
    write(table, (1, "later"), (2, "later"), (4, "later"))
    if services == "a flush and a merge":
        write(table, (3, "flushed"), flush=True)
    if services != "none":
        table.maintenance.merge()
    expected = state(table.scan().to_table())
    seen = list(places(table, begin, {1: "log", 2: "log", 3: "log"}))
    assert seen[-1][1] == expected
    for place, there in seen:
        # A process that has seen nothing of it, and one that remembers the tail.
        for reader in (weir.open(table.uri), table):
            assert state(reader.scan(at=place).to_table()) == there
            found = reader.get([1, 2, 3, 4], at=place)
            assert state(found) == there
            *_, last = [there, *(after for _, after in places(reader, place, there))]
            assert last == expected


def test_what_is_remembered_of_a_tail_is_not_taken_for_one_with_published_rows(table: weir.Table) -> None:
    with table.writer(flush_on_close=False) as writer:
        writer.upsert([{"id": key, "value": "log"} for key in (1, 2)])
        writer.flush()
        table.maintenance.merge()
        begin = table.snapshot()
        writer.publish_routed([(the_values(table), [staged(table, (1, "a"), (2, None), (3, "a"))])])
        writer.upsert([{"id": 1, "value": "later"}])
        table.maintenance.merge()
        # The same log entries, on a base table that has what was published, and on one that has not.
        newest = state(table.scan().to_table())
        for place, there in places(table, begin, {1: "log", 2: "log"}):
            assert state(table.scan(at=place).to_table()) == there
            assert state(table.get([1, 2, 3], at=place)) == there
        assert there == newest == {1: "later", 3: "a"}
        assert state(table.scan().to_table()) == newest


def test_the_state_right_before_a_publication_lacks_it(table: weir.Table) -> None:
    """The manifest that lists it covers no more of the log than the one before."""
    write(table, (1, "log"), (2, "log"))
    with table.writer(max_memtable_entries=1) as writer:
        writer.publish_routed([(the_values(table), [staged(table, (1, "a"), (2, None), (3, "a"))])])
        before = table.internals.store.list(layout.wal_directory(the_shard(table)))
        positions = sorted(layout.parse_wal_name(one.path.rsplit("/", 1)[-1]) for one in before)
        table.maintenance.merge()
        # As garbage collection leaves it when what comes before has been merged.
        gone = positions[:-1]
        table.internals.store.delete([layout.wal_path(the_shard(table), one) for one in gone])
        writer.upsert([{"id": 2, "value": "later"}])
        (first, *_) = places(table, EARLIEST, {1: "log", 2: "log"})
        *_, (_, last) = places(table, EARLIEST, {1: "log", 2: "log"})
        assert first[1] == {1: "a", 3: "a"}
        assert last == {1: "a", 2: "later", 3: "a"}


class CollectedStore(CountingStore):
    """Does something once, right after the files of a staged generation were found to be there."""

    then: Callable[[], object] | None = None

    def list_directories(self, path: str) -> Sequence[str]:
        found = super().list_directories(path)
        if layout.is_staged_name(path.rsplit("/", 1)[-1]) and self.then is not None:
            then, self.then = self.then, None
            then()
        return found


def test_a_generation_that_is_collected_while_the_feed_reads_it_is_not_damaged(table: weir.Table) -> None:
    assert not published(table, staged(table, (1, "a")))
    table.maintenance.merge()
    store = CollectedStore(table.internals.store)
    feed = Table(store, BaseTable.open(store)).changes(since=EARLIEST)
    store.then = lambda: collect_fully(table, Clock())
    with pytest.raises(SnapshotExpiredError, match="changes can no longer be read"):
        list(feed)
    assert store.then is None


def test_a_generation_that_is_collected_while_a_place_is_read_is_not_damaged(table: weir.Table) -> None:
    begin = table.snapshot(retain=None)
    write(table, (1, "log"))
    assert not published(table, staged(table, (1, "a")))
    write(table, (2, "later"))
    *_, place = (place for place, _ in places(table, begin, {}))
    table.maintenance.merge()
    default_context().cache.clear()
    store = CollectedStore(table.internals.store)
    reader = Table(store, BaseTable.open(store))
    store.then = lambda: collect_fully(table, Clock())
    with pytest.raises(SnapshotExpiredError, match="snapshot can no longer be read"):
        reader.scan(at=place).to_table()
    assert store.then is None


def test_a_store_that_fails_is_not_taken_for_a_damaged_generation(
    table: weir.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not published(table, staged(table, (1, "a")))

    def fail(*_: object, **__: object) -> None:
        raise OSError("LanceError(IO): error sending request: connection reset by peer")

    with monkeypatch.context() as patch:
        patch.setattr(lance, "dataset", fail)
        with pytest.raises(StorageError, match="connection reset") as caught:
            list(table.changes(since=EARLIEST))
        assert "staged_" in str(caught.value.where)
    assert [change.rows.num_rows for change in table.changes(since=EARLIEST)] == [1]


def test_a_cut_lists_what_is_published_between_its_looks_at_manifest_and_log(
    table: weir.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(table, (1, "log"))
    cuts = SnapshotCapture(table.internals.store, BaseTable.open(table.internals.store))
    take_state, pieces = cuts._state, [staged(table, (1, "a"), (2, "a"))]

    def state_before_the_publication() -> tuple[BaseTable, dict[UUID, ShardManifest]]:
        found = take_state()
        if pieces:
            published(table, pieces.pop())
        return found

    monkeypatch.setattr(cuts, "_state", state_before_the_publication)
    cut = cuts.take()
    (manifest,) = cut.manifests.values()
    assert [one.published_after for one in manifest.flushed_generations[1:]] == [
        manifest.replay_after_wal_entry_position
    ]
    assert cut.positions[manifest.shard_id] > manifest.replay_after_wal_entry_position
    assert state(table.scan(at=cut.token()).to_table()) == {1: "a", 2: "a"}


class InterruptedStore(CountingStore):
    """Does something once, right before the log is read for the first time."""

    before_log: Callable[[], object] | None = None

    def get(self, path: str) -> Bytes:
        if "/wal/" in path and self.before_log is not None:
            then, self.before_log = self.before_log, None
            then()
        return super().get(path)


@pytest.mark.parametrize("goes_on", [False, True])
def test_what_is_published_while_a_reader_opens_a_shard_is_shown(table: weir.Table, goes_on: bool) -> None:
    """Between its look at the manifest and the one at the log."""
    write(table, (1, "log"))

    def publish() -> None:
        assert not published(table, staged(table, (1, "a"), (2, "a")))
        if goes_on:
            # The manifest that is looked at again covers more than the log that was read has.
            write(table, (3, "later"), flush=True)
            assert not published(table, staged(table, (2, "b")))

    store = InterruptedStore(table.internals.store)
    store.before_log = publish
    found = state(Table(store, BaseTable.open(store)).scan().to_table())
    assert store.before_log is None
    assert found == state(weir.open(table.uri).scan().to_table())
    assert found == ({1: "a", 2: "b", 3: "later"} if goes_on else {1: "a", 2: "a"})


@pytest.mark.parametrize("flushes", [False, True])
def test_the_earliest_change_comes_after_rows_that_are_collected(table: weir.Table, flushes: bool) -> None:
    """The entry that names them outlives them until something later is merged."""
    write(table, (1, "log"))
    assert not published(table, staged(table, (1, "a"), (2, "a")))
    table.maintenance.merge()
    write(table, (1, "later"), flush=flushes)
    clock = Clock()
    clock.advance(HORIZON)
    for _ in range(2):
        # Off the list, and then gone.
        collect(table, clock)
        clock.advance(HORIZON)
        for before in (False, True):
            feed = table.changes(since=EARLIEST, before=before)
            rows = [row for batch in feed for row in batch.rows.to_pylist()]
            assert [(row["id"], row["value"]) for row in rows] == [(1, "later")]
            assert not before or rows[0]["_before"] == {"id": 1, "value": "a"}
    assert not [
        name for name in stored(table.internals.store, the_shard(table))[2] if layout.is_staged_name(name)
    ]


def test_the_earliest_change_may_be_one_that_was_published(table: weir.Table) -> None:
    write(table, (1, "log"), flush=True)
    table.maintenance.merge()
    collect_fully(table, Clock())
    assert not published(table, staged(table, (1, "a"), (2, "a")))
    rows = [row for batch in table.changes(since=EARLIEST) for row in batch.rows.to_pylist()]
    assert [(row["id"], row["value"]) for row in rows] == [(1, "a"), (2, "a")]


def swapped(table: Table) -> None:
    weir.open(table.uri).alter(rename={"a": "b", "b": "a"})


def swapped_by_lance(table: Table) -> None:
    for old, new in (("a", "t"), ("b", "a"), ("t", "b")):
        lance.dataset(table.uri).alter_columns({"path": old, "name": new})  # type: ignore[dict-item]


def dropped_and_added(table: Table) -> None:
    lance.dataset(table.uri).drop_columns(["b"])
    lance.dataset(table.uri).add_columns(pa.field("b", pa.int32()))


def widened(table: Table) -> None:
    weir.open(table.uri).alter(widen={"b": pa.int64()})


@pytest.mark.parametrize("published_first", [True, False])
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (swapped, {"id": 1, "b": 5, "a": 6}),
        (swapped_by_lance, {"id": 1, "b": 5, "a": 6}),
        (dropped_and_added, {"id": 1, "a": 5, "b": None}),
        (widened, {"id": 1, "a": 5, "b": 6}),
    ],
)
def test_values_stay_with_their_columns(
    tmp_path: Path, change: Callable[[Table], None], expected: dict[str, object], published_first: bool
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("a", pa.int32()), ("b", pa.int32())])
    table = weir.create(tmp_path / "t", schema, primary_key="id", shard_by=weir.bucket("id", 1), fsync=False)
    table.upsert([{"id": 1, "a": 1, "b": 2}])
    reader = weir.open(table.uri)
    token = reader.snapshot()
    rows = pa.Table.from_pylist(
        [{"id": 1, "a": 5, "b": 6, "_tombstone": False}], schema=table.internals.row_schema
    )
    (values,) = table.internals.router.partition(rows).values
    piece = table.internals.stage(values, rows, spec_id=1)
    if not published_first:
        change(table)
    with table.writer() as writer:
        writer.publish_routed([(values, [piece])])
    if published_first:
        change(table)
    for one in (reader, weir.open(table.uri)):
        assert one.scan().to_table().to_pylist() == [expected]
    changes = [row for batch in reader.changes(since=token) for row in batch.rows.to_pylist()]
    assert [{name: row[name] for name in expected} for row in changes] == [expected]
    reader.maintenance.merge()
    assert lance.dataset(table.uri).to_table().to_pylist() == [expected]
    assert not reader.maintenance.verify().findings

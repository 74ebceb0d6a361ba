"""What is collected and when, on real tables."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pytest
from lance.mem_wal import LsmScanner, ShardSnapshot
from tests.conformance import library
from tests.maintenance.garbage.garbage_kit import (
    HORIZON,
    Clock,
    collect,
    collect_fully,
    create,
    everything,
    kinds,
    rows,
    stored,
    the_shard,
    write,
)

import weir
from weir.base.details_commit import update_details
from weir.base.published import publish_shards
from weir.base.table import BaseTable
from weir.base.versions import list_versions
from weir.engine import failpoint
from weir.engine.context import default_context
from weir.errors import CorruptionError, OptionError, SnapshotExpiredError
from weir.format import layout, snapshot_pin
from weir.format.garbage_marks import MARKS, ShardMarks, Swept
from weir.format.snapshot_pin import SnapshotPin, pin_path
from weir.log.manifest_store import read_latest_manifest
from weir.maintenance.garbage.garbage import DEFAULT_FENCE_HORIZON
from weir.snapshots.swept import read_marks
from weir.storage.local import LocalStore

MOMENT = timedelta(seconds=1)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    return create(tmp_path)


def test_first_marks_then_deletes_after_the_horizon(table: weir.Table, clock: Clock) -> None:
    for n in range(3):
        write(table, 1, 2, value=f"round {n}")
    table.maintenance.merge()
    shard, store = the_shard(table), table.internals.store
    before = stored(store, shard)
    assert [len(one) for one in before] == [6, 6, 3]

    clock.advance(HORIZON)
    first = collect(table, clock)
    assert not kinds(first, deleted=True)
    # Off the list, so that nobody looks for them; there for those who already do.
    latest = read_latest_manifest(store, shard)
    assert latest is not None
    assert latest.flushed_generations == ()
    assert stored(store, shard)[2] == before[2]

    clock.advance(HORIZON - MOMENT)
    assert not kinds(collect(table, clock), deleted=True)
    clock.advance(MOMENT)
    second = collect(table, clock)
    assert kinds(second, deleted=True) == {"generation": 24, "log entries": 3, "shard manifests": 4}
    log, manifests, directories = stored(store, shard)
    # The fence entry of each claim, and the manifests that say up to where the log was covered.
    assert log == [1, 3, 5]
    assert manifests == [5, 6, 7]
    assert directories == []
    assert rows(table) == {1: "round 2", 2: "round 2"}
    assert rows(weir.open(table.uri)) == {1: "round 2", 2: "round 2"}
    # Nothing waits; what was deleted nobody may count on.
    assert read_marks(store).of(shard) == ShardMarks(swept=Swept(log=6, manifests=4))
    clock.advance(HORIZON)
    assert collect(table, clock).items == ()


def test_what_is_merged_stays_listed_for_whoever_opened_the_table_before(
    table: weir.Table, clock: Clock
) -> None:
    """The library reads a version beside what the newest manifests list."""
    write(table, 1, 2, value="old")
    table.maintenance.merge()
    write(table, 1, 3, value="new")
    opened = lance.dataset(table.uri)
    table.maintenance.merge()
    clock.advance(HORIZON - 10 * MOMENT)
    kept = [one.name for one in collect(table, clock).kept if one.reason.startswith("merged less than")]
    assert [name[:12] for name in kept] == ["generation 1", "generation 2"]
    shard, place = the_shard(table), Path(table.uri)
    (_, second) = library.manifest_of(place, shard).flushed_generations
    beside = ShardSnapshot(str(shard)).with_current_generation(3).with_sstable(2, second.path)
    found = LsmScanner.from_snapshots(opened, [beside]).to_table().to_pylist()
    assert {row["id"]: row["value"] for row in found} == {1: "new", 2: "old", 3: "new"} == rows(table)
    clock.advance(10 * MOMENT)
    collect(table, clock)
    assert library.manifest_of(place, shard).flushed_generations == ()
    assert rows(table) == {1: "new", 2: "old", 3: "new"}


def test_dry_run_says_what_and_why_and_writes_nothing(table: weir.Table, clock: Clock) -> None:
    write(table, 1, 2)
    table.maintenance.merge()
    write(table, 3)
    clock.advance(HORIZON)
    before = everything(table.internals.store)
    planned = collect(table, clock, dry_run=True)
    assert everything(table.internals.store) == before
    collect(table, clock)
    clock.advance(HORIZON)
    marked = everything(table.internals.store)
    due = collect(table, clock, dry_run=True)
    assert everything(table.internals.store) == marked
    done = collect(table, clock)
    assert done.items == due.items
    assert {(one.kind, one.name, one.reason) for one in planned.items} == {
        (one.kind, one.name, one.reason) for one in done.items
    }
    assert kinds(done, deleted=True) == kinds(planned, deleted=False)
    assert planned.waiting_bytes == done.deleted_bytes > 0
    plain = done.to_dict()
    assert plain["deleted_objects"] == done.deleted_objects
    assert {one["reason"] for one in plain["items"]} == {
        "merged, and no manifest lists it",
        "covered by generations that are merged, up to position 2",
    }
    assert rows(table) == {1: "x", 2: "x", 3: "x"}


def test_what_is_not_merged_stays(table: weir.Table, clock: Clock) -> None:
    write(table, 1)
    table.maintenance.merge()
    write(table, 2)
    write(table, 3, flush=False)
    shard, store = the_shard(table), table.internals.store
    *_, before = stored(store, shard)
    collect_fully(table, clock)
    log, _, directories = stored(store, shard)
    assert set(directories) < set(before)
    assert len(directories) == 1
    assert log == [1, 3, 4, 5, 6]
    assert rows(weir.open(table.uri)) == {1: "x", 2: "x", 3: "x"}
    table.maintenance.merge()
    with table.writer() as writer:
        writer.upsert([{"id": 4, "value": "x"}])
    table.maintenance.merge()
    collect_fully(table, clock)
    assert stored(store, shard)[2] == []
    assert rows(weir.open(table.uri)) == {1: "x", 2: "x", 3: "x", 4: "x"}


def test_log_of_flushed_and_unmerged_generations_stays(table: weir.Table, clock: Clock) -> None:
    """A reader that has seen the log up to a position must not take 'collected' for 'not written yet'."""
    reader = weir.open(table.uri)
    write(table, 1, flush=False)
    assert rows(reader) == {1: "x"}
    write(table, 2)
    collect_fully(table, clock)
    assert stored(table.internals.store, the_shard(table))[0] == [1, 2, 3, 4]
    assert rows(reader) == {1: "x", 2: "x"}


def test_an_index_that_lags_holds_generations_back(table: weir.Table, clock: Clock) -> None:
    write(table, 1, 2)
    table.maintenance.merge()
    dataset = lance.dataset(table.uri)
    dataset.create_scalar_index("value", "BTREE")
    write(table, 2, 3)
    table.maintenance.merge()
    shard, store = the_shard(table), table.internals.store
    clock.advance(HORIZON)
    collect(table, clock)
    clock.advance(HORIZON)
    report = collect(table, clock)
    (kept,) = [one for one in report.kept if "generation" in one.name]
    assert kept.reason == "the index 'value_idx' has caught up with generation 1 only"
    assert len(stored(store, shard)[2]) == 1
    lance.dataset(table.uri).optimize.optimize_indices()
    collect_fully(table, clock)
    assert stored(store, shard)[2] == []


def test_an_index_that_is_not_maintained_holds_nothing_back(table: weir.Table, clock: Clock) -> None:
    update_details(
        table.internals.base,
        lambda details: replace(
            details, maintain_all_indexes=False, maintained_indexes=("id_idx", "not there")
        ),
    )
    write(table, 1)
    table.maintenance.merge()
    lance.dataset(table.uri).create_scalar_index("value", "BTREE")
    write(table, 2)
    table.maintenance.merge()
    collect_fully(table, clock)
    assert stored(table.internals.store, the_shard(table))[2] == []


def test_a_snapshot_holds_back_what_it_needs(table: weir.Table, clock: Clock) -> None:
    write(table, 1, value="old")
    write(table, 2, value="old", flush=False)
    token = table.snapshot(retain=timedelta(hours=2))
    loose = table.snapshot(retain=None)
    write(table, 1, 2, value="new")
    table.maintenance.merge()
    write(table, 1, value="newer")
    table.maintenance.merge()
    report = collect_fully(table, clock)
    assert {one.reason for one in report.kept} >= {f"needed by snapshot {token.pin}"}
    assert rows(table, at=token) == rows(table, at=loose) == {1: "old", 2: "old"}
    assert rows(weir.open(table.uri), at=str(token)) == {1: "old", 2: "old"}
    # What came after the token's generations is collected all the same.
    assert len(stored(table.internals.store, the_shard(table))[2]) == 1
    clock.advance(timedelta(hours=2))
    collect_fully(table, clock)
    assert stored(table.internals.store, the_shard(table))[2] == []
    assert [path for path in everything(table.internals.store) if path.startswith("_weir/snapshots/")] == []
    for lost in (token, loose):
        with pytest.raises(SnapshotExpiredError):
            rows(weir.open(table.uri), at=lost)
    assert rows(table) == {1: "newer", 2: "new"}


def test_a_snapshot_taken_after_the_mark_is_respected(table: weir.Table, clock: Clock) -> None:
    """Marked, then pinned: the roots are looked at again before anything is deleted."""
    write(table, 1)
    cut = table.snapshot(retain=None)
    table.maintenance.merge()
    collect(table, clock)
    # The pin of somebody who was slow between taking the cut and writing the pin.
    pinned = replace(cut, pin="0" * 32)
    table.internals.store.put(
        pin_path("0" * 32),
        snapshot_pin.encode(SnapshotPin(pinned, clock(), clock() + timedelta(hours=1))),
    )
    clock.advance(HORIZON)
    collect(table, clock)
    assert rows(weir.open(table.uri), at=pinned) == {1: "x"}
    # And it is not marked any more: the horizon begins again once the pin is gone.
    table.release(pinned)
    assert not kinds(collect(table, clock), deleted=True)
    clock.advance(HORIZON)
    assert kinds(collect(table, clock), deleted=True)["generation"] == 8


def test_a_consumer_holds_back_the_log(table: weir.Table, clock: Clock) -> None:
    write(table, 1)
    feed = table.changes(consumer="billing")
    write(table, 2)
    write(table, 3)
    table.maintenance.merge()
    collect_fully(table, clock)
    changes = [row for batch in feed for row in batch.rows.to_pylist()]
    assert sorted(row["id"] for row in changes) == [1, 2, 3]


def test_a_version_of_the_base_table_holds_back_what_it_lists(table: weir.Table, clock: Clock) -> None:
    write(table, 1)
    shard, store = the_shard(table), table.internals.store
    latest = read_latest_manifest(store, shard)
    assert latest is not None
    listing = publish_shards(BaseTable.open(store), [latest]).version
    table.maintenance.merge()
    report = collect_fully(table, clock)
    (kept,) = [one for one in report.kept if "generation" in one.name]
    assert kept.reason == f"listed by version {listing} of the base table"
    # Later versions of the base table list it too, and have merged it.
    lance.dataset(table.uri).cleanup_old_versions(versions=[listing])
    collect_fully(table, clock)
    assert stored(store, shard)[2] == []


def test_old_versions_of_the_base_table_are_removed_if_asked(table: weir.Table, clock: Clock) -> None:
    retention = timedelta(hours=1)
    for n in range(3):
        write(table, n)
        table.maintenance.merge()
    dataset = lance.dataset(table.uri)
    dataset.tags.create("keep", 3)
    first = [one["version"] for one in dataset.versions()]
    token = table.snapshot(retain=timedelta(days=1))
    clock.advance(timedelta(minutes=15))
    write(table, 3)
    table.maintenance.merge()
    shard, store = the_shard(table), table.internals.store
    collect_fully(table, clock, version_retention=retention)
    assert [one["version"] for one in lance.dataset(table.uri).versions()][: len(first)] == first
    # Retained with all that they lack: whoever has opened one of them can still read everything.
    assert len(stored(store, shard)[2]) == 4
    clock.advance(retention)
    assert collect(table, clock).former_versions == len(lance.dataset(table.uri).versions()) - 1
    collect_fully(table, clock, version_retention=retention)
    assert collect(table, clock).former_versions == 2
    left = [one["version"] for one in lance.dataset(table.uri).versions()]
    newest = lance.dataset(table.uri).version
    assert left == [3, token.base_version, newest]
    assert stored(store, shard)[2] == []
    assert rows(table) == {0: "x", 1: "x", 2: "x", 3: "x"}
    assert rows(table, at=token) == {0: "x", 1: "x", 2: "x"}


def test_versions_are_retained_as_long_as_they_were_the_newest(table: weir.Table, clock: Clock) -> None:
    """What counts is when a version was superseded, not how old it is."""
    write(table, 1)
    table.maintenance.merge()
    before = lance.dataset(table.uri).version
    clock.advance(timedelta(days=30))
    write(table, 2)
    table.maintenance.merge()
    # Committed just now by the clock of the store: the older ones were superseded a moment ago.
    collect(table, Clock(), version_retention=HORIZON)
    assert before in [one["version"] for one in lance.dataset(table.uri).versions()]


def test_what_a_failed_flush_left_is_collected_once_its_number_is_spent(
    table: weir.Table, clock: Clock
) -> None:
    writer = table.writer(takeover=True)
    writer.upsert([{"id": 1, "value": "x"}])
    with failpoint.armed("flush.before_manifest", "raise"), pytest.raises(failpoint.FailpointError):
        writer.flush()
    writer.__exit__(RuntimeError, RuntimeError(), None)
    shard, store = the_shard(table), table.internals.store
    (orphan,) = stored(store, shard)[2]
    # What Lance leaves behind when it is killed while it writes.
    store.put(f"{layout.generation_path(shard, orphan)}/data/.tmpX1", b"half a file")
    # What Lance leaves when it is killed while it publishes a manifest. No store would write such a name.
    versions = Path(table.uri) / layout.generation_path(shard, orphan) / "_versions"
    versions.mkdir(exist_ok=True)
    (versions / "18446744073709551614.manifest#1").touch()
    report = collect_fully(table, clock)
    assert stored(store, shard)[2] == [orphan]
    assert [one.reason for one in report.kept] == ["a flush may still publish it"]
    write(table, 2)
    report = collect_fully(table, clock)
    assert orphan not in stored(store, shard)[2]
    assert "left behind by a flush that failed" in {one.reason for one in report.items}
    assert not (Path(table.uri) / layout.generation_path(shard, orphan)).exists()
    assert rows(weir.open(table.uri)) == {1: "x", 2: "x"}


def test_a_flush_that_takes_longer_than_the_horizon_is_left_alone(table: weir.Table, clock: Clock) -> None:
    write(table, 1)
    table.maintenance.merge()
    collected: list[Any] = []

    class CollectsMeanwhile(LocalStore):
        def put_if_absent(self, path: str, data: Any) -> None:
            if path.endswith(".binpb") and collected:
                collected.pop()
                for _ in range(3):
                    clock.advance(HORIZON)
                    collect(table, clock)
            super().put_if_absent(path, data)

    slow = weir.Table(CollectsMeanwhile(table.uri, fsync=False), table.internals.base)
    with slow.writer(takeover=True) as writer:
        writer.upsert([{"id": 2, "value": "slow"}])
        collected.append(True)
        writer.flush()
        assert not collected
        writer.upsert([{"id": 3, "value": "after"}])
    assert rows(weir.open(table.uri)) == {1: "x", 2: "slow", 3: "after"}
    table.maintenance.merge()
    collect_fully(table, clock)
    assert rows(weir.open(table.uri)) == {1: "x", 2: "slow", 3: "after"}


def test_fence_entries_outlive_collection(table: weir.Table, clock: Clock) -> None:
    for n in range(4):
        write(table, n)
    table.maintenance.merge()
    shard, store = the_shard(table), table.internals.store
    collect_fully(table, clock)
    assert stored(store, shard)[0] == [1, 3, 5, 7]
    clock.advance(DEFAULT_FENCE_HORIZON)
    collect_fully(table, clock)
    # The newest stays: nobody knows how long the writer before it will sleep.
    assert stored(store, shard)[0] == [7]
    write(table, 9)
    assert stored(store, shard)[0] == [7, 9, 10]
    assert len(rows(weir.open(table.uri))) == 5


def test_storage_of_a_long_running_table_stays_bounded(tmp_path: Path, clock: Clock) -> None:
    table = create(tmp_path, shard_by=weir.bucket("id", 2))
    most: list[int] = []
    with table.writer(max_memtable_rows=20) as writer:
        for day in range(12):
            for n in range(6):
                writer.upsert([{"id": key, "value": f"{day} {n}"} for key in range(30)])
            writer.flush()
            table.maintenance.merge()
            clock.advance(timedelta(hours=8))
            collect(table, clock, version_retention=timedelta(hours=2))
            most.append(len(everything(table.internals.store)))
    assert rows(table) == dict.fromkeys(range(30), "11 5")
    assert max(most[6:]) <= max(most[3:6]) + 5
    collect_fully(table, clock, version_retention=timedelta(hours=2))
    clock.advance(timedelta(days=2))
    collect_fully(table, clock, version_retention=timedelta(hours=2))
    for shard in table.status().shards:
        log, manifests, directories = stored(table.internals.store, shard.shard_id)
        assert (len(log), directories) == (1, [])
        assert len(manifests) <= 3


def test_old_pins_go_and_others_stay(table: weir.Table, clock: Clock) -> None:
    write(table, 1)
    short = table.snapshot(retain=timedelta(minutes=1))
    table.snapshot(retain=timedelta(days=1))
    clock.advance(HORIZON + timedelta(minutes=2))
    report = collect(table, clock)
    assert kinds(report, deleted=True) == {"expired pins": 1}
    (left,) = [path for path in everything(table.internals.store) if path.startswith("_weir/snapshots/")]
    assert str(short.pin) not in left


def test_times_come_from_the_store_by_default(table: weir.Table) -> None:
    write(table, 1)
    table.maintenance.merge()
    assert kinds(table.maintenance.collect_garbage(horizon=timedelta(0)), deleted=True) == {}
    assert kinds(table.maintenance.collect_garbage(horizon=timedelta(hours=1)), deleted=True) == {}
    seen: list[tuple[int, int]] = []
    report = table.maintenance.collect_garbage(
        horizon=timedelta(0), on_progress=lambda done, total: seen.append((done, total))
    )
    assert kinds(report, deleted=True)["generation"] == 8
    assert seen[0] == (1, 2)
    assert seen[-1] == (2, 2)
    assert rows(table) == {1: "x"}


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"horizon": timedelta(seconds=-1)}, "horizon"),
        ({"horizon": "15m"}, "horizon"),
        ({"horizon": timedelta.max}, "horizon"),
        ({"version_retention": timedelta.max}, "version_retention"),
        ({"version_retention": timedelta(minutes=1)}, "version_retention"),
    ],
)
def test_options_are_checked(table: weir.Table, options: dict[str, Any], where: str) -> None:
    with pytest.raises(OptionError) as caught:
        table.maintenance.collect_garbage(**options)
    assert caught.value.where == where


def test_a_damaged_pin_stops_collection(table: weir.Table, clock: Clock) -> None:
    """Nobody knows what it needs."""
    write(table, 1)
    token = table.snapshot()
    table.maintenance.merge()
    path = f"_weir/snapshots/{token.pin}.json"
    table.internals.store.put(path, bytes(table.internals.store.get(path)).replace(b"w5.", b"w9."))
    before = everything(table.internals.store)
    with pytest.raises(CorruptionError, match="snapshots"):
        collect(table, clock)
    assert everything(table.internals.store) == before


def test_damaged_marks_stop_collection_and_may_be_deleted(table: weir.Table, clock: Clock) -> None:
    write(table, 1)
    table.maintenance.merge()
    collect(table, clock)
    table.internals.store.put(MARKS, b"{}")
    clock.advance(HORIZON)
    with pytest.raises(CorruptionError, match=r"marks\.json"):
        collect(table, clock)
    table.internals.store.delete([MARKS])
    assert not kinds(collect(table, clock), deleted=True)
    clock.advance(HORIZON)
    assert kinds(collect(table, clock), deleted=True)["generation"] == 8


def test_objects_of_others_are_left_alone(table: weir.Table, clock: Clock) -> None:
    write(table, 1)
    table.maintenance.merge()
    shard, store = the_shard(table), table.internals.store
    own = [f"{layout.shard_directory(shard)}/{name}" for name in ("notes.txt", "wal/readme", "mine/a")]
    for path in own:
        store.put(path, b"not Weir's")
    collect_fully(table, clock)
    clock.advance(DEFAULT_FENCE_HORIZON)
    collect_fully(table, clock)
    assert set(own) <= set(everything(store))


def test_lance_may_remove_old_versions_at_any_time(table: weir.Table, clock: Clock) -> None:
    """What ``cleanup_old_versions`` of the library takes away is what it has of its own: nothing of ours."""
    write(table, 1, value="old")
    table.maintenance.merge()
    pinned = table.snapshot(retain=timedelta(hours=1))
    write(table, 1, 2, value="new")
    table.maintenance.merge()
    write(table, 2, value="unmerged")
    write(table, 3, value="in the log", flush=False)
    expected = {1: "new", 2: "unmerged", 3: "in the log"}
    ours = {path for path in everything(table.internals.store) if path.startswith(("_mem_wal/", "_weir/"))}
    clock.advance(HORIZON)
    collect(table, clock)
    lance.dataset(table.uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    left = everything(table.internals.store)
    assert ours <= set(left)
    assert rows(weir.open(table.uri)) == rows(table) == expected
    # A pin holds back this collection; it does not hold back the library.
    with pytest.raises(SnapshotExpiredError, match="of the base table"):
        rows(weir.open(table.uri), at=pinned)
    clock.advance(HORIZON)
    report = collect(table, clock, version_retention=HORIZON)
    assert kinds(report, deleted=True)["generation"] > 0
    assert rows(weir.open(table.uri)) == rows(table) == expected
    table.maintenance.merge()
    assert rows(weir.open(table.uri), consistency="snapshot") == {1: "new", 2: "unmerged"}


def test_versions_that_go_while_they_are_looked_at(
    table: weir.Table, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(3):
        write(table, n)
        table.maintenance.merge()
    clock.advance(HORIZON)
    collect(table, clock)
    clock.advance(HORIZON)

    def then_cleaned_up(store: Any) -> Any:
        found = list_versions(store)
        lance.dataset(table.uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
        assert len(list_versions(store)) == 1
        return found

    default_context().cache.clear()
    monkeypatch.setattr("weir.maintenance.garbage.garbage.list_versions", then_cleaned_up)
    assert kinds(collect(table, clock), deleted=True)["generation"] == 24
    assert rows(weir.open(table.uri)) == {0: "x", 1: "x", 2: "x"}


def test_marks_made_by_a_clock_that_was_ahead_do_not_keep_garbage(table: weir.Table, clock: Clock) -> None:
    write(table, *range(10))
    table.maintenance.merge()
    clock.advance(timedelta(days=1000))
    assert kinds(collect(table, clock), deleted=False)
    clock.advance(timedelta(days=-1000))
    # The clock is right again; what is garbage still has waited no horizon yet.
    write(table, 11)
    table.maintenance.merge()
    assert not kinds(collect(table, clock), deleted=True)
    clock.advance(HORIZON - MOMENT)
    assert not kinds(collect(table, clock), deleted=True)
    clock.advance(HORIZON)
    deleted = kinds(collect(table, clock), deleted=True)
    assert set(deleted) >= {"generation", "log entries"}
    assert len(rows(table)) == 11

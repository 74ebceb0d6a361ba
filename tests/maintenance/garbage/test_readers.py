"""Readers that collection overtakes, at every place where it can (I5, I9, I12).

A reader sees every acknowledged write or says that collection has passed it, whatever it has in memory
and wherever it is held up.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from copy import copy
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pytest
from tests.maintenance.garbage.garbage_kit import (
    HORIZON,
    Clock,
    collect,
    collect_fully,
    create,
    rows,
    stored,
    the_shard,
    write,
)

import weir
from weir.base.table import BaseTable
from weir.base.versions import remove_versions
from weir.changes.feed import ChangeFeed
from weir.engine import failpoint
from weir.engine.context import default_context
from weir.errors import CorruptionError, SnapshotExpiredError
from weir.format import layout
from weir.lsm.generation import Generation
from weir.maintenance.garbage import garbage
from weir.maintenance.garbage.garbage import DEFAULT_FENCE_HORIZON
from weir.merge.commit import merge_runs
from weir.merge.plan import plan_merge
from weir.merge.rows import read_runs
from weir.storage.interface import Bytes, ObjectMeta
from weir.storage.local import LocalStore


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    made = create(tmp_path)
    write(made, 0, value="first")
    return made


class Interrupted(LocalStore):
    """Runs something in the middle of what a reader asks for."""

    def __init__(self, root: str) -> None:
        super().__init__(root, fsync=False)
        self.before: Callable[[str, str], bool] = lambda operation, path: False
        self.happen: Callable[[], None] = lambda: None
        self.happened = False

    def _interrupt(self, operation: str, path: str) -> None:
        if not self.happened and self.before(operation, path):
            self.happened = True
            self.happen()

    def get(self, path: str) -> Bytes:
        self._interrupt("get", path)
        return super().get(path)

    def head(self, path: str) -> ObjectMeta | None:
        self._interrupt("head", path)
        return super().head(path)

    def list_directories(self, prefix: str) -> Any:
        self._interrupt("list_directories", prefix)
        return super().list_directories(prefix)


def advance(table: weir.Table, clock: Clock, *, fences: bool) -> None:
    """Write, flush, merge and collect, so that nothing a reader knows of the shard is left."""
    for n in range(3):
        write(table, 0, 10 + n, value="newer")
    table.maintenance.merge()
    if fences:
        clock.advance(DEFAULT_FENCE_HORIZON)
    collect_fully(table, clock)


EXPECTED = {0: "newer", 10: "newer", 11: "newer", 12: "newer"}


@pytest.mark.covering
@pytest.mark.parametrize("fences", [False, True])
@pytest.mark.parametrize("flushed", [False, True])
def test_a_reader_that_has_rested(table: weir.Table, clock: Clock, flushed: bool, fences: bool) -> None:
    """What it remembers of the shard is gone, and so is what came after; its next probe finds nothing."""
    reader = weir.open(table.uri)
    write(table, 1, flush=flushed)
    assert rows(reader) == {0: "first", 1: "x"}
    advance(table, clock, fences=fences)
    assert rows(reader) == {**EXPECTED, 1: "x"}
    assert reader.get([0, 1, 12]).num_rows == 3
    write(table, 2, flush=False)
    assert rows(reader) == {**EXPECTED, 1: "x", 2: "x"}


class LooksBack:
    """Whether a manifest is asked for after a later one."""

    def __init__(self) -> None:
        self._last = 0

    def __call__(self, operation: str, path: str) -> bool:
        if operation != "get" or not path.endswith(".binpb"):
            return False
        before, self._last = self._last, layout.parse_manifest_name(path.rsplit("/", 1)[-1])
        return self._last < before


PLACES: dict[str, Callable[[str, str], bool]] = {
    "before the shards are listed": lambda operation, path: operation == "list_directories",
    "before the hint": lambda operation, path: path.endswith("version_hint.json"),
    "before a manifest": lambda operation, path: operation == "get" and path.endswith(".binpb"),
    "before the look back at a manifest": LooksBack(),
    "before the log is probed": lambda operation, path: operation == "get" and "/wal/" in path,
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("place", "warm"),
    [(place, warm) for place in PLACES for warm in (False, True) if not (warm and "hint" in place)],
)
def test_a_reader_that_is_held_up(table: weir.Table, clock: Clock, place: str, warm: bool) -> None:
    default_context().cache.clear()
    store = Interrupted(table.uri)
    reader = weir.Table(store, BaseTable.open(store))
    if warm:
        assert rows(reader) == {0: "first"}
        for known in reader.internals.reader.snapshots._shards.values():
            known._manifest_read_at -= 3600
    store.before = copy(PLACES[place])
    store.happen = lambda: advance(table, clock, fences=True)
    assert rows(reader) == EXPECTED
    assert store.happened
    assert rows(reader) == EXPECTED


@pytest.mark.parametrize("place", ["before the bloom filter", "before a generation is opened"])
def test_a_lookup_whose_generation_goes_while_it_looks(
    table: weir.Table, clock: Clock, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    default_context().cache.clear()
    store = Interrupted(table.uri)
    reader = weir.Table(store, BaseTable.open(store))
    if place == "before the bloom filter":
        store.before = lambda operation, path: path.endswith(layout.BLOOM_FILTER)
        store.happen = lambda: advance(table, clock, fences=True)
    else:
        opened = Generation._open

        def held_up(self: Generation) -> lance.LanceDataset:
            if not store.happened:
                store.happened = True
                advance(table, clock, fences=True)
            return opened(self)

        monkeypatch.setattr(Generation, "_open", held_up)
    found = reader.get([0, 12])
    assert store.happened
    assert found.column("value").to_pylist() == ["newer", "newer"]


def test_a_bounded_read_of_a_snapshot_that_is_older_than_the_horizon(table: weir.Table, clock: Clock) -> None:
    """Its snapshot, planned and opened, is a memory of files that are gone."""
    default_context().cache.clear()
    # So much that Lance has to go to the file for it.
    with table.writer(takeover=True) as writer:
        writer.upsert([{"id": key, "value": f"{key} {key**3}"} for key in range(1000, 100_000)])
    reader = weir.open(table.uri)
    old = "bounded(3600000)"
    assert reader.scan(["id"], consistency=old).count() == 99_001
    assert reader.scan(["id"], consistency=old).to_table().num_rows == 99_001
    advance(table, clock, fences=True)
    assert reader.scan(consistency=old).to_table().num_rows == 99_004
    assert reader.get([0, 12, 5000], consistency=old).column("value").to_pylist()[:2] == ["newer"] * 2
    assert reader.scan(consistency="snapshot").count() == 99_004


def test_a_scan_that_is_consumed_more_slowly_than_the_horizon(table: weir.Table, clock: Clock) -> None:
    """What has been given out cannot begin anew: the error says what happened, and what to do."""
    with table.writer(takeover=True) as writer:
        writer.upsert([{"id": key, "value": "x" * 100} for key in range(1, 200_000)])
    table.maintenance.merge()
    write(table, 0, value="second")
    scan = weir.open(table.uri).scan()
    batches = scan.to_batches()
    next(batches)
    for n in range(3):
        write(table, 0, 10 + n, value="newer")
    table.maintenance.merge()
    collect_fully(table, clock)
    with pytest.raises(SnapshotExpiredError, match="Read again"):
        sum(batch.num_rows for batch in batches)
    assert scan.count() == 200_000


def test_a_generation_that_is_really_lost_is_corruption(table: weir.Table) -> None:
    shard = the_shard(table)
    (directory,) = stored(table.internals.store, shard)[2]
    shutil.rmtree(Path(table.uri) / layout.generation_path(shard, directory))
    default_context().cache.clear()
    with pytest.raises(CorruptionError):
        rows(weir.open(table.uri))
    with pytest.raises(CorruptionError):
        weir.open(table.uri).get([0])


def test_a_merge_whose_generations_others_have_merged_and_collected(table: weir.Table, clock: Clock) -> None:
    write(table, 0, value="second")
    snapshot = table.internals.reader.take_newest()
    manifests = [view.manifest for view in snapshot.shards]
    tasks = plan_merge(table.internals.store, snapshot.base.details, manifests)
    store = Interrupted(table.uri)
    base = BaseTable.open(store)
    advance(table, clock, fences=True)
    held_up = [merge_runs([task], base=base) for task in tasks]
    assert [one.was_already_merged for one in held_up] == [True]
    assert rows(weir.open(table.uri)) == EXPECTED


def test_a_merge_that_finds_its_generations_gone_while_it_reads(
    table: weir.Table, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = table.internals.reader.take_newest()
    tasks = plan_merge(
        table.internals.store, snapshot.base.details, [view.manifest for view in snapshot.shards]
    )
    read = read_runs
    calls: list[int] = []

    def held_up(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            advance(table, clock, fences=True)
        return read(*arguments)

    monkeypatch.setattr("weir.merge.merge_insert.read_runs", held_up)
    monkeypatch.setattr("weir.merge.new_rows.read_runs", held_up)
    (result,) = [merge_runs([task]) for task in tasks]
    assert result.was_already_merged
    assert rows(weir.open(table.uri)) == EXPECTED


def test_snapshots_taken_beside_collections_show_one_state(table: weir.Table, clock: Clock) -> None:
    """A token's reader meets collections between every two of its steps."""
    for n in range(4):
        write(table, 0, value=f"round {n}")
        token = table.snapshot(retain=timedelta(days=30))
        table.maintenance.merge()
        clock.advance(DEFAULT_FENCE_HORIZON)
        collect_fully(table, clock)
        default_context().cache.clear()
        assert rows(weir.open(table.uri), at=token) == {0: f"round {n}"}


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("place", "before"),
    [
        ("garbage.before_mark", False),
        ("garbage.before_mark", True),
        ("removal", False),
        ("removal", True),
        ("garbage.before_delete", False),
    ],
)
def test_a_consumer_that_begins_beside_a_collection_loses_nothing(
    table: weir.Table, clock: Clock, monkeypatch: pytest.MonkeyPatch, place: str, before: bool
) -> None:
    """Whether the collection can still see it or not, what its first place needs stays, for good."""
    for n in range(3):
        write(table, n, value=f"round {n}")
        table.maintenance.merge()
    write(table, 7, value="later", flush=False)
    options: dict[str, Any] = {"version_retention": HORIZON}
    collect(table, clock, **options)
    clock.advance(HORIZON)
    begun: list[ChangeFeed] = []

    def begin(name: str) -> None:
        if name == place and not begun:
            other = weir.open(table.uri, fsync=False)
            begun.append(other.changes("earliest", consumer="late", before=before))

    def remove(*arguments: Any) -> int:
        begin("removal")
        return remove_versions(*arguments)

    monkeypatch.setattr(garbage, "remove_versions", remove)
    monkeypatch.setattr(failpoint, "reach", begin)
    report = collect(table, clock, **options)
    monkeypatch.undo()
    (feed,) = begun
    token = feed.token
    assert bool(report.deleted_objects) == (place != "garbage.before_mark")
    for _ in range(2):
        clock.advance(HORIZON)
        collect(table, clock, **options)
    default_context().cache.clear()
    again = weir.open(table.uri, fsync=False).changes(consumer="late", before=before)
    assert again.token == token
    changes = [row for batch in again for row in batch.rows.to_pylist()]
    assert (changes[-1]["id"], changes[-1]["value"]) == (7, "later")
    if place == "garbage.before_mark":
        assert len(changes) == 5 if not before else len(changes) > 1

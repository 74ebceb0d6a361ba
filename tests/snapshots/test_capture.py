"""Cuts are consistent across shards, whatever is written while they are taken.

Writes happen between any two looks at a log, at times that Hypothesis chooses. Each is done in an instant,
so every write that happened earlier, in whatever shard, may have been acknowledged to whoever made the
later one: a cut that has a write must have every earlier one.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given
from tests.snapshots.stores import HookedStore

import weir
from weir.base.table import BaseTable
from weir.errors import ConflictError
from weir.format import layout
from weir.format.shard_manifest import ShardManifest
from weir.log.manifest_store import commit_manifest, update_manifest
from weir.snapshots.capture import Cut, SnapshotCapture
from weir.storage.open import open_store

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
SHARDS = [UUID(int=number + 1, version=4) for number in range(4)]


class Log:
    """The logs of some shards, to which entries are added in an instant, and the order in which they were."""

    def __init__(self, store: HookedStore, shards: int) -> None:
        self.store = store
        self.ends: dict[UUID, int] = {}
        self.written: list[tuple[UUID, int]] = []
        for shard_id in SHARDS[:shards]:
            self.begin(shard_id)

    def begin(self, shard_id: UUID) -> None:
        assert (
            commit_manifest(self.store, ShardManifest(shard_id, version=1, writer_epoch=1), after=None)
            is not None
        )
        self.ends[shard_id] = 0

    def write(self, shard_id: UUID) -> None:
        self.ends[shard_id] += 1
        self.store.put_if_absent(layout.wal_path(shard_id, self.ends[shard_id]), b"")
        self.written.append((shard_id, self.ends[shard_id]))

    def check(self, cut: Cut, acknowledged: int) -> None:
        """Check a cut that was asked for when some writes had been acknowledged."""
        has = [position <= cut.positions.get(shard_id, 0) for shard_id, position in self.written]
        assert all(has[:acknowledged])
        assert has == sorted(has, reverse=True), "a later write is there and an earlier one is not"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


def new_table(tables: Path) -> tuple[HookedStore, BaseTable]:
    uri = tables / str(len(list(tables.iterdir())))
    base = BaseTable.open(
        open_store(weir.create(uri, SCHEMA, primary_key="id", fsync=False).uri, fsync=False)
    )
    return HookedStore(open_store(uri, fsync=False)), base


@given(
    shards=st.integers(1, 3),
    writes=st.lists(st.lists(st.integers(0, 3), max_size=3), max_size=24),
    before=st.lists(st.integers(0, 2), max_size=12),
)
def test_a_later_write_is_never_there_without_an_earlier_one(
    tables: Path, shards: int, writes: list[list[int]], before: list[int]
) -> None:
    store, base = new_table(tables)
    log = Log(store, shards)
    for number in before:
        log.write(SHARDS[number % shards])
    pending = [list(some) for some in writes]

    def write_some() -> None:
        if pending:
            store.after_probe = lambda: None
            for number in pending.pop(0):
                if number == 3 and len(log.ends) == shards:
                    log.begin(SHARDS[3])
                log.write(list(log.ends)[number % len(log.ends)])
            store.after_probe = write_some

    cuts = SnapshotCapture(store, base)
    for _ in range(2):
        acknowledged = len(log.written)
        store.after_probe = write_some
        cut = cuts.take()
        store.after_probe = lambda: None
        log.check(cut, acknowledged)


def test_one_look_at_every_log_is_not_enough(tables: Path) -> None:
    """What a cut would be that did not look twice; and that the check above notices."""
    store, base = new_table(tables)
    log = Log(store, 2)
    first, second = sorted(log.ends)

    def write_in_both() -> None:
        store.after_probe = lambda: None
        log.write(first)
        log.write(second)

    store.after_probe = write_in_both
    cut = SnapshotCapture(store, base).take(across_shards=False)
    assert [position <= cut.positions[shard_id] for shard_id, position in log.written] == [False, True]
    with pytest.raises(AssertionError, match="a later write is there"):
        log.check(cut, 0)
    store.after_probe = write_in_both
    log.check(SnapshotCapture(store, base).take(), 2)


def test_one_busy_shard_does_not_stand_in_the_way(tables: Path) -> None:
    store, base = new_table(tables)
    log = Log(store, 3)
    busy = SHARDS[1]

    def go_on() -> None:
        store.after_probe = lambda: None
        log.write(busy)
        store.after_probe = go_on

    store.after_probe = go_on
    cut = SnapshotCapture(store, base).take()
    store.after_probe = lambda: None
    log.check(cut, 0)
    assert cut.positions[busy] > 0


def test_writes_without_a_pause_in_several_shards_are_named(tables: Path) -> None:
    store, base = new_table(tables)
    log = Log(store, 3)

    def go_on() -> None:
        store.after_probe = lambda: None
        for shard_id in SHARDS[:2]:
            log.write(shard_id)
        store.after_probe = go_on

    store.after_probe = go_on
    with pytest.raises(ConflictError, match="2 shards were written to without a pause"):
        SnapshotCapture(store, base).take(max_seconds=0.05)
    cut = SnapshotCapture(store, base).take(across_shards=False)
    assert set(cut.positions) == set(SHARDS[:3])


@given(ends=st.lists(st.integers(0, 70), min_size=1, max_size=3), more=st.integers(0, 9))
def test_the_end_of_a_log_is_found(tables: Path, ends: list[int], more: int) -> None:
    store, base = new_table(tables)
    log = Log(store, len(ends))
    for shard_id, end in zip(SHARDS, ends, strict=False):
        for _ in range(end):
            log.write(shard_id)
    cuts = SnapshotCapture(store, base)
    assert cuts.take().positions == log.ends
    for _ in range(more):
        log.write(SHARDS[0])
    assert cuts.take().positions == log.ends


@pytest.mark.parametrize("kept", [[], [3], [1, 4]])
def test_what_was_collected_is_not_taken_for_what_was_never_written(
    tables: Path, kept: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is flushed, merged and collected between the look at the manifest and the look at the log."""
    store, base = new_table(tables)
    log = Log(store, 1)
    (shard_id,) = log.ends
    cuts = SnapshotCapture(store, base)
    assert cuts.take().positions == {shard_id: 0}
    for _ in range(6):
        log.write(shard_id)

    state = cuts._state

    def state_before_the_collection() -> tuple[BaseTable, dict[UUID, ShardManifest]]:
        found = state()
        if layout.wal_path(shard_id, 2) in {meta.path for meta in store.list(layout.wal_directory(shard_id))}:
            update_manifest(
                store, shard_id, lambda latest: replace(latest, replay_after_wal_entry_position=5)
            )
            gone = [position for position in range(1, 6) if position not in kept]
            store.delete([layout.wal_path(shard_id, position) for position in gone])
        return found

    monkeypatch.setattr(cuts, "_state", state_before_the_collection)
    assert cuts.take().positions == {shard_id: 6}

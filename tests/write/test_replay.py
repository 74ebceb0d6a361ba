"""Replay by generation: what is in a generation already, and MemTables that come back as they were."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import lance
import pytest

from tests.write.conftest import SHARD, WAL_SCHEMA, OpenWriter, rows, wait_until
from weir.errors import StorageError
from weir.format import layout, wal_entry
from weir.format.shard_manifest import ShardManifest
from weir.format.source import SourceMarks
from weir.format.wal_entry import WalEntry
from weir.format.wal_header import WalEntryHeader
from weir.log.manifest_store import commit_manifest, read_latest_manifest
from weir.log.replay import covered_position, is_in_order, unflushed
from weir.log.wal import PositionedEntry, Wal
from weir.storage.interface import Bytes
from weir.storage.local import LocalStore
from weir.write.memtable.memtable_set import MemTables
from weir.write.replay import replayed_memtables

FENCE = "fence"


def log(*generations: int | str | None, first: int = 1) -> list[PositionedEntry]:
    """Return entries of some generations, one row each; ``FENCE`` makes a fence."""
    return [
        PositionedEntry(
            position,
            WalEntry(
                WalEntryHeader(1, one if isinstance(one, int) else None, fence=one == FENCE),
                WAL_SCHEMA,
                () if one == FENCE else (rows((position, "x")),),
            ),
        )
        for position, one in enumerate(generations, first)
    ]


def manifest(current: int, replay_after: int = 0) -> ShardManifest:
    return ShardManifest(
        SHARD, 1, current_generation=current, replay_after_wal_entry_position=replay_after, writer_epoch=1
    )


@pytest.mark.parametrize(
    ("current", "entries", "left"),
    [
        (1, [1, 1, 2], [1, 2, 3]),
        (2, [1, 1, 2], [3]),
        (3, [1, FENCE, 2, FENCE, 3], [4, 5]),
        (3, [1, 2], []),
        # What follows an entry that is not flushed is not flushed, whatever it says.
        (2, [1, 2, 1, 1], [2, 3, 4]),
        (2, [1, None, 1], [2, 3]),
        (2, [FENCE, FENCE], [1, 2]),
    ],
)
def test_entries_of_listed_generations_are_not_replayed(
    current: int, entries: list[int | str | None], left: list[int]
) -> None:
    found = unflushed(manifest(current), log(*entries))
    assert [item.position for item in found] == left


def test_what_the_manifest_covers_counts_without_being_looked_at() -> None:
    assert covered_position(manifest(5, replay_after=7), log(9, first=7)) == 7
    assert covered_position(manifest(5, replay_after=7), ()) == 7
    assert covered_position(manifest(1), ()) == -1


@pytest.mark.parametrize(
    ("entries", "groups", "in_order"),
    [
        ([1, 1, 2], {1: [1, 2], 2: [3]}, True),
        ([1, FENCE, 2, FENCE, 2], {1: [1], 2: [3, 5]}, True),
        ([1, 1, 2, 1], {1: [1, 2], 2: [3, 4]}, False),
        ([1, 5], {1: [1], 2: [2]}, False),
        ([4], {1: [1]}, False),
        ([None, None], {1: [1, 2]}, True),
        ([], {1: []}, True),
    ],
)
def test_memtables_come_back_as_they_were(
    entries: list[int | str | None], groups: dict[int, list[int]], in_order: bool
) -> None:
    tail = log(*entries)
    memtables = replayed_memtables(1, WAL_SCHEMA, tail, SourceMarks())
    found = {one.generation: one.newest(("id",)).column("id").to_pylist() for one in memtables}
    assert found == groups
    assert is_in_order(1, tail) is in_order


def listed(store: LocalStore) -> list[tuple[int, int]]:
    latest = read_latest_manifest(store, SHARD)
    assert latest is not None
    return [(one.generation, one.physical_rows) for one in latest.flushed_generations]


def recorded(store: LocalStore) -> list[int | None]:
    wal = Wal(store, SHARD, namespace=f"{store.uri} read anew")
    return [item.entry.header.generation for item in wal.read_from(1) if item.entry.num_rows]


@dataclass
class Flushes:
    """Lets no flush go through while it is switched off."""

    monkeypatch: pytest.MonkeyPatch
    on: bool = True

    def __post_init__(self) -> None:
        start = MemTables._start_flush
        self.monkeypatch.setattr(MemTables, "_start_flush", lambda own: start(own) if self.on else None)


@pytest.fixture
def flushes(monkeypatch: pytest.MonkeyPatch) -> Flushes:
    return Flushes(monkeypatch)


def test_a_writer_that_dies_before_a_flush_leaves_two_memtables(
    store: LocalStore, open_writer: OpenWriter, flushes: Flushes
) -> None:
    flushes.on = False
    writer = open_writer(store, max_memtable_rows=2)
    for key in range(3):
        writer.submit(rows((key, "a"))).result()
    assert recorded(store) == [1, 1, 2]
    writer.abandon()

    flushes.on = True
    successor = open_writer(store, max_memtable_rows=2)
    successor.submit(rows((0, "b"))).result()
    successor.flush()
    assert recorded(store) == [1, 1, 2, 2]
    assert listed(store) == [(1, 2), (2, 2)]


def test_a_log_in_which_generations_went_back_is_flushed_at_once(
    store: LocalStore, open_writer: OpenWriter
) -> None:
    open_writer(store).abandon()
    wal = Wal(store, SHARD, namespace=f"{store.uri} before")
    for position, generation in enumerate([1, 1, 2, 1], 2):
        header = WalEntryHeader(1, generation, wal_entry.new_write_id())
        wal.append(position, wal_entry.encode(header, WAL_SCHEMA, [rows((7, str(position)))]))
    writer = open_writer(store)
    wait_until(lambda: not writer.unflushed_rows)
    assert [generation for generation, _ in listed(store)] == [1, 2]
    writer.submit(rows((8, "x"))).result()
    assert recorded(store)[-1] == 3


def test_memory_pressure_during_an_append_waits_for_it(
    store: LocalStore, open_writer: OpenWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = open_writer(store)
    writer.submit(rows((1, "x"))).result()
    append = Wal.append

    def pressed(wal: Wal, position: int, data: Sequence[Bytes]) -> None:
        # As another shard's writer does that needs the memory.
        writer._memtables.flush_early()
        append(wal, position, data)

    monkeypatch.setattr(Wal, "append", pressed)
    writer.submit(rows((2, "y"))).result()
    monkeypatch.undo()
    wait_until(lambda: listed(store) == [(1, 2)])
    assert recorded(store) == [1, 1]


@pytest.mark.parametrize("how", ["flush", "early", "publish"])
@pytest.mark.parametrize("arrives", [True, False])
def test_what_is_in_doubt_is_settled_before_its_memtable_is_frozen(
    store: LocalStore, open_writer: OpenWriter, monkeypatch: pytest.MonkeyPatch, how: str, arrives: bool
) -> None:
    writer = open_writer(store)
    writer.submit(rows((1, "x"))).result()
    append = Wal.append

    def lost(wal: Wal, position: int, data: Sequence[Bytes]) -> None:
        if arrives:
            append(wal, position, data)
        raise StorageError("the answer was lost")

    monkeypatch.setattr(Wal, "append", lost)
    with pytest.raises(StorageError):
        writer.submit(rows((2, "y"))).result()
    monkeypatch.undo()
    if how == "flush":
        writer.flush()
    elif how == "early":
        writer._memtables.flush_early()
    else:
        writer._commits.alone(writer._freeze)
        writer._memtables.flush()
    wait_until(lambda: listed(store) == [(1, 1 + arrives)])
    latest = read_latest_manifest(store, SHARD)
    assert latest is not None
    wal = Wal(store, SHARD, namespace=f"{store.uri} read anew")
    entries = list(wal.read_from(1))
    assert covered_position(latest, entries) == entries[-1].position
    assert latest.replay_after_wal_entry_position == entries[-1].position


def accepts(latest: ShardManifest, entries: Sequence[PositionedEntry]) -> bool:
    """Whether the library takes a log over, by what it was seen to accept."""
    generations = [
        item.entry.header.generation
        for item in entries
        if item.entry.num_rows and item.position > latest.replay_after_wal_entry_position
    ]
    replayed = latest.current_generation
    begun = False
    for one in generations:
        assert one is not None
        if not begun and one < latest.current_generation:
            continue
        if begun and one != replayed:
            if one != replayed + 1:
                return False
            replayed = one
        elif not begun and one != latest.current_generation:
            return False
        begun = True
    return True


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", range(6))
def test_whatever_dies_when_the_library_can_go_on(
    store: LocalStore, open_writer: OpenWriter, flushes: Flushes, seed: int
) -> None:
    """Writers that die at random, with random MemTables waiting; the newest value of every key survives."""
    chance = random.Random(seed)
    model: dict[int, str] = {}
    writer = open_writer(store, max_memtable_rows=3, max_frozen_memtables=99)
    for step in range(40):
        what = chance.choice("wwwwwwfesdd")
        if what == "w":
            pairs = [(chance.randrange(8), f"{step}.{n}") for n in range(chance.choice([1, 1, 2, 5]))]
            writer.submit(rows(*pairs)).result()
            model.update(pairs)
        elif what == "f" and flushes.on:
            writer.flush()
        elif what == "e":
            writer._memtables.flush_early()
        elif what == "s":
            flushes.on = not flushes.on
        elif what == "d":
            writer._memtables.wait_for_flush()
            writer.abandon()
            if chance.random() < 0.3:
                lag(store)
            writer = open_writer(store, max_memtable_rows=3, max_frozen_memtables=99)
        latest = read_latest_manifest(store, SHARD)
        assert latest is not None
        entries = list(Wal(store, SHARD, namespace=f"{store.uri} {step}").read_from(1))
        assert accepts(latest, entries), (seed, step, [item.entry.header.generation for item in entries])
    flushes.on = True
    writer.flush()
    assert newest(store) == model


def newest(store: LocalStore) -> dict[int, str]:
    """Return the values that the generations hold, later ones over earlier ones."""
    latest = read_latest_manifest(store, SHARD)
    assert latest is not None
    found: dict[int, str] = {}
    for one in latest.flushed_generations:
        table = lance.dataset(f"{store.uri}/{layout.generation_path(SHARD, one.path)}").to_table()
        found.update(zip(table["id"].to_pylist(), table["value"].to_pylist(), strict=True))
    return found


def lag(store: LocalStore) -> None:
    """Have the manifest cover less of the log than its generations do, as those of the library do."""
    latest = read_latest_manifest(store, SHARD)
    assert latest is not None
    if latest.current_generation > 1 and latest.replay_after_wal_entry_position:
        behind = replace(
            latest,
            version=latest.version + 1,
            replay_after_wal_entry_position=latest.replay_after_wal_entry_position - 1,
        )
        assert commit_manifest(store, behind, after=latest) is not None

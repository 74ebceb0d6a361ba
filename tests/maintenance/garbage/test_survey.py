"""Finding the fence entries of a log with few reads, and how many round trips a collection takes."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest
from tests.maintenance.garbage.garbage_kit import (
    HORIZON,
    SCHEMA,
    Clock,
    collect,
    collect_fully,
    create,
    stored,
    the_shard,
    write,
)

import weir
from weir.format import layout, wal_entry
from weir.format.wal_entry import wal_schema
from weir.format.wal_header import WalEntryHeader
from weir.maintenance.garbage.state import Coverage, LogObject
from weir.maintenance.garbage.survey import Survey, _Epochs
from weir.storage.counting import CountingStore
from weir.storage.interface import Bytes, ObjectStore
from weir.storage.local import LocalStore
from weir.storage.open import open_store

GOLDEN = Path(__file__).parents[2] / "format/golden"
SHARD = UUID("8f3b0d9e-7f2c-4b5e-9c51-2a6de1c0a003")
NOW = datetime(2026, 1, 2, tzinfo=UTC)
KEPT_FOR = timedelta(hours=1)


def found_guards(epochs: dict[int, int], ages: dict[int, timedelta], covered: int) -> tuple[set[int], int]:
    """Return what is found in a log of real entries, and how many were read."""
    store = CountingStore(open_store("memory://guards"))
    log = {}
    for position, epoch in epochs.items():
        path = layout.wal_path(SHARD, position)
        header = WalEntryHeader(writer_epoch=epoch, fence=True, write_id=wal_entry.new_write_id())
        store.put(path, wal_entry.encode(header, wal_schema(SCHEMA)))
        log[position] = LogObject((path,), 1, NOW - ages[position])
    store.reset()
    survey = Survey(store, SHARD, 0, NOW - KEPT_FOR)
    return set(_Epochs(survey, log).guards(Coverage(covered, 1))), store.counts.total()


@pytest.mark.parametrize("seed", range(40))
def test_every_fence_that_has_to_stay_is_found(seed: int) -> None:
    """Compared with looking at each entry of a log from which earlier collections have taken much away."""
    choose = random.Random(seed)
    epoch, epochs = 1, {}
    for position in range(1, choose.randint(2, 80)):
        epoch += choose.random() < choose.choice([0.05, 0.5])
        epochs[position] = epoch
    ages = {position: timedelta(minutes=3 * (len(epochs) - position)) for position in epochs}
    fences = {one for one in epochs if epochs[one] != epochs.get(one - 1)}
    covered = choose.randint(1, len(epochs))
    collected = choose.randint(0, covered)
    there = {one: epochs[one] for one in epochs if one > collected or one in fences}
    below = [one for one in there if one <= covered]
    newest = max(one for one in below if one in fences) if below else 0
    wanted = {one for one in fences & set(below) if ages[one] <= KEPT_FOR or one == newest}

    found, _ = found_guards(there, ages, covered)
    assert wanted <= found
    # What stays needlessly are places after which a collection stopped, and old fences at the edge.
    alone = {one for one in there if one - 1 not in there and one + 1 not in there}
    assert found - wanted <= fences | alone


def test_few_entries_are_read() -> None:
    """A writer that stays, after a day of claims of which collections have left the fences."""
    fences = {2 * n + 1: n for n in range(500)}
    run = dict.fromkeys(range(2000, 4000), 600)
    young = dict.fromkeys([*fences, *run], timedelta(0))
    found, reads = found_guards(fences | run, young, 4000)
    assert found == {*fences, 2000}
    assert reads <= 16
    # Without them, and ages ago, only the newest matters.
    old = dict.fromkeys([*fences, *run], timedelta(days=1))
    claims = {n: n for n in range(1, 1000)}
    found, reads = found_guards(claims, dict.fromkeys(claims, timedelta(days=1)), 999)
    assert (found, reads <= 12) == ({999}, True)
    found, reads = found_guards(fences | run, old, 4000)
    assert (found, reads <= 16) == ({2000}, True)


class ReadsStore(CountingStore):
    """A store that remembers how many bytes each read has brought."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.brought: list[int] = []

    def get(self, path: str) -> Bytes:
        data = super().get(path)
        self.brought.append(len(data))
        return data

    def get_range(self, path: str, start: int, length: int) -> Bytes:
        data = super().get_range(path, start, length)
        self.brought.append(len(data))
        return data


def epoch_and_reads(data: bytes) -> tuple[int | None, list[int]]:
    """Return the epoch that a collection finds in an entry, and how many bytes each of its reads brings."""
    store, path = ReadsStore(open_store("memory://reads")), layout.wal_path(SHARD, 1)
    store.put(path, data)
    found = _Epochs(Survey(store, SHARD, 0, NOW), {1: LogObject((path,), 1, NOW)})._epoch(1)
    return found, store.brought


def test_of_an_entry_the_trailer_is_read_alone() -> None:
    columns = 500
    schema = wal_schema(pa.schema([(f"column {n}", pa.int64()) for n in range(columns)]))
    batch = pa.record_batch([*[range(1_000)] * columns, [False] * 1_000], schema=schema)
    data = b"".join(wal_entry.encode(WalEntryHeader(7, 2, wal_entry.new_write_id()), schema, [batch]))
    assert len(data) > 4_000_000
    assert epoch_and_reads(data) == (7, [96])


@pytest.mark.parametrize(
    ("name", "epoch"), [("library/wal_entry", 1), ("library/wal_fence", 2), ("weir/wal_entry", 7)]
)
def test_of_an_entry_without_a_trailer_the_beginning_is_read(name: str, epoch: int) -> None:
    data = (GOLDEN / f"{name}.arrow").read_bytes()
    assert epoch_and_reads(data) == (epoch, [96, len(data)])
    padded = pa.schema([("a", pa.int64())], metadata={"writer_epoch": "3", "long": "x" * 70_000})
    data = padded.serialize().to_pybytes() + data[-8:]
    assert epoch_and_reads(data) == (3, [96, 64 * 1024, len(data)])


def test_an_entry_with_a_damaged_trailer_still_tells_its_epoch() -> None:
    data = bytearray(b"".join(wal_entry.encode(WalEntryHeader(7, fence=True), wal_schema(SCHEMA))))
    data[-30] ^= 1
    assert epoch_and_reads(bytes(data)) == (7, [96, len(data)])
    assert epoch_and_reads(bytes(200)) == (None, [96, 200, 200])


def costs(path: Path, entries: int) -> Counter[str]:
    """Return what it takes to delete the log of a writer that has written so many entries."""
    made = create(path)
    with made.writer() as writer:
        for n in range(entries):
            writer.upsert([{"id": n, "value": "x"}])
    made.maintenance.merge()
    clock = Clock()
    clock.advance(HORIZON)
    collect(made, clock)
    clock.advance(HORIZON)
    store = CountingStore(LocalStore(made.uri, fsync=False))
    report = collect(weir.Table(store, type(made.internals.base).open(store)), clock)
    assert len(stored(store, the_shard(made))[0]) == 1
    assert report.deleted_objects >= entries
    return store.counts


def test_a_long_log_costs_no_request_per_entry(tmp_path: Path) -> None:
    few, many = costs(tmp_path / "few", 8), costs(tmp_path / "many", 128)
    more = many - few
    # The entries are deleted in one call, and looked at by halving.
    assert more.total() <= 8
    assert set(more) <= {"get_range"}
    assert many["delete"] == 3
    assert many.total() <= 50


def test_a_collection_that_finds_nothing_costs_little(tmp_path: Path) -> None:
    made, clock = create(tmp_path), Clock()
    for n in range(4):
        write(made, n)
    made.maintenance.merge()
    collect_fully(made, clock)
    store = CountingStore(LocalStore(made.uri, fsync=False))
    base = type(made.internals.base).open(store)
    store.reset()
    assert collect(weir.Table(store, base), clock).items == ()
    # Marks, the newest base version, the roots, and one shard: a listing and a few small reads.
    assert store.counts.total() <= 25
    assert not {"put", "put_if_absent", "compare_and_swap", "delete"} & set(store.counts)

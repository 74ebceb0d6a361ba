"""Event writers that are kept between the micro-batches of a query, called as Spark calls them."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.spark.test_event_sink import of_contexts, options, results, stories

import weir
from weir.engine import failpoint
from weir.engine.failpoint import FailpointError
from weir.events.store import EventStore
from weir.format.source import Source
from weir.spark import event_writer
from weir.spark.kept_event_writers import KeptEventWriters


@pytest.fixture
def store(tmp_path: Path) -> EventStore:
    return create(tmp_path / "store")


def create(path: Path) -> EventStore:
    store = weir.events.create(path, buckets=2, fsync=False)
    store.define("a", {"n": "int", "word": "string | null"})
    return store


def commit(
    kept: KeptEventWriters, store: EventStore, batch: int, numbers: range, patch: pytest.MonkeyPatch
) -> None:
    found = results(store, [numbers], patch)
    with options(store).open() as opened:
        event_writer._commit(opened, options(store), found, Source("spark/query", batch + 1), kept)


def shards(store: EventStore) -> list[tuple[int, int, str]]:
    """Return of every shard how often it was claimed, how many generations it has, and its lease."""
    table = weir.open(f"{store.path}/events")
    return [(one.epoch, one.unmerged_generations, one.lease) for one in table.status().shards]


def test_a_micro_batch_is_left_in_the_log(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = KeptEventWriters()
    for batch in range(5):
        numbers = range(batch * 20, batch * 20 + 20)
        commit(kept, store, batch, numbers, monkeypatch)
        # As after a crash that Spark's checkpoint does not know of the commit before.
        commit(kept, store, batch, numbers, monkeypatch)
        assert shards(store) == [(1, 0, "released")] * 2
        assert stories(store) == of_contexts(range(batch * 20 + 20))
    assert store.tables["events"].maintenance.recover().recovered == 2
    assert {generations for _, generations, _ in shards(store)} == {1}
    assert stories(store) == of_contexts(range(100))


def test_the_log_does_not_grow_without_end(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weir.spark.kept_event_writers.MAX_TAIL_ENTRIES", 4)
    kept = KeptEventWriters()
    for batch in range(12):
        commit(kept, store, batch, range(batch * 14, batch * 14 + 14), monkeypatch)
        table = weir.open(f"{store.path}/events")
        assert all(one.unflushed_entries <= 4 for one in table.status().shards)
    assert all(generations >= 2 for _, generations, _ in shards(store))
    assert stories(store) == of_contexts(range(168))


def test_others_append_between_micro_batches(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = KeptEventWriters()
    expected: dict[str, list[int]] = {f"c{n}": [] for n in range(7)}
    for batch in range(4):
        numbers = range(batch * 14, batch * 14 + 14)
        commit(kept, store, batch, numbers, monkeypatch)
        for name, told in of_contexts(numbers).items():
            expected[name] += told
        with weir.events.open(store.path, fsync=False).writer() as writer:
            version = store.version("c1")
            assert writer.append("a", "c1", {"n": 1000 + batch}, expected=version).version > version
        expected["c1"].append(1000 + batch)
    assert stories(store) == expected
    assert {lease for _, _, lease in shards(store)} == {"released"}


def test_two_queries_append_to_one_store_at_once(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def query(name: str, first: int) -> None:
        kept = KeptEventWriters()
        for batch in range(5):
            numbers = range(first + batch * 14, first + batch * 14 + 14)
            found = results(store, [numbers], monkeypatch)
            with options(store).open() as opened:
                event_writer._commit(opened, options(store), found, Source(name, batch + 1), kept)

    with ThreadPoolExecutor(2) as pool:
        for running in [pool.submit(query, "one", 0), pool.submit(query, "other", 700)]:
            running.result()
    found = stories(store)
    for first in (0, 700):
        of_query = {name: [n for n in numbers if first <= n < first + 70] for name, numbers in found.items()}
        assert of_query == of_contexts(range(first, first + 70))


def test_an_error_lets_go_of_the_writer(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = KeptEventWriters()
    commit(kept, store, 0, range(14), monkeypatch)
    with failpoint.armed("wal.before_append", "raise@2"), pytest.raises(FailpointError):
        commit(kept, store, 1, range(14, 28), monkeypatch)
    assert {lease for _, _, lease in shards(store)} == {"released"}
    commit(kept, store, 1, range(14, 28), monkeypatch)
    assert stories(store) == of_contexts(range(28))


def test_a_store_that_was_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = KeptEventWriters()
    for first in (0, 70):
        store = create(tmp_path / "again")
        commit(kept, store, 0, range(first, first + 14), monkeypatch)
        assert stories(store) == of_contexts(range(first, first + 14))
        assert not store.tables["events"].maintenance.verify().findings
        shutil.rmtree(store.path)


def test_only_so_many_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = KeptEventWriters(most=1)
    stores = [create(tmp_path / str(number)) for number in range(2)]
    for batch in range(2):
        for at, store in enumerate(stores):
            found = results(store, [range(batch * 14, batch * 14 + 14)], monkeypatch)
            with options(store).open() as opened:
                event_writer._commit(opened, options(store), found, Source(f"query {at}", batch + 1), kept)
    assert [stories(store) for store in stores] == [of_contexts(range(28))] * 2

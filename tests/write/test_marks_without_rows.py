"""Marked writes that change nothing: their marks are for good, their log entries are not."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import weir
from tests.conformance import library
from tests.maintenance.garbage.garbage_kit import (
    Clock,
    collect,
    collect_fully,
    create,
    rows,
    stored,
    the_shard,
)
from tests.write.conftest import wait_until
from weir.engine import failpoint
from weir.engine.context import default_context
from weir.errors import FencedError
from weir.log.manifest_store import read_latest_manifest
from weir.write.table_writer import TableWriter

DAY = timedelta(days=1)


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    """A table with one merged row."""
    made = create(tmp_path)
    with made.writer() as writer:
        writer.upsert([{"id": 1, "value": "there"}])
    made.maintenance.merge()
    return made


def insert_again(writer: TableWriter, names: Iterable[object]) -> None:
    """Insert the row that is there, once under each name."""
    for name in names:
        result = writer.insert([{"id": 1, "value": "again"}], source=weir.Source.once(f"{name}"))
        assert result.skipped is not None
        assert result.skipped.num_rows == 1


def unflushed(table: weir.Table) -> int:
    """Return how many entries replay would read."""
    store, shard = table.internals.store, the_shard(table)
    manifest = read_latest_manifest(store, shard)
    assert manifest is not None
    return sum(position > manifest.replay_after_wal_entry_position for position in stored(store, shard)[0])


def replay_after(table: weir.Table) -> int:
    manifest = read_latest_manifest(table.internals.store, the_shard(table))
    assert manifest is not None
    assert (manifest.current_generation, len(manifest.flushed_generations)) == (2, 1)
    return manifest.replay_after_wal_entry_position


def all_known(table: weir.Table, names: Iterable[object]) -> bool:
    """Whether all writes are answered as they were, though the row is gone."""
    with table.writer(takeover=True, flush_on_close=False) as writer:
        return all(
            writer.insert([{"id": 1, "value": "anew"}], source=weir.Source.once(f"{name}")).deduplicated
            for name in names
        )


def test_a_flush_covers_them_without_a_generation(table: weir.Table) -> None:
    clock = Clock()
    with table.writer() as writer:
        insert_again(writer, range(12))
        assert unflushed(table) >= 12
        writer.flush()
        assert unflushed(table) == 0
        covered = replay_after(table)
        writer.flush()
        assert replay_after(table) == covered
        insert_again(writer, range(12, 16))
    assert replay_after(table) > covered
    log, _, directories = stored(table.internals.store, the_shard(table))
    assert len(log) > 16
    clock.advance(DAY)
    collect_fully(table, clock)
    left, manifests, directories = stored(table.internals.store, the_shard(table))
    assert len(left) <= 2, "but for the fence of the newest epoch"
    assert len(manifests) <= 2
    assert len(directories) <= 1
    default_context().cache.clear()
    assert all_known(table, range(16))
    assert rows(table) == {1: "there"}
    assert not table.maintenance.verify().findings
    with table.writer(takeover=True) as writer:
        writer.upsert([{"id": 2, "value": "new"}])
    table.maintenance.merge()
    assert rows(table) == {1: "there", 2: "new"}


def test_many_are_covered_by_themselves(table: weir.Table) -> None:
    with table.writer(max_memtable_entries=10, max_memtable_age=600) as writer:
        insert_again(writer, range(35))
        wait_until(lambda: unflushed(table) < 10)
        replay_after(table)


def test_few_are_covered_by_age(table: weir.Table) -> None:
    with table.writer(max_memtable_age=0.2) as writer:
        insert_again(writer, range(3))
        wait_until(lambda: unflushed(table) == 0)
        replay_after(table)
        # Rows of the same generation have an age of their own.
        writer.upsert([{"id": 2, "value": "new"}])
        wait_until(lambda: unflushed(table) == 0)
    assert rows(table) == {1: "there", 2: "new"}


def test_what_a_writer_that_died_has_left_is_covered_by_the_next(table: weir.Table) -> None:
    with table.writer(takeover=True) as writer:
        insert_again(writer, range(10))
        writer._shards.abandon()
    with table.writer(takeover=True) as writer:
        writer.flush()
        insert_again(writer, [10])
    assert unflushed(table) == 0
    replay_after(table)
    assert all_known(table, range(11))


@pytest.mark.parametrize("place", ["flush.before_manifest", "flush.after_manifest"])
def test_a_flush_that_fails_on_the_way_is_made_up_for(table: weir.Table, place: str) -> None:
    with table.writer() as writer:
        insert_again(writer, range(5))
        with failpoint.armed(place, "raise"), pytest.raises(failpoint.FailpointError):
            writer.flush()
        writer.upsert([{"id": 2, "value": "new"}])
        insert_again(writer, range(5, 9))
        writer._shards.abandon()
    with table.writer(takeover=True) as writer:
        insert_again(writer, ["last"])
    assert all_known(table, [*range(9), "last"])
    assert rows(table) == {1: "there", 2: "new"}
    table.maintenance.merge()
    assert rows(table) == {1: "there", 2: "new"}
    assert not table.maintenance.verify().findings


def test_writes_are_decided_by_the_rows_that_come_after(table: weir.Table) -> None:
    """A MemTable that had marks alone and the one that follows it are of one generation."""
    with table.writer() as writer:
        for start in range(0, 30, 10):
            insert_again(writer, range(start, start + 5))
            writer.flush()
            new = [{"id": key, "value": "new"} for key in range(start + 100, start + 104)]
            for row in new:
                writer.upsert([row])
            for row in new:
                assert writer.insert([row]).skipped.num_rows == 1  # type: ignore[union-attr]
            writer.flush()
    assert len(rows(table)) == 13


def test_rows_that_wait_behind_marks_are_flushed_in_their_order(table: weir.Table) -> None:
    with table.writer(max_memtable_entries=4, max_memtable_age=600, max_frozen_memtables=9) as writer:
        with failpoint.armed("flush.before_manifest", "raise@every"):
            insert_again(writer, range(4))
            writer.upsert([{"id": key, "value": "one"} for key in range(5)])
            insert_again(writer, range(4, 8))
            writer.upsert([{"id": 3, "value": "two"}])
            assert rows(table) == {0: "one", 1: "one", 2: "one", 3: "two", 4: "one"}
        writer.flush()
        assert unflushed(table) == 0
    assert rows(table) == {0: "one", 1: "one", 2: "one", 3: "two", 4: "one"}
    assert all_known(table, range(8))


def test_a_sleeping_writer_is_fenced_though_all_is_covered_and_collected(table: weir.Table) -> None:
    clock = Clock()
    sleeper = table.writer()
    insert_again(sleeper, range(3))
    other = weir.open(table.uri, fsync=False)
    with other.writer(takeover=True) as writer:
        insert_again(writer, range(3, 20))
    clock.advance(DAY)
    collect_fully(table, clock)
    with pytest.raises(FencedError):
        sleeper.upsert([{"id": 5, "value": "too late"}])
    sleeper._shards.abandon()
    assert rows(table) == {1: "there"}
    assert all_known(table, range(20))


def test_readers_and_feeds_go_on_over_what_is_covered(table: weir.Table) -> None:
    clock = Clock()
    reader = weir.open(table.uri, fsync=False)
    with table.writer() as writer:
        insert_again(writer, range(3))
        assert rows(reader) == {1: "there"}
        feed = table.changes(since=reader.snapshot())
        insert_again(writer, range(3, 20))
        writer.flush()
        # Younger than a fence has to be: a reader may still ask for the first of them.
        clock.advance(timedelta(hours=2))
        collect(table, clock)
        clock.advance(timedelta(hours=2))
        collect(table, clock)
        writer.upsert([{"id": 2, "value": "new"}])
        assert rows(reader) == {1: "there", 2: "new"}
        assert [batch.rows["id"].to_pylist() for batch in feed] == [[2]]
        insert_again(writer, range(20, 30))
    clock.advance(DAY)
    table.maintenance.merge()
    collect_fully(table, clock)
    assert table.changes(since="earliest").to_reader().read_all().num_rows == 0
    with table.writer(takeover=True) as writer:
        insert_again(writer, range(30, 40))
    clock.advance(DAY)
    collect_fully(table, clock)
    assert table.changes(since="earliest").to_reader().read_all().num_rows == 0
    assert table.scan(at=table.snapshot()).count() == 2


def test_an_empty_shard_covers_them_too(tmp_path: Path) -> None:
    """Nothing was ever flushed or merged."""
    table, clock = create(tmp_path), Clock()
    with table.writer() as writer:
        for number in range(20):
            writer.delete([number], condition="value = 'x'", source=weir.Source.once(f"{number}"))
        writer.flush()
        assert unflushed(table) == 0
        clock.advance(DAY)
        collect_fully(table, clock)
        assert len(stored(table.internals.store, the_shard(table))[0]) <= 2
        writer.upsert([{"id": 1, "value": "x"}])
        assert rows(weir.open(table.uri, fsync=False)) == {1: "x"}
    assert table.changes(since="earliest").to_reader().read_all()["id"].to_pylist() == [1]
    with table.writer(takeover=True) as writer:
        again = writer.delete([1], condition="value = 'x'", source=weir.Source.once("1"))
        assert again.deduplicated
    assert rows(table) == {1: "x"}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("is_collected", [False, True])
@pytest.mark.parametrize("is_empty", [False, True])
def test_the_library_takes_over(tmp_path: Path, is_empty: bool, is_collected: bool) -> None:
    table, clock = create(tmp_path), Clock()
    with table.writer() as writer:
        if not is_empty:
            writer.upsert([{"id": 1, "value": "there"}])
            writer.flush()
        table.maintenance.merge()
        for number in range(12):
            writer.delete([number], condition="value = 'x'", source=weir.Source.once(f"{number}"))
    assert unflushed(table) == 0
    if is_collected:
        clock.advance(DAY)
        collect_fully(table, clock)
    library.close_writers()
    theirs = library.open_writer(Path(table.uri), the_shard(table))
    theirs.put(pa.table({"id": [5], "value": ["of the library"]}, table.schema))
    theirs.close()
    expected = {5: "of the library"} | ({} if is_empty else {1: "there"})
    assert rows(table) == expected
    assert library.scan(Path(table.uri)).sort_by("id")["id"].to_pylist() == sorted(expected)
    with table.writer(takeover=True) as mine:
        again = [
            mine.delete([n], condition="value = 'x'", source=weir.Source.once(f"{n}")) for n in range(12)
        ]
        assert all(one.deduplicated for one in again)
        mine.upsert([{"id": 6, "value": "x"}])
    table.maintenance.merge()
    assert rows(table) == expected | {6: "x"}
    assert not table.maintenance.verify().findings

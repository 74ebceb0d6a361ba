"""Generations that were written elsewhere and are published: in order, once, and collected in time only."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from tests.conformance import library
from tests.crashes import kill_at, run
from tests.maintenance.garbage.garbage_kit import Clock, collect, collect_fully, rows, stored

import weir
from weir.engine import failpoint
from weir.engine.context import default_context
from weir.errors import CorruptionError, FencedError, StorageError
from weir.format import layout
from weir.format.shard_manifest import FlushedGeneration, ShardManifest
from weir.format.wal_entry import wal_schema
from weir.log import manifest_store
from weir.maintenance.verification.finding import Severity
from weir.sharding.shard_values import ShardValues
from weir.storage.interface import ObjectStore
from weir.write.flush import generation_writer
from weir.write.flush import staged_generations as publish
from weir.write.flush.staged_generations import StagedGeneration

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("value", pa.string())])


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    return weir.create(
        tmp_path / "table", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 1), fsync=False
    )


def changes(*pairs: tuple[int, str | None]) -> pa.Table:
    """Rows of log entries: upserts, and deletes where there is no value."""
    columns = [
        pa.array([key for key, _ in pairs], pa.int64()),
        pa.array([value for _, value in pairs], pa.string()),
        pa.array([value is None for _, value in pairs]),
    ]
    return pa.Table.from_arrays(columns, schema=wal_schema(SCHEMA))


def the_values(table: weir.Table) -> ShardValues:
    (values,) = table.internals.router.partition(changes((1, "x"))).values
    return values


def staged(table: weir.Table, *pairs: tuple[int, str | None]) -> StagedGeneration:
    return table.internals.stage(the_values(table), changes(*pairs), spec_id=1)


def published(
    table: weir.Table, *generations: StagedGeneration, sequence: int | None = None, **options: object
) -> bool:
    """Publish with a writer of its own; return whether it was passed over."""
    source = None if sequence is None else weir.Source("load", sequence)
    with table.writer(**options) as writer:
        receipt = writer.publish_routed([(the_values(table), generations)], source=source)
    return bool(receipt.deduplicated)


def the_shard(table: weir.Table) -> UUID:
    (shard,) = library.shards_of(Path(table.uri))
    return shard


def test_what_is_published_comes_after_what_was_written_before_and_in_its_order(table: weir.Table) -> None:
    reader = weir.open(table.uri)
    with table.writer() as writer:
        writer.upsert([{"id": n, "value": "log"} for n in range(6)])
        pieces = [staged(table, (1, "a"), (2, "a"), (2, "b"), (3, None)), staged(table, (1, "c"))]
        assert rows(reader) == dict.fromkeys(range(6), "log")
        receipt = writer.publish_routed([(the_values(table), pieces)], source=weir.Source("load", 1))
        expected = {0: "log", 1: "c", 2: "b", 4: "log", 5: "log"}
        assert receipt.rows == 4
        assert rows(reader) == expected
        writer.upsert([{"id": 4, "value": "later"}])
        again = writer.publish_routed(
            [(the_values(table), [staged(table, (4, "x"))])], source=weir.Source("load", 1)
        )
        assert len(again.deduplicated) == 1
        expected[4] = "later"
        assert rows(reader) == expected
        assert {row["id"]: row["value"] for row in reader.get(list(range(6))).to_pylist()} == expected
    assert not table.maintenance.verify().findings
    found = library.scan(Path(table.uri))
    assert dict(zip(found["id"].to_pylist(), found["value"].to_pylist(), strict=True)) == expected
    table.maintenance.merge()
    assert rows(table) == rows(weir.open(table.uri)) == expected
    clock = Clock()
    collect_fully(table, clock)
    assert rows(table) == expected
    # What was listed went with the others; what was passed over may still be published by its looks.
    assert len(stored(table.internals.store, the_shard(table))[2]) == 1
    clock.advance(timedelta(hours=25))
    collect_fully(table, clock)
    assert not stored(table.internals.store, the_shard(table))[2]
    assert not table.maintenance.verify().findings


def test_the_log_that_a_claim_reads_stays_short(table: weir.Table) -> None:
    for number in range(4):
        assert not published(table, staged(table, (number, "a")), sequence=number, max_memtable_entries=1)
        (shard,) = table.status().shards
        assert shard.unflushed_entries <= 1
    with table.writer(max_memtable_entries=2) as writer:
        writer.upsert([{"id": 9, "value": "log"}])
    assert rows(table) == dict.fromkeys(range(4), "a") | {9: "log"}
    assert not table.maintenance.verify().findings


def test_the_change_feed_has_what_was_published_in_its_place(table: weir.Table) -> None:
    feed = table.changes(since="earliest", consumer="test")
    with table.writer() as writer:
        writer.upsert([{"id": 1, "value": "log"}])
        writer.publish_routed(
            [(the_values(table), [staged(table, (1, "a"), (2, "b")), staged(table, (1, None))])]
        )
        writer.upsert([{"id": 3, "value": "later"}])
    # A consumer that has not read them keeps them, merged or not.
    table.maintenance.merge()
    clock = Clock()
    collect_fully(table, clock)
    seen = [(row["id"], row["_op"], row["value"]) for batch in feed for row in batch.rows.to_pylist()]
    assert seen == [
        (1, "upsert", "log"),
        (1, "upsert", "a"),
        (2, "upsert", "b"),
        (1, "delete", None),
        (3, "upsert", "later"),
    ]


def write_and_publish(uri: str) -> None:
    table = weir.open(uri, fsync=False)
    with table.writer(holder="x", flush_on_close=False) as writer:
        writer.upsert([{"id": 1, "value": "log"}, {"id": 2, "value": "log"}], source=weir.Source("log", 1))
    published(table, staged(table, (1, "a")), staged(table, (1, "b"), (3, "b")), sequence=1, holder="x")


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "point",
    [
        "publish.after_staging@2",
        "publish.before_manifest",
        "publish.after_manifest",
        "flush.after_manifest",
        "wal.before_append@4",
        "wal.after_append@4",
    ],
)
def test_a_killed_process_publishes_again_and_once(table: weir.Table, point: str) -> None:
    feed = table.changes(since="earliest")
    kill_at(point, write_and_publish, table.uri)
    assert not run(write_and_publish, table.uri).was_killed
    assert rows(table) == {1: "b", 2: "log", 3: "b"}
    assert not [one for one in table.maintenance.verify().findings if one.severity is Severity.ERROR]
    seen = [(row["id"], row["value"]) for batch in feed for row in batch.rows.to_pylist()]
    assert seen == [(1, "log"), (2, "log"), (1, "a"), (1, "b"), (3, "b")]


def test_a_publication_whose_end_failed_is_finished_before_anything_else(table: weir.Table) -> None:
    reader = weir.open(table.uri)
    with table.writer() as writer:
        writer.upsert([{"id": 1, "value": "log"}])
        assert rows(reader) == {1: "log"}
        piece = staged(table, (1, "a"))
        with failpoint.armed("publish.after_manifest", "raise"), pytest.raises(failpoint.FailpointError):
            writer.publish_routed([(the_values(table), [piece])], source=weir.Source("load", 1))
        with failpoint.armed("wal.after_append", "raise"), pytest.raises(failpoint.FailpointError):
            writer.publish_routed([(the_values(table), [piece])], source=weir.Source("load", 1))
        writer.publish_routed([(the_values(table), [piece])], source=weir.Source("load", 1))
        writer.upsert([{"id": 2, "value": "later"}])
        assert rows(reader) == {1: "a", 2: "later"}
    seen = [row["value"] for batch in table.changes(since="earliest") for row in batch.rows.to_pylist()]
    assert seen == ["log", "a", "later"]


def test_damage_to_what_was_published_is_named_by_the_change_feed(table: weir.Table) -> None:
    published(table, staged(table, (1, "a")))
    (file,) = Path(table.uri).glob("_mem_wal/*/staged_*/data/*.lance")
    whole = file.read_bytes()
    for damaged in (whole[:-20], bytes(len(whole)), b""):
        file.write_bytes(damaged)
        with pytest.raises(CorruptionError, match="staged_") as caught:
            list(table.changes(since="earliest"))
        assert str(caught.value.where).startswith(f"{table.uri}/_mem_wal/")
    file.unlink()
    with pytest.raises(CorruptionError, match="staged_"):
        list(table.changes(since="earliest"))


def test_staged_rows_are_collected_when_nobody_can_publish_them_any_more(table: weir.Table) -> None:
    piece = staged(table, (1, "a"))
    clock = Clock()
    for hours in (0, 11, 11):
        clock.advance(timedelta(hours=hours))
        collect_fully(table, clock)
        assert stored(table.internals.store, the_shard(table))[2] == [piece.flushed.path]
        assert not table.maintenance.verify().findings
    clock.advance(timedelta(hours=2))
    collect_fully(table, clock)
    assert not stored(table.internals.store, the_shard(table))[2]
    with pytest.raises(StorageError, match="staged rows are gone"):
        published(table, piece)
    assert rows(table) == {}


def age(table: weir.Table, piece: StagedGeneration, hours: float) -> None:
    """Let a staged generation have been written some time ago."""
    when = (datetime.now(UTC) - timedelta(hours=hours)).timestamp()
    for path in Path(table.uri, layout.generation_path(piece.shard_id, piece.flushed.path)).rglob("*"):
        os.utime(path, (when, when))


def test_what_was_staged_too_long_ago_is_refused(table: weir.Table) -> None:
    old, young = staged(table, (1, "a")), staged(table, (2, "b"))
    age(table, old, 12.1)
    age(table, young, 11.5)
    with pytest.raises(StorageError, match="might be collected as garbage"):
        published(table, young, old)
    assert rows(table) == {}
    assert not published(table, young)
    assert rows(table) == {2: "b"}


def test_staging_that_sleeps_until_collection_has_come_is_refused(
    table: weir.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SleepingClock()
    write_generation = generation_writer.write_generation

    def sleep_in_the_middle(*arguments: Any, **options: Any) -> FlushedGeneration:
        clock.seconds += 26 * 3600
        return write_generation(*arguments, **options)

    monkeypatch.setattr(publish, "write_generation", sleep_in_the_middle)
    with pytest.raises(StorageError, match="in staging, and might be collected"):
        publish.stage_generation(
            table.internals.store,
            staged(table, (1, "a")).shard_id,
            changes((2, "b")),
            ("id",),
            merge_engine=None,
            clock=clock,
        )
    assert rows(table) == {}


class SleepingClock:
    """An uptime that is set."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime.now(UTC)

    def uptime(self) -> float:
        return self.seconds


def test_what_no_log_entry_names_yet_is_shown_to_nobody(table: weir.Table) -> None:
    with table.writer() as writer:
        writer.upsert([{"id": 1, "value": "log"}])
        piece = staged(table, (1, "a"))
        with failpoint.armed("publish.after_manifest", "raise"), pytest.raises(failpoint.FailpointError):
            writer.publish_routed([(the_values(table), [piece])])
    token = table.snapshot()
    table.maintenance.merge()
    for reader in (table, weir.open(table.uri)):
        assert rows(reader) == {1: "log"}
    with table.writer() as writer:
        writer.upsert([{"id": 2, "value": "later"}])
        assert rows(weir.open(table.uri)) == {1: "a", 2: "later"}
    table.maintenance.merge()
    assert rows(table) == {1: "a", 2: "later"}
    assert table.scan(at=token).to_table().to_pylist() == [{"id": 1, "value": "log"}]


@pytest.mark.parametrize("arrives", [True, False], ids=["answer lost", "request lost"])
def test_rows_come_after_a_publication_of_which_only_the_failure_is_known(
    table: weir.Table, monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    commit = manifest_store.commit_manifest
    fails = [True]

    def lose_once(
        store: ObjectStore, manifest: ShardManifest, *, after: ShardManifest | None
    ) -> ShardManifest | None:
        publishes = any(layout.is_staged_name(one.path) for one in manifest.flushed_generations)
        if not publishes or not fails.pop():
            return commit(store, manifest, after=after)
        if arrives:
            commit(store, manifest, after=after)
        raise StorageError("the answer was lost")

    with table.writer() as writer:
        writer.upsert([{"id": 1, "value": "log"}])
        piece = staged(table, (1, "a"))
        work = [(the_values(table), [piece])]
        with monkeypatch.context() as patch:
            patch.setattr(manifest_store, "commit_manifest", lose_once)
            with pytest.raises(StorageError, match="answer was lost"):
                writer.publish_routed(work, source=weir.Source("load", 1))
        writer.upsert([{"id": 2, "value": "later"}])
        writer.flush()
        again = writer.publish_routed(work, source=weir.Source("load", 1))
        assert len(again.deduplicated) == arrives
    assert rows(table) == {1: "a", 2: "later"}
    assert not [one for one in table.maintenance.verify().findings if one.severity is Severity.ERROR]
    seen = [row["value"] for batch in table.changes(since="earliest") for row in batch.rows.to_pylist()]
    assert seen == (["log", "a", "later"] if arrives else ["log", "later", "a"])


def test_a_commit_that_sleeps_until_collection_has_come_is_refused(
    table: weir.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = staged(table, (1, "a"))
    age(table, piece, 11)
    slept = timedelta(0)
    commit_manifest = manifest_store.commit_manifest

    class Sleeper:
        def now(self) -> datetime:
            return datetime.now(UTC)

        def uptime(self) -> float:
            return slept.total_seconds()

    def sleep_before(
        store: ObjectStore, manifest: ShardManifest, *, after: ShardManifest | None
    ) -> ShardManifest | None:
        """A commit that has looked at the shard, and comes through 14 hours later."""
        nonlocal slept
        if not slept and any(layout.is_staged_name(one.path) for one in manifest.flushed_generations):
            slept = timedelta(hours=14)
            clock = Clock()
            clock.advance(slept)
            collect_fully(weir.open(table.uri), clock)
            assert not stored(table.internals.store, the_shard(table))[2]
        return commit_manifest(store, manifest, after=after)

    original = publish.publish_staged
    monkeypatch.setattr("weir.log.manifest_store.commit_manifest", sleep_before)
    monkeypatch.setattr(
        "weir.write.log_appender.publish_staged",
        lambda *positional, **named: original(*positional, **named, clock=Sleeper()),
    )
    with pytest.raises(StorageError, match="might be collected as garbage"):
        published(table, piece)
    assert slept
    default_context().cache.clear()
    assert rows(weir.open(table.uri)) == {}
    assert not [one for one in table.maintenance.verify().findings if one.severity is Severity.ERROR]


def test_a_writer_of_the_library_takes_over_what_was_published(table: weir.Table) -> None:
    with table.writer(flush_on_close=False) as writer:
        writer.upsert([{"id": 1, "value": "log"}, {"id": 2, "value": "log"}])
        writer.publish_routed([(the_values(table), [staged(table, (1, "a"))])], source=weir.Source("load", 1))
        writer.upsert([{"id": 3, "value": "later"}])
    theirs = library.open_writer(Path(table.uri), the_shard(table))
    theirs.put(pa.table({"id": [4], "value": ["of the library"]}, SCHEMA))
    theirs.close()
    default_context().cache.clear()
    expected = {1: "a", 2: "log", 3: "later", 4: "of the library"}
    assert rows(weir.open(table.uri)) == expected
    assert published(table, staged(table, (1, "x")), sequence=1)
    table.maintenance.merge()
    clock = Clock()
    collect_fully(table, clock)
    assert rows(table) == expected


def test_a_fenced_writer_publishes_nothing(table: weir.Table) -> None:
    with table.writer() as writer:
        writer.upsert([{"id": 1, "value": "log"}])
        with table.writer(takeover=True) as other:
            other.upsert([{"id": 1, "value": "other"}])
        pieces = [(the_values(table), [staged(table, (1, "a"))])]
        with pytest.raises(FencedError):
            writer.publish_routed(pieces)
    assert rows(table) == {1: "other"}


def test_a_dry_collection_keeps_what_is_staged(table: weir.Table) -> None:
    staged(table, (1, "a"))
    report = collect(table, Clock(), dry_run=True)
    reasons = [one.reason for one in report.kept if one.name.startswith("staged_")]
    assert reasons == ["a write may still publish it"]

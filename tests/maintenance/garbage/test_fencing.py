"""Writers, claims and committers that sleep until what would have stopped them has been collected (I2).

Each test is one interleaving: somebody is about to write, others go on, the time of the fence horizon
passes, everything is collected, and the sleeper wakes up. ``naively`` shows that the store itself would
have let the write through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest
from tests.maintenance.garbage.garbage_kit import (
    SCHEMA,
    Clock,
    collect_fully,
    create,
    rows,
    stored,
    the_shard,
    write,
)

import weir
from weir.config import WriterOptions
from weir.errors import FencedError, StorageError
from weir.format import layout
from weir.format.shard_manifest import ShardManifest
from weir.format.wal_entry import wal_schema
from weir.log.manifest_store import commit_manifest, read_latest_manifest, update_manifest
from weir.log.wal import PositionedEntry, Wal
from weir.maintenance.garbage.garbage import DEFAULT_FENCE_HORIZON
from weir.storage.counting import CountingStore
from weir.storage.interface import Bytes, ObjectStore
from weir.storage.local import LocalStore
from weir.write.claim import claim_shard
from weir.write.fencing import MAX_UNCERTAIN_SECONDS
from weir.write.lease.lease_terms import LeaseTerms
from weir.write.shard_context import ShardContext
from weir.write.shard_writer import ShardWriter

ROWS = wal_schema(SCHEMA)


class Uptime:
    """The clock of a writer that sleeps when it is told to."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.seconds)

    def uptime(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    made = create(tmp_path)
    write(made, 0, value="first")
    return made


OpenShard = Callable[..., ShardWriter]


@pytest.fixture
def open_shard(table: weir.Table) -> Iterator[OpenShard]:
    with ThreadPoolExecutor(2) as flusher:
        opened: list[ShardWriter] = []

        def open_one(uptime: Uptime, store: ObjectStore | None = None) -> ShardWriter:
            context = ShardContext.of(
                store or table.internals.store,
                lambda: ROWS,
                ("id",),
                namespace=table.internals.base.namespace,
                merge_engine=None,
                options=WriterOptions(),
                flusher=flusher,
                # A lease that outlasts everything: here nothing but the log keeps writers apart.
                lease_terms=LeaseTerms(ttl=1e9, takeover=True, clock=uptime),
                spec_id=1,
            )
            writer = ShardWriter(context, the_shard(table))
            opened.append(writer)
            return writer

        yield open_one
        for writer in opened:
            writer.abandon()


def batch(key: int, value: str) -> pa.RecordBatch:
    return pa.record_batch([[key], [value], [False]], schema=ROWS)


def others_go_on(table: weir.Table, clock: Clock) -> None:
    """Others write, flush and merge; hours later all they have left in the log is collected."""
    for n in range(3):
        write(table, 100 + n, value="others")
    table.maintenance.merge()
    clock.advance(DEFAULT_FENCE_HORIZON)
    collect_fully(table, clock)


def naively(store: ObjectStore, shard: UUID, position: int) -> None:
    """Show that a put-if-absent says nothing at a position."""
    path = layout.wal_path(shard, position)
    store.put_if_absent(path, b"nobody will read this")
    store.delete([path])


def test_a_sleeper_collides_with_the_fence_while_that_is_kept(
    table: weir.Table, clock: Clock, open_shard: OpenShard
) -> None:
    sleeper = open_shard(Uptime())
    last = sleeper.submit(batch(1, "mine")).result()
    for n in range(3):
        write(table, 100 + n, value="others")
    table.maintenance.merge()
    collect_fully(table, clock)
    log, *_ = stored(table.internals.store, the_shard(table))
    # Its own last entry is gone, and everything after its next position but the fences.
    assert last not in log
    assert last + 1 in log
    assert last + 2 not in log
    with pytest.raises(FencedError, match=rf"position {last + 1}"):
        sleeper.submit(batch(1, "late")).result()
    assert rows(table)[1] == "mine"


def test_a_sleeper_that_slept_past_its_fence_is_refused(
    table: weir.Table, clock: Clock, open_shard: OpenShard
) -> None:
    uptime = Uptime()
    sleeper = open_shard(uptime)
    last = sleeper.submit(batch(1, "mine")).result()
    others_go_on(table, clock)
    shard = the_shard(table)
    assert last + 1 not in stored(table.internals.store, shard)[0]
    naively(table.internals.store, shard, last + 1)
    before = stored(table.internals.store, shard)
    uptime.seconds += DEFAULT_FENCE_HORIZON.total_seconds()
    with pytest.raises(FencedError, match="claimed with epoch"):
        sleeper.submit(batch(1, "late")).result()
    with pytest.raises(FencedError):
        sleeper.submit(batch(1, "later")).result()
    # It was told before it wrote anything.
    assert stored(table.internals.store, shard) == before
    assert rows(table) == rows(weir.open(table.uri))
    assert rows(table)[1] == "mine"


def test_a_sleeper_caught_in_the_middle_of_its_append(
    table: weir.Table, clock: Clock, open_shard: OpenShard
) -> None:
    """The lease and everything else was looked at before: only what follows the put can tell.

    It cannot tell whether the entry was there before others replayed the log, or after it was collected.
    """
    uptime = Uptime()

    class SleepsBeforePut(LocalStore):
        armed = False

        def put_if_absent(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
            if self.armed and "/wal/" in path:
                self.armed = False
                others_go_on(table, clock)
                uptime.seconds += DEFAULT_FENCE_HORIZON.total_seconds()
            super().put_if_absent(path, data)

    store = SleepsBeforePut(table.uri, fsync=False)
    sleeper = open_shard(uptime, store)
    sleeper.submit(batch(1, "mine")).result()
    store.armed = True
    with pytest.raises(StorageError, match="covered up to position") as caught:
        sleeper.submit(batch(1, "late")).result()
    assert isinstance(caught.value.__cause__, FencedError)
    assert not store.armed
    with pytest.raises(FencedError):
        sleeper.submit(batch(1, "later")).result()
    assert rows(table) == rows(weir.open(table.uri))
    assert rows(table)[1] == "mine"
    # What it left behind is collected like anything else.
    write(table, 5)
    table.maintenance.merge()
    clock.advance(DEFAULT_FENCE_HORIZON)
    collect_fully(table, clock)
    assert len(stored(table.internals.store, the_shard(table))[0]) == 1


def test_a_write_that_came_in_time_and_is_told_late_counts(
    table: weir.Table, clock: Clock, open_shard: OpenShard
) -> None:
    """The same answer as above, for rows that others have replayed: that is why it is no refusal."""
    uptime = Uptime()

    class SleepsAfterPut(LocalStore):
        armed = False

        def put_if_absent(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
            super().put_if_absent(path, data)
            if self.armed and "/wal/" in path:
                self.armed = False
                others_go_on(table, clock)
                uptime.seconds += DEFAULT_FENCE_HORIZON.total_seconds()

    store = SleepsAfterPut(table.uri, fsync=False)
    sleeper = open_shard(uptime, store)
    sleeper.submit(batch(1, "mine")).result()
    store.armed = True
    with pytest.raises(StorageError, match="it is unknown whether"):
        sleeper.submit(batch(1, "in time")).result()
    assert rows(weir.open(table.uri))[1] == "in time"


def test_an_entry_in_doubt_that_was_collected_is_not_written_again(
    table: weir.Table, clock: Clock, open_shard: OpenShard
) -> None:
    """The writer's own entry stood there, others covered it, and it needs no fence horizon to go."""

    class LosesOneAnswer(LocalStore):
        armed = False

        def put_if_absent(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
            super().put_if_absent(path, data)
            if self.armed and "/wal/" in path:
                self.armed = False
                raise StorageError("the connection was reset", where=path)

    uptime = Uptime()
    store = LosesOneAnswer(table.uri, fsync=False)
    writer = open_shard(uptime, store)
    last = writer.submit(batch(1, "before")).result()
    store.armed = True
    with pytest.raises(StorageError, match="reset"):
        writer.submit(batch(1, "in doubt")).result()
    write(table, 2)
    table.maintenance.merge()
    collect_fully(table, clock, horizon=timedelta(0))
    shard = the_shard(table)
    assert last + 1 not in stored(table.internals.store, shard)[0]
    naively(table.internals.store, shard, last + 1)
    with pytest.raises(FencedError):
        writer.submit(batch(1, "again")).result()
    assert rows(weir.open(table.uri)) == {0: "first", 1: "in doubt", 2: "x"}


def test_a_writer_that_rests_and_was_not_fenced_goes_on(
    table: weir.Table, clock: Clock, open_shard: OpenShard
) -> None:
    uptime = Uptime()
    writer = open_shard(uptime)
    writer.submit(batch(1, "before")).result()
    writer.flush()
    table.maintenance.merge()
    uptime.seconds += 10 * DEFAULT_FENCE_HORIZON.total_seconds()
    clock.advance(10 * DEFAULT_FENCE_HORIZON)
    collect_fully(table, clock)
    writer.submit(batch(1, "after")).result()
    writer.flush()
    assert rows(weir.open(table.uri)) == {0: "first", 1: "after"}


def test_a_writer_asks_for_the_manifest_only_after_a_rest(table: weir.Table, open_shard: OpenShard) -> None:
    uptime = Uptime()
    store = CountingStore(LocalStore(table.uri, fsync=False))
    writer = open_shard(uptime, store)
    for _ in range(3):
        uptime.seconds += MAX_UNCERTAIN_SECONDS - 1
        store.reset()
        writer.submit(batch(1, "often")).result()
        assert store.counts == {"put_if_absent": 1}
    uptime.seconds += MAX_UNCERTAIN_SECONDS + 1
    store.reset()
    writer.submit(batch(1, "after a rest")).result()
    # The hint, a look beyond the manifest it names, and that one.
    assert store.counts == {"get": 3, "put_if_absent": 1}


def test_the_limit_is_far_below_what_fences_are_kept_for() -> None:
    assert timedelta(seconds=10 * MAX_UNCERTAIN_SECONDS) <= timedelta(hours=1) < DEFAULT_FENCE_HORIZON


def test_a_claim_that_sleeps_before_its_fence(
    table: weir.Table, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Hours pass, which the clock of the system tells.
    monkeypatch.setattr("weir.engine.concurrent_map._WAVE_SECONDS", 0.0)

    class SleepsBeforeFence(Wal):
        def append(self, position: int, data: Sequence[Bytes]) -> None:
            others_go_on(table, clock)
            assert position not in stored(table.internals.store, the_shard(table))[0]
            super().append(position, data)

    store, shard = table.internals.store, the_shard(table)
    with pytest.raises(FencedError, match="while we were claiming it"):
        claim_shard(store, SleepsBeforeFence(store, shard, namespace="sleeper"), shard, ROWS)
    write(table, 7)
    assert rows(weir.open(table.uri)) == {0: "first", 100: "others", 101: "others", 102: "others", 7: "x"}


def test_a_claim_that_sleeps_before_it_reads_the_log_misses_nothing_its_lease_says(
    table: weir.Table, clock: Clock
) -> None:
    """What the lease says the log has reached is collected meanwhile: it is fenced, and no entry is lost."""
    write(table, 7, flush=False)

    class SleepsBeforeTail(Wal):
        def read_tail(self, manifest: ShardManifest, *, reached: int = 0) -> Iterator[PositionedEntry]:
            others_go_on(table, clock)
            return super().read_tail(manifest, reached=reached)

    store, shard = table.internals.store, the_shard(table)
    wal = SleepsBeforeTail(store, shard, namespace="sleeper")
    with pytest.raises(FencedError, match="while we were claiming it"):
        claim_shard(store, wal, shard, ROWS, lease_terms=LeaseTerms())
    assert rows(weir.open(table.uri)) == {0: "first", 7: "x", 100: "others", 101: "others", 102: "others"}


@pytest.mark.parametrize("sleeps_at", ["put", "after put"])
def test_a_flush_that_sleeps_at_its_manifest(
    table: weir.Table, clock: Clock, open_shard: OpenShard, sleeps_at: str
) -> None:
    """Others have published and collected versions beyond: it must not publish where nobody looks."""

    class Sleeps(LocalStore):
        armed = False

        def put_if_absent(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
            here = self.armed and path.endswith(".binpb")
            if here and sleeps_at == "put":
                self.armed = False
                others_go_on(table, clock)
            super().put_if_absent(path, data)
            if here and sleeps_at == "after put":
                self.armed = False
                others_go_on(table, clock)

    uptime = Uptime()
    store = Sleeps(table.uri, fsync=False)
    sleeper = open_shard(uptime, store)
    sleeper.submit(batch(1, "mine")).result()
    store.armed = True
    # Published in time or not, it is fenced now, and whoever fenced it has replayed what it wrote.
    with pytest.raises(FencedError):
        sleeper.flush()
    assert not store.armed
    expected = {0: "first", 1: "mine", 100: "others", 101: "others", 102: "others"}
    assert rows(weir.open(table.uri)) == rows(table) == expected
    _, manifests, _ = stored(table.internals.store, the_shard(table))
    assert manifests == list(range(manifests[0], manifests[-1] + 1))
    write(table, 8)
    table.maintenance.merge()
    assert rows(weir.open(table.uri)) == {**expected, 8: "x"}


def test_a_flush_that_sleeps_while_only_collection_goes_on(
    table: weir.Table, clock: Clock, open_shard: OpenShard
) -> None:
    """Nobody else claims the shard: its epoch is right, and its version is taken by collections.

    Without a flush nothing moves on the place where the merged generations end, and the manifests from
    there on stay. So the version cannot be gone.
    """

    class Sleeps(LocalStore):
        armed = False

        def put_if_absent(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
            if self.armed and path.endswith(".binpb"):
                self.armed = False
                before = stored(table.internals.store, shard)[1][-1]
                for _ in range(4):
                    update_manifest(table.internals.store, shard, lambda latest: latest)
                table.maintenance.merge()
                collect_fully(table, clock)
                assert before + 1 in stored(table.internals.store, shard)[1]
            super().put_if_absent(path, data)

    shard = the_shard(table)
    writer = open_shard(Uptime(), store := Sleeps(table.uri, fsync=False))
    writer.submit(batch(0, "second")).result()
    writer.flush()
    table.maintenance.merge()
    writer.submit(batch(1, "mine")).result()
    store.armed = True
    writer.flush()
    assert not store.armed
    writer.submit(batch(2, "after")).result()
    writer.flush()
    expected = {0: "second", 1: "mine", 2: "after"}
    assert rows(weir.open(table.uri)) == expected
    table.maintenance.merge()
    assert rows(weir.open(table.uri)) == expected
    assert rows(weir.open(table.uri), consistency="snapshot") == expected


def test_a_manifest_where_nobody_looks_is_taken_back(table: weir.Table, clock: Clock) -> None:
    store, shard = table.internals.store, the_shard(table)
    old = read_latest_manifest(store, shard)
    assert old is not None
    others_go_on(table, clock)
    versions = stored(store, shard)[1]
    gone = old.version + 1
    assert gone not in versions
    assert commit_manifest(store, replace(old, version=gone), after=old) is None
    assert stored(store, shard)[1] == versions
    # Right below those that are left nobody can tell by the names; it changes nothing there.
    assert commit_manifest(store, replace(old, version=versions[0] - 1), after=old) is None
    latest = read_latest_manifest(store, shard)
    assert latest is not None
    assert latest.version == versions[-1]


def test_the_first_manifest_of_a_shard_is_not_made_twice(tmp_path: Path, clock: Clock) -> None:
    table = create(tmp_path)
    store = table.internals.store
    for n in range(4):
        write(table, n)
    table.maintenance.merge()
    collect_fully(table, clock)
    shard = the_shard(table)
    versions = stored(store, shard)[1]
    assert versions[0] > 2
    first = ShardManifest(shard_id=shard, version=1, writer_epoch=1, shard_spec_id=1)
    assert commit_manifest(store, first, after=None) is None
    assert stored(store, shard)[1] == versions


def test_readers_of_collected_manifests_find_the_newest(table: weir.Table, clock: Clock) -> None:
    store, shard = table.internals.store, the_shard(table)
    known = read_latest_manifest(store, shard)
    assert known is not None
    others_go_on(table, clock)
    latest = read_latest_manifest(store, shard)
    assert latest is not None
    assert latest.version > known.version + 3
    assert read_latest_manifest(store, shard, known=known) == latest
    for hint in (known.version, known.version + 1, latest.version - 1, 1, latest.version + 40):
        store.put(layout.version_hint_path(shard), b'{"version":%d}' % hint)
        assert read_latest_manifest(store, shard) == latest
    store.delete([layout.version_hint_path(shard)])
    assert read_latest_manifest(store, shard) == latest


def test_a_reader_between_two_probes_while_both_are_collected(table: weir.Table, clock: Clock) -> None:
    """It has read a manifest, and before it asks for the next one, both are collected."""
    store, shard = table.internals.store, the_shard(table)
    hint = stored(store, shard)[1][-1]
    store.put(layout.version_hint_path(shard), b'{"version":%d}' % hint)

    class CollectsBetween(LocalStore):
        armed = True

        def get(self, path: str) -> Bytes:
            if self.armed and path == layout.manifest_path(shard, hint + 1):
                self.armed = False
                others_go_on(table, clock)
            return super().get(path)

    slow = CollectsBetween(table.uri, fsync=False)
    found = read_latest_manifest(slow, shard)
    assert slow.armed is False
    assert found == read_latest_manifest(store, shard)
    assert found is not None
    assert found.version > hint + 3

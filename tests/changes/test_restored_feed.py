"""A backup put in the place of a table whose changes are read: nothing written since then is passed over."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from tests.snapshots.test_restored import restore

import weir
from weir.changes.feed import ChangeBatch, ChangeFeed
from weir.engine.context import default_context
from weir.errors import CorruptionError, SnapshotExpiredError, WeirError
from weir.format.snapshot_token import ShardCut, SnapshotToken
from weir.snapshots.tokens import live_roots

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
NOW = timedelta(0)
ANOTHER = "is not the one whose position"


def write(table: weir.Table, *names: str, flush: bool = False) -> None:
    """Write one row a name, each in an entry of its own."""
    with table.writer(flush_on_close=flush, takeover=True) as writer:
        for name in names:
            writer.upsert([{"id": len(name), "name": name}])


def listed(changes: Iterable[ChangeBatch]) -> list[str]:
    return [name for change in changes for name in change.rows["name"].to_pylist()]


def collect(table: weir.Table) -> None:
    table.maintenance.merge()
    for _ in range(2):
        table.maintenance.collect_garbage(horizon=NOW, version_retention=NOW)


class _Trial:
    """A table of which a backup is put back after some writes, and what continues from before."""

    def __init__(self, place: Path, *, kept: int = 2, lost: int = 3, one_writer: bool = False) -> None:
        self.place, self.backup = place / "t", place / "backup"
        self.table = weir.create(self.place, SCHEMA, primary_key="id", fsync=False)
        with self.table.writer(flush_on_close=False) as writer:
            for n in range(kept):
                writer.upsert([{"id": n, "name": f"kept {n}"}])
            if one_writer:
                shutil.copytree(self.place, self.backup)
                for n in range(lost):
                    writer.upsert([{"id": n, "name": f"lost {n}"}])
        if not one_writer:
            shutil.copytree(self.place, self.backup)
            write(self.table, *(f"lost {n}" for n in range(lost)))

    def restored(self, *, after: int, flush: bool = False, forget: bool = True) -> weir.Table:
        """Put the backup back and write more than was lost."""
        restore(self.backup, self.place)
        if forget:
            default_context().cache.clear()
        table = weir.open(self.place, fsync=False)
        write(table, *(f"after {n}" for n in range(after)), flush=flush)
        return table


def token_of_snapshot(table: weir.Table) -> SnapshotToken | str:
    return str(table.snapshot(retain=None))


def token_of_feed(table: weir.Table) -> SnapshotToken | str:
    feed = table.changes()
    list(feed)
    return feed.token


def token_of_batch(table: weir.Table) -> SnapshotToken | str:
    return list(table.changes("earliest", batch_rows=1))[-1].token


def token_of_plan(table: weir.Table) -> SnapshotToken | str:
    return table.changes("earliest").plan(max_rows=100).until


def token_of_limited_plan(table: weir.Table) -> SnapshotToken | str:
    return table.changes("earliest").plan(max_rows=4).until


def token_of_a_reader_that_begins_late(table: weir.Table) -> SnapshotToken | str:
    """What it finds flushed already it does not look for in the log."""
    with table.writer(takeover=True) as writer:
        writer.flush()
    default_context().cache.clear()
    return weir.open(table.uri, fsync=False).snapshot(retain=None)


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize(
    "taken",
    [
        token_of_snapshot,
        token_of_feed,
        token_of_batch,
        token_of_plan,
        token_of_limited_plan,
        token_of_a_reader_that_begins_late,
    ],
)
def test_a_token_of_the_table_before_is_refused(
    tmp_path: Path, taken: Callable[[weir.Table], SnapshotToken | str], flush: bool
) -> None:
    trial = _Trial(tmp_path)
    token = taken(trial.table)
    table = trial.restored(after=12, flush=flush)
    with pytest.raises(CorruptionError, match=ANOTHER) as refused:
        table.changes(token)
    assert "a new token" in str(refused.value)
    with pytest.raises(CorruptionError, match=ANOTHER):
        table.changes(token, consumer="one")
    assert not live_roots(table.internals.store, datetime.now(UTC))
    with pytest.raises(WeirError):
        list(table.changes(table.snapshot(), until=token))
    with pytest.raises(CorruptionError, match=ANOTHER):
        list(table.changes("earliest", until=token))


@pytest.mark.parametrize("forget", [False, True])
@pytest.mark.parametrize("before", [False, True])
def test_a_consumer_of_the_table_before_is_refused(tmp_path: Path, before: bool, forget: bool) -> None:
    trial = _Trial(tmp_path)
    feed = trial.table.changes(consumer="one", before=before)
    assert listed(feed) == ["kept 0", "kept 1", "lost 0", "lost 1", "lost 2"]
    feed.commit()
    # A backup may have been taken without what Weir keeps beside the table.
    consumers, aside = trial.place / "_weir/consumers", tmp_path / "consumers"
    shutil.copytree(consumers, aside)
    restore(trial.backup, trial.place)
    shutil.copytree(aside, consumers)
    if forget:
        default_context().cache.clear()
    write(weir.open(trial.place, fsync=False), *(f"after {n}" for n in range(12)))
    with pytest.raises(CorruptionError, match=ANOTHER):
        trial.table.changes(consumer="one", before=before)
    trial.table.drop_consumer("one")
    assert listed(trial.table.changes(consumer="one"))[:2] == ["kept 0", "kept 1"]


@pytest.mark.parametrize("forget", [False, True])
@pytest.mark.parametrize("after", [0, 1, 3, 12])
@pytest.mark.parametrize("limit", [None, 1])
@pytest.mark.parametrize("one_writer", [False, True])
def test_a_feed_that_goes_on_says_so(
    tmp_path: Path, one_writer: bool, limit: int | None, after: int, forget: bool
) -> None:
    trial = _Trial(tmp_path, one_writer=one_writer)
    feed = weir.open(trial.place, fsync=False).changes()
    assert listed(feed)[-1] == "lost 2"
    feed = trial.table.changes(feed.token, max_rows=limit)
    trial.restored(after=after, forget=forget)
    refused = []
    for _ in range(2):
        try:
            list(feed)
        except CorruptionError as error:
            refused.append(str(error))
        write(trial.table, "more")
    assert refused
    assert all("place to go on from" in error for error in refused)


@pytest.mark.parametrize("collected", [False, True])
@pytest.mark.parametrize("lost", [0, 3])
def test_a_place_that_the_backup_has_is_gone_on_from(tmp_path: Path, lost: int, collected: bool) -> None:
    """What was read is part of the restored log as well, whatever became of the manifests since."""
    trial = _Trial(tmp_path, lost=lost)
    early = weir.open(trial.backup, fsync=False)
    token = str(early.snapshot(retain=None))
    feed = early.changes("earliest", consumer="one")
    list(feed)
    feed.commit()
    write(trial.table, "lost too", flush=True)
    table = trial.restored(after=12, flush=collected)
    if collected:
        collect(table)
        write(table, "last")
    expected = [f"after {n}" for n in range(12)] + ["last"] * collected
    assert listed(table.changes(token)) == listed(table.changes(consumer="one")) == expected


def test_the_entry_at_the_place_of_a_consumer_is_kept(tmp_path: Path) -> None:
    """It tells that the log is the one that the consumer knows, so long as that goes on after it."""
    trial = _Trial(tmp_path)
    table = trial.table
    feed = table.changes(consumer="one")
    list(feed)
    feed.commit()
    (cut,) = feed.token.shards
    assert cut.entry
    write(table, "flushed", flush=True)
    collect(table)
    default_context().cache.clear()
    table = weir.open(trial.place, fsync=False)
    names = {path.name for path in trial.place.glob("_mem_wal/*/wal/*")}
    feed = table.changes(consumer="one")
    assert listed(feed) == ["flushed"]
    feed.commit()
    write(table, "again", flush=True)
    collect(table)
    left = {path.name for path in trial.place.glob("_mem_wal/*/wal/*")}
    assert names - left
    assert listed(weir.open(trial.place, fsync=False).changes(consumer="one")) == ["again"]


def test_what_was_stored_without_an_entry_is_read(tmp_path: Path) -> None:
    trial = _Trial(tmp_path)
    token = trial.table.snapshot(retain=None)
    bare = replace(token, shards=tuple(replace(cut, entry=b"") for cut in token.shards))
    assert isinstance(bare.shards[0], ShardCut)
    trial.table.changes(bare, consumer="keeper")
    write(trial.table, "next", flush=True)
    collect(trial.table)
    write(trial.table, "last")
    assert listed(trial.table.changes(token)) == listed(trial.table.changes(bare)) == ["next", "last"]


@pytest.mark.parametrize("one_writer", [False, True])
@pytest.mark.parametrize("flush", [False, True])
def test_a_state_of_the_table_before_is_not_read_in_this_one(
    tmp_path: Path, flush: bool, one_writer: bool
) -> None:
    trial = _Trial(tmp_path, one_writer=one_writer)
    token = trial.table.snapshot(retain=None)
    assert "lost 2" in trial.table.scan(at=token).to_table()["name"].to_pylist()
    table = trial.restored(after=12, flush=flush)
    reads: list[Callable[[], object]] = [
        lambda: table.scan(at=token).to_table(),
        lambda: table.get([6], at=token),
        lambda: table.sql("SELECT * FROM this", at=token).to_table(),
    ]
    for read in reads:
        what = "WAL entry 6 .* was replaced" if one_writer else "version 2 of the manifest"
        with pytest.raises(SnapshotExpiredError, match=what):
            read()


@pytest.mark.parametrize("seed", range(12))
def test_every_row_comes_or_the_feed_says_why_not(tmp_path: Path, seed: int) -> None:
    """Whatever happens to table and log before and after, and whoever goes on from where."""
    pick = random.Random(seed)
    place, backup = tmp_path / "t", tmp_path / "backup"
    shards = pick.choice([1, 2])
    table = weir.create(place, SCHEMA, primary_key="id", shard_by=weir.bucket("id", shards), fsync=False)
    handle, number, history = weir.open(place, fsync=False), 0, list[str]()
    live: ChangeFeed = handle.changes("earliest")
    read = list[str]()

    def act() -> None:
        nonlocal number
        writer = pick.choice([table, handle, weir.open(place, fsync=False)])
        names = [f"{'x' * pick.randrange(20)}{number + n}" for n in range(pick.randrange(1, 4))]
        number += len(names)
        write(writer, *names, flush=pick.random() < 0.3)
        history.extend(names)
        if pick.random() < 0.3:
            writer.maintenance.merge()
        if pick.random() < 0.2:
            collect(writer)

    def step(feed: ChangeFeed) -> None:
        for change in feed:
            read.extend(change.rows["name"].to_pylist())

    for _ in range(pick.randrange(1, 4)):
        act()
    if pick.random() < 0.5:
        step(live)
    shutil.copytree(place, backup)
    kept = list(history)
    for _ in range(pick.randrange(4)):
        act()
    if pick.random() < 0.8:
        try:
            step(live)
        except SnapshotExpiredError:
            return
    token = str(live.token)
    has_lost = set(read) - set(kept)
    restore(backup, place)
    if pick.random() < 0.5:
        default_context().cache.clear()
    history[:] = kept
    refused = False
    for _ in range(pick.randrange(1, 8)):
        act()
        for feed in (live, None):
            if pick.random() < 0.3:
                try:
                    step(weir.open(place, fsync=False).changes(token) if feed is None else feed)
                except WeirError:
                    refused = True
    try:
        step(live)
    except WeirError:
        refused = True
    assert refused or set(history) <= set(read)
    assert refused or not has_lost

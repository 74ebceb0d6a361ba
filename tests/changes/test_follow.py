"""Following the change feed while others write: every change comes, once, and it ends when it is told to."""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.forked_program import weir_python

import weir
from weir.base.table import BaseTable
from weir.changes import feed as changes
from weir.changes import start as feed_start
from weir.engine.context import default_context
from weir.errors import ConflictError, OptionError, SnapshotExpiredError
from weir.format import wal_entry
from weir.format.wal_entry import wal_schema
from weir.format.wal_header import WalEntryHeader
from weir.log.wal import Wal
from weir.snapshots import consumers
from weir.snapshots.tokens import live_roots
from weir.storage.counting import CountingStore
from weir.storage.open import open_store
from weir.table.table import Table

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
SOON = timedelta(milliseconds=5)
LATER = timedelta(minutes=3)
"""Longer than anything takes that is to come, on however slow a machine."""
NOW = timedelta(0)
Written = tuple[int, str | None]


def rows(*pairs: tuple[int, str]) -> list[dict[str, Any]]:
    return [{"id": key, "name": name} for key, name in pairs]


def listed(change: changes.ChangeBatch) -> list[Written]:
    return list(zip(change.rows["id"].to_pylist(), change.rows["name"].to_pylist(), strict=True))


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    return weir.create(tmp_path / "t", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 3), fsync=False)


@pytest.mark.parametrize("max_rows", [None, 7])
def test_what_another_process_writes_is_followed_through_its_life(
    table: weir.Table, max_rows: int | None
) -> None:
    """It writes, deletes, flushes, is taken over, merges and collects; every write arrives, in order."""
    code = """
import sys, weir
from datetime import timedelta
table = weir.open(sys.argv[1], fsync=False)
for life in range(4):
    with table.writer(max_memtable_rows=9, takeover=True, flush_on_close=life % 2 == 0) as writer:
        for number in range(10):
            name = f"{life}.{number}"
            writer.upsert([{"id": key % 7, "name": name} for key in range(number, number + 4)])
        writer.delete([life, life + 1])
    if life % 2:
        table.maintenance.merge()
    for _ in range(2):
        table.maintenance.collect_garbage(horizon=timedelta(0), version_retention=timedelta(0))
with table.writer() as writer:
    writer.upsert([{"id": -1, "name": "end"}])
"""
    expected: dict[int, list[str | None]] = {-1: ["end"]}
    for life in range(4):
        for number in range(10):
            for key in range(number, number + 4):
                expected.setdefault(key % 7, []).append(f"{life}.{number}")
        for key in (life, life + 1):
            expected[key].append(None)
    feed = table.changes(consumer="watch", follow=True, poll=SOON, timeout=LATER, max_rows=max_rows)
    found: dict[int, list[str | None]] = {}

    def stop_if_it_fails(process: subprocess.Popen[bytes]) -> None:
        if process.wait() != 0:
            feed.stop()

    with subprocess.Popen([*weir_python(), code, table.uri]) as writer:
        try:
            threading.Thread(target=stop_if_it_fails, args=(writer,), daemon=True).start()
            for change in feed:
                for key, name in listed(change):
                    found.setdefault(key, []).append(name)
                feed.commit()
                if found == expected:
                    break
            assert writer.wait(timeout=120) == 0
        finally:
            writer.kill()
    assert found == expected
    assert list(table.changes(consumer="watch")) == []


def test_it_ends_when_nothing_has_come_for_long_enough(table: weir.Table) -> None:
    feed = table.changes(follow=True, poll=SOON, timeout=timedelta(milliseconds=60))
    assert list(feed) == []
    with table.writer() as writer:
        writer.upsert(rows((1, "a")))
        assert [one for change in feed for one in listed(change)] == [(1, "a")]
        writer.upsert(rows((2, "b")))
    at_once = table.changes(feed.token, follow=True, timeout=NOW, max_rows=1)
    assert [one for change in at_once for one in listed(change)] == [(2, "b")]


def test_another_thread_stops_it(table: weir.Table) -> None:
    feed = table.changes(follow=True, poll=timedelta(hours=1))
    found: list[Written] = []
    with table.writer() as writer:
        writer.upsert(rows((1, "a")))
        thread = threading.Thread(target=lambda: found.extend(one for c in feed for one in listed(c)))
        thread.start()
        while not found:
            time.sleep(0.005)
        feed.stop()
        thread.join(timeout=120)
        assert not thread.is_alive()
        writer.upsert(rows((2, "b")))
    assert found == [(1, "a")]
    # It can still be read, and waits no more.
    assert [one for change in feed for one in listed(change)] == [(2, "b")]


class _OnlyWaitsTakeTime:
    """Stands in for the module ``time``: passes by as much as its events are waited for, at once."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def event(self) -> threading.Event:
        clock = self

        class Event(threading.Event):
            def wait(self, timeout: float | None = None) -> bool:
                assert timeout is not None
                clock.seconds += timeout
                return self.is_set()

        return Event()


def test_waiting_costs_a_listing_and_a_probe_per_shard(
    table: weir.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with table.writer(flush_on_close=False) as writer:
        writer.upsert(rows(*((n, "a") for n in range(20))))
    default_context().cache.clear()
    store = CountingStore(open_store(table.uri, fsync=False))
    counted = Table(store, BaseTable.open(store))
    feed = counted.changes("earliest", follow=True, poll=timedelta(hours=1), timeout=timedelta(minutes=30))
    # However slow the machine is, it looks, waits until its time is over, and looks again.
    clock = _OnlyWaitsTakeTime()
    monkeypatch.setattr(changes, "time", clock)
    monkeypatch.setattr(feed, "_stopped", clock.event())
    list(feed)
    store.reset()
    list(feed)
    ends = {"list_directories": 1, "get": 4 * 3, "get_range": 3}
    probes = {"list_directories": 2, "head": 2 * 3}
    assert store.counts == Counter(ends) + Counter(probes)
    assert clock.seconds == 2 * 30 * 60


def test_what_was_collected_before_it_was_seen_is_named(
    table: weir.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next log entry is never there again: a look at it alone would wait for ever."""
    monkeypatch.setattr(changes, "_FULL_LOOK_SECONDS", 0.05)
    with table.writer() as writer:
        writer.upsert(rows((1, "a")))
    feed = table.changes(follow=True, poll=SOON, timeout=LATER)
    following = iter(feed)
    next(following)
    for _ in range(2):
        with weir.open(table.uri, fsync=False).writer() as writer:
            writer.upsert(rows((1, "b"), (1, "c")))
    table.maintenance.merge()
    for _ in range(2):
        table.maintenance.collect_garbage(horizon=NOW, version_retention=NOW)
    default_context().cache.clear()
    with pytest.raises(SnapshotExpiredError, match=r"WAL entry \d+ of shard .* is gone"):
        list(following)


def test_a_consumer_that_waits_is_not_taken_for_one_that_is_gone(
    table: weir.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Now(datetime):
        moment = datetime(2026, 1, 15, tzinfo=UTC)

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return cls.moment.astimezone(tz)

    for module in (consumers, feed_start):
        monkeypatch.setattr(module, "datetime", Now)
    store = open_store(table.uri, fsync=False)
    with table.writer() as writer:
        writer.upsert(rows((1, "a")))
    age = timedelta(minutes=8)
    feed = table.changes(consumer="patient", max_age=age)
    idle = table.changes(consumer="idle", max_age=age)
    list(feed)
    feed.commit()
    list(idle)
    wal = Wal(store, feed.token.shards[0].shard_id, namespace="another")
    end = feed.token.shards[0].position
    for number in range(1, 9):
        # It says that it is alive whenever a quarter of its limit has passed.
        Now.moment += age / 4 + timedelta(seconds=1)
        # A log goes on without changes: each claim of the shard leaves a fence there.
        wal.append(end + number, wal_entry.encode(WalEntryHeader(number + 1, fence=True), wal_schema(SCHEMA)))
        assert list(feed) == []
        # What it was given and has not acknowledged, it does not wait for.
        assert list(idle) == []
    assert [root.holder for root in live_roots(store, Now.moment)] == ["consumer patient"]


@pytest.mark.parametrize(
    "options",
    [
        {"poll": NOW},
        {"poll": "1s"},
        {"follow": True, "timeout": timedelta(seconds=-1)},
        {"follow": True, "timeout": "5s"},
        {"timeout": LATER},
        {"max_rows": 0},
        {"max_rows": "many"},
    ],
)
def test_options_are_checked(table: weir.Table, options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        table.changes(**options)


def test_an_end_and_following_contradict_each_other(table: weir.Table) -> None:
    with pytest.raises(OptionError, match="contradicts"):
        table.changes(until=table.snapshot(), follow=True)


# --- Two processes, one consumer ---------------------------------------------------------------

_COMPETE = """
import sys, weir
from weir.errors import ConflictError
table = weir.open(sys.argv[1], fsync=False)
sys.stdin.readline()
refused = 0
while True:
    try:
        feed = table.changes(consumer="shared", max_rows=1)
        mine = [row["id"] for change in feed for row in change.rows.to_pylist()]
        if not mine:
            break
        feed.commit()
    except ConflictError:
        refused += 1
        continue
    print(*mine, flush=True)
print("refused", refused)
"""


def test_of_two_processes_with_one_consumer_one_acknowledges_each_change(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with table.writer(flush_on_close=False) as writer:
        for number in range(60):
            writer.upsert(rows((number, "a")))
    table.changes(consumer="shared")
    both = [
        subprocess.Popen(
            [*weir_python(), _COMPETE, table.uri],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for one in both:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    lines = [line for one in both for line in one.communicate(timeout=120)[0].splitlines()]
    assert all(one.returncode == 0 for one in both)
    acknowledged = sorted(int(word) for line in lines if "refused" not in line for word in line.split())
    assert acknowledged == list(range(60))


def test_the_second_to_acknowledge_is_told(table: weir.Table) -> None:
    with table.writer() as writer:
        writer.upsert(rows((1, "a")))
    one, other = table.changes(consumer="c", follow=True), table.changes(consumer="c", follow=True)
    both: list[Iterator[changes.ChangeBatch]] = [iter(one), iter(other)]
    for feed in both:
        next(feed)
    one.commit()
    with pytest.raises(ConflictError, match="moved on by another feed"):
        other.commit()

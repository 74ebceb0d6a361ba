"""SIGKILL of real processes at every step of a collection, and collections beside everything else (I9).

Whatever was deleted and whatever was not: readers, a pinned snapshot, a consumer of the change feed and a
writer that was there all the time find what they need, and the next collection ends the work.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from operator import eq
from pathlib import Path

import pytest
from tests.crashes import kill_at, run, start, wait_for
from tests.maintenance.garbage.garbage_kit import create, rows, stored, write

import weir
from weir.engine.context import default_context
from weir.errors import SnapshotExpiredError
from weir.format.snapshot_token import SnapshotToken
from weir.write.table_writer import TableWriter

AT_ONCE = timedelta(0)

POINTS = [
    "garbage.before_manifest",
    "garbage.after_manifest",
    "garbage.before_mark",
    "garbage.after_mark",
    "garbage.before_delete",
    "garbage.between_deletes",
    "garbage.before_delete_manifests",
    "garbage.between_manifests",
    "garbage.between_manifests@3",
    "garbage.after_delete",
]


def collect_twice(uri: str) -> None:
    table = weir.open(uri, fsync=False)
    for _ in range(2):
        table.maintenance.collect_garbage(horizon=AT_ONCE)


def work_until_stopped(uri: str, work: str) -> None:
    table = weir.open(uri, fsync=False)
    while table.get([-1]).num_rows == 0:
        if work == "merge":
            table.maintenance.merge()
        else:
            table.maintenance.collect_garbage(horizon=timedelta(seconds=2))


class Scene:
    """A table with garbage, and with somebody who needs what is not."""

    def __init__(self, path: Path) -> None:
        self.table = create(path, shard_by=weir.bucket("id", 2))
        for n in range(4):
            write(self.table, *range(8), value=f"round {n}")
            self.table.maintenance.merge()
        self.writer: TableWriter = self.table.writer()
        self.model: dict[int, str] = dict.fromkeys(range(8), "round 3")
        self.upsert("before the snapshot")
        self.feed = self.table.changes(consumer="watcher")
        self.fed = self.follow()
        self.token = self.table.snapshot(retain=timedelta(hours=1))
        self.at_token = dict(self.model)
        self.writer.flush()
        self.table.maintenance.merge()
        self.upsert("after the snapshot")
        self.writer.flush()
        self.upsert("in the log")

    def upsert(self, value: str) -> None:
        self.model |= dict.fromkeys(range(8), value)
        self.writer.upsert([{"id": key, "value": value} for key in range(8)])

    def follow(self) -> dict[int, str]:
        seen: dict[int, str] = {}
        for batch in self.feed:
            seen |= {row["id"]: row["value"] for row in batch.rows.to_pylist()}
        self.feed.commit()
        return seen

    def check(self) -> None:
        """Compare what readers with and without memory see."""
        assert rows(self.table) == self.model
        default_context().cache.clear()
        elsewhere = weir.open(self.table.uri, fsync=False)
        assert rows(elsewhere) == self.model
        assert rows(elsewhere, at=self.token) == self.at_token

    def check_the_end(self) -> None:
        """End the work, let everybody go on, and look whether anything is left."""
        self.table.maintenance.collect_garbage(horizon=AT_ONCE)
        self.table.maintenance.collect_garbage(horizon=AT_ONCE)
        self.check()
        self.upsert("at the end")
        self.writer.close()
        self.check()
        assert self.follow() == self.model
        self.table.drop_consumer("watcher")
        self.table.release(self.token)
        self.table.maintenance.merge()
        for _ in range(2):
            self.table.maintenance.collect_garbage(horizon=AT_ONCE)
        report = self.table.maintenance.collect_garbage(horizon=AT_ONCE, dry_run=True)
        assert report.items == ()
        assert {one.reason for one in report.kept} <= {"they fence writers that may be asleep"}
        for shard in self.table.status().shards:
            log, manifests, directories = stored(self.table.internals.store, shard.shard_id)
            assert (len(log), directories) == (5, []), "one fence entry for each claim is left"
            assert manifests == list(range(manifests[-1] - len(manifests) + 1, manifests[-1] + 1))
            assert len(manifests) <= 3
        assert rows(weir.open(self.table.uri)) == self.model


@contextmanager
def scene(path: Path) -> Iterator[Scene]:
    made = Scene(path)
    try:
        yield made
    finally:
        made.writer.__exit__(RuntimeError, RuntimeError("end"), None)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("point", POINTS)
def test_killed_at(point: str, tmp_path: Path) -> None:
    with scene(tmp_path) as the:
        kill_at(point, collect_twice, the.table.uri)
        the.check()
        the.upsert("after a collection was killed")
        run(collect_twice, the.table.uri, kill_at=point)
        the.check()
        the.check_the_end()


def lowest_manifests(table: weir.Table) -> list[int]:
    return [stored(table.internals.store, shard.shard_id)[1][0] for shard in table.status().shards]


@pytest.mark.long
def test_two_collections_beside_a_writer_a_merger_and_readers(tmp_path: Path) -> None:
    """Three processes at once, and this one that writes, reads, and takes snapshots."""
    with scene(tmp_path) as the:
        uri, before = the.table.uri, lowest_manifests(the.table)
        others = [start(work_until_stopped, uri, work) for work in ("collect", "collect", "merge")]
        reader, rounds = weir.open(uri, fsync=False), 0
        loose: list[tuple[SnapshotToken, dict[int, str]]] = []
        give_up = time.monotonic() + 90
        while rounds < 12 or any(map(eq, before, lowest_manifests(the.table))):
            assert time.monotonic() < give_up, "nothing was collected"
            assert all(one.poll() is None for one in others), "a process has died"
            rounds += 1
            the.upsert(f"round {rounds}")
            if rounds % 3 == 0:
                the.writer.flush()
            loose = [*loose[-3:], (the.table.snapshot(retain=None), dict(the.model))]
            assert rows(reader) == the.model
            for token, state in loose:
                # Pinned by nobody: the state of its time, or an answer that says that it is gone.
                with suppress(SnapshotExpiredError):
                    assert rows(reader, at=token) == state
            if rounds % 5 == 0:
                the.check()
        the.writer.upsert([{"id": -1, "value": "stop"}])
        the.model[-1] = "stop"
        assert not any(wait_for(one).was_killed for one in others)
        the.check()
        the.check_the_end()

"""A table and its garbage collection driven through random histories, against a plain dict.

Time is a clock that the machine sets. Whatever is written, merged, collected or slept through, strong
reads show the dict; a token shows the dict of its time, or says what is gone, and never that while it is
pinned; consumers get every change; and once everything is merged and old, next to nothing is left.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.maintenance.garbage.garbage_kit import HORIZON, Clock, collect, collect_fully, create, rows, stored

import weir
from weir.engine import failpoint
from weir.engine.context import default_context
from weir.errors import FencedError, SnapshotExpiredError, WeirError
from weir.maintenance.garbage.garbage import DEFAULT_FENCE_HORIZON
from weir.write.table_writer import TableWriter

KEYS = st.integers(0, 7)
RETAINED = timedelta(hours=3)

FAILPOINTS = [
    "garbage.before_manifest",
    "garbage.after_manifest",
    "garbage.before_mark",
    "garbage.after_mark",
    "garbage.before_delete",
    "garbage.between_deletes",
    "garbage.before_delete_manifests",
    "garbage.between_manifests",
    "garbage.after_delete",
]


class CollectedTable(RuleBasedStateMachine):
    """Writers, some of them asleep, mergers, collectors, readers with and without memory, tokens."""

    @initialize(shards=st.sampled_from([1, 2]), memtable_rows=st.sampled_from([2, 100]))
    def create(self, shards: int, memtable_rows: int) -> None:
        self.directory = tempfile.mkdtemp(prefix="weir-collected-")
        self.table = create(Path(self.directory), shard_by=weir.bucket("id", shards))
        self.reader = weir.open(self.table.uri, fsync=False)
        self.memtable_rows = memtable_rows
        self.clock = Clock()
        self.writer: TableWriter | None = None
        self.asleep: list[TableWriter] = []
        self.model: dict[int, str] = {}
        self.tokens: list[tuple[Any, dict[int, str], bool]] = []
        self.feed = self.table.changes(consumer="watcher", max_age=timedelta(days=3650))
        self.fed: dict[int, str] = {}
        self.count = 0

    def teardown(self) -> None:
        for writer in (*getattr(self, "asleep", ()), getattr(self, "writer", None)):
            if writer is not None:
                writer.__exit__(RuntimeError, RuntimeError("end"), None)
        shutil.rmtree(getattr(self, "directory", ""), ignore_errors=True)

    def open_writer(self) -> TableWriter:
        if self.writer is None:
            self.writer = self.table.writer(max_memtable_rows=self.memtable_rows, takeover=True)
        return self.writer

    # Writing

    @rule(keys=st.lists(KEYS, min_size=1, max_size=4))
    def upsert(self, keys: list[int]) -> None:
        self.count += 1
        written = {key: f"{key} at {self.count}" for key in keys}
        self.open_writer().upsert([{"id": key, "value": value} for key, value in written.items()])
        self.model |= written

    @rule(keys=st.lists(KEYS, min_size=1, max_size=3))
    def delete(self, keys: list[int]) -> None:
        self.open_writer().delete(keys)
        for key in keys:
            self.model.pop(key, None)

    @rule()
    @precondition(lambda self: self.writer is not None)
    def flush(self) -> None:
        self.open_writer().flush()

    @rule(flush=st.booleans())
    @precondition(lambda self: self.writer is not None)
    def close(self, flush: bool) -> None:
        writer, self.writer = self.open_writer(), None
        if flush:
            writer.close()
        else:
            writer.__exit__(RuntimeError, RuntimeError("crash"), None)

    @rule()
    @precondition(lambda self: self.writer is not None)
    def fail_to_flush(self) -> None:
        """What a flush had written stays behind."""
        writer = self.open_writer()
        with failpoint.armed("flush.before_manifest", "raise"):
            try:
                writer.flush()
            except failpoint.FailpointError:
                self.writer = None
                writer.__exit__(RuntimeError, RuntimeError("crash"), None)

    @rule()
    @precondition(lambda self: self.writer is not None and len(self.asleep) < 2)
    def fall_asleep(self) -> None:
        """The writer hangs, and another takes its shards as soon as it writes to them."""
        self.asleep.append(self.open_writer())
        self.writer = None

    @rule()
    @precondition(lambda self: self.asleep)
    def wake_up(self) -> None:
        sleeper = self.asleep.pop()
        claimed = {shard.shard_id: shard.epoch for shard in self.table.status().shards}
        taken = [shard for shard, epoch in sleeper.epochs.items() if claimed[shard] > epoch]
        if len(taken) == len(claimed):
            with pytest.raises(FencedError):
                sleeper.upsert([{"id": key, "value": "too late"} for key in range(8)])
        sleeper.__exit__(RuntimeError, RuntimeError("end"), None)

    # Services

    @rule(elsewhere=st.booleans())
    def merge(self, elsewhere: bool) -> None:
        (self.reader if elsewhere else self.table).maintenance.merge()

    @rule(
        horizon=st.sampled_from([timedelta(0), HORIZON]),
        retention=st.sampled_from([None, None, timedelta(hours=1)]),
        elsewhere=st.booleans(),
    )
    def collect(self, horizon: timedelta, retention: timedelta | None, elsewhere: bool) -> None:
        table = self.reader if elsewhere else self.table
        planned = collect(table, self.clock, horizon=horizon, version_retention=retention, dry_run=True)
        done = collect(table, self.clock, horizon=horizon, version_retention=retention)
        assert planned.deleted_objects <= done.deleted_objects

    @rule(where=st.sampled_from(FAILPOINTS), at=st.sampled_from([1, 2]))
    def die_while_collecting(self, where: str, at: int) -> None:
        with failpoint.armed(where, f"raise@{at}"), suppress(failpoint.FailpointError):
            collect(self.table, self.clock, horizon=timedelta(0))

    @rule(time=st.sampled_from([HORIZON, timedelta(hours=2), DEFAULT_FENCE_HORIZON]))
    def let_time_pass(self, time: timedelta) -> None:
        self.clock.advance(time)
        self.tokens = [(token, state, False) for token, state, _ in self.tokens]

    # Reading

    @rule(pin=st.booleans())
    def take_token(self, pin: bool) -> None:
        token = self.table.snapshot(retain=RETAINED if pin else None)
        self.tokens = [*self.tokens[-3:], (token, dict(self.model), pin)]

    @rule(which=st.integers(0, 3), cold=st.booleans())
    @precondition(lambda self: self.tokens)
    def read_at_token(self, which: int, cold: bool) -> None:
        token, state, held = self.tokens[which % len(self.tokens)]
        if cold:
            default_context().cache.clear()
        try:
            assert rows(self.reader, at=token) == state
        except SnapshotExpiredError:
            assert not held, "a pinned snapshot is gone before its time"

    @rule()
    def follow(self) -> None:
        for batch in self.feed:
            for row in batch.rows.to_pylist():
                if row["_op"] == "delete":
                    self.fed.pop(row["id"], None)
                else:
                    self.fed[row["id"]] = row["value"]
        self.feed.commit()
        assert self.fed == self.model

    @rule(cold=st.booleans(), rested=st.booleans())
    def scan(self, cold: bool, rested: bool) -> None:
        if cold:
            default_context().cache.clear()
        if rested:
            for known in self.reader.internals.reader.snapshots._shards.values():
                known._manifest_read_at -= 3600
        assert rows(self.reader) == self.model

    @rule(keys=st.lists(KEYS, min_size=1, max_size=4, unique=True))
    def get(self, keys: list[int]) -> None:
        found = self.reader.get(keys).to_pylist()
        assert [(row["id"], row["value"]) for row in found] == [
            (key, self.model[key]) for key in keys if key in self.model
        ]

    @rule()
    def count_rows(self) -> None:
        # By another handle: the reader is to rest now and then, and to wake up to a changed world.
        assert self.table.scan().count() == len(self.model)

    @rule()
    def open_anew(self) -> None:
        self.reader = weir.open(self.table.uri, fsync=False)

    @rule()
    def read_what_is_published(self) -> None:
        """Behind, perhaps, and never missing a file."""
        rows(self.reader, consistency="snapshot")

    @rule()
    def come_to_rest(self) -> None:
        """Merged, old, and nobody needs anything: next to nothing may be left."""
        with self.table.writer(takeover=True) as writer:
            writer.upsert([{"id": key, "value": "last"} for key in range(8)])
        self.model = dict.fromkeys(range(8), "last")
        self.let_go()
        self.table.maintenance.merge()
        self.follow()
        self.clock.advance(RETAINED + DEFAULT_FENCE_HORIZON)
        self.tokens = [(token, state, False) for token, state, _ in self.tokens]
        for _ in range(2):
            collect_fully(self.table, self.clock, version_retention=timedelta(hours=1))
        for shard in self.table.status().shards:
            log, manifests, directories = stored(self.table.internals.store, shard.shard_id)
            # The last entry, and the one at the place of the consumer.
            assert len(log) <= 2
            assert len(manifests) <= 4
            assert directories == []

    def let_go(self) -> None:
        writer, self.writer = self.writer, None
        if writer is not None:
            try:
                writer.close()
            except WeirError:
                writer.__exit__(RuntimeError, RuntimeError("end"), None)


@pytest.mark.parametrize("histories", [2, pytest.param(40, marks=pytest.mark.long)])
def test_collected_table_equals_a_dict(histories: int) -> None:
    run_state_machine_as_test(
        CollectedTable,
        settings=settings(
            max_examples=histories,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )

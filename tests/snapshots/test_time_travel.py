"""Tokens and the change feed on a table that is driven through its life in random order, against plain dicts.

The model is a dict, the list of everything that was written, and for every token a copy of the dict and the
length of the list. A token shows its dict for as long as it is pinned, whatever is written, flushed, merged,
compacted or collected afterwards (invariants I8 and I9). The feed from one token to another yields what was
written in between, for every key in order, each change with what the dict held before it; a consumer gets
everything exactly once, from wherever it has acknowledged. What is not pinned is right, or expired by name.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import hypothesis.strategies as st
import lance
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

import weir
from weir.changes import before_image as row_before
from weir.changes.feed import ChangeBatch
from weir.engine.context import default_context
from weir.errors import FencedError, LeaseHeldError, SnapshotExpiredError
from weir.format.snapshot_token import SnapshotToken
from weir.write.table_writer import TableWriter

Key = tuple[Any, ...]
Row = tuple[Any, Any]

KEYS: dict[str, tuple[list[pa.Field], st.SearchStrategy[Key]]] = {
    "int64": ([pa.field("id", pa.int64(), nullable=False)], st.tuples(st.integers(-3, 8))),
    "composite": (
        [pa.field("site", pa.string(), nullable=False), pa.field("id", pa.int32(), nullable=False)],
        st.tuples(st.sampled_from(["", "a'b", "é"]), st.integers(-1, 2)),
    ),
}
VALUES = st.tuples(st.none() | st.sampled_from(["red", "green"]), st.none() | st.integers(0, 9))
NOW = timedelta(0)


@dataclass
class Remembered:
    """What the table was when a token was taken."""

    text: str
    pinned: bool
    rows: dict[Key, Row]
    written: int


class TimeTravelMachine(RuleBasedStateMachine):
    """A table, its tokens and a consumer of its changes."""

    fields: list[pa.Field]
    keys: st.SearchStrategy[Key]

    @initialize(shards=st.sampled_from([None, 3]), memtable_rows=st.sampled_from([3, 100]))
    def create(self, shards: int | None, memtable_rows: int) -> None:
        self.directory = tempfile.mkdtemp(prefix="weir-time-travel-")
        schema = pa.schema([*self.fields, ("color", pa.string()), ("number", pa.int64())])
        self.names = [field.name for field in self.fields]
        shard_by = None if shards is None else weir.bucket(self.names[-1], shards)
        uri = f"{self.directory}/table"
        self.table = weir.create(uri, schema, primary_key=self.names, shard_by=shard_by, fsync=False)
        self.memtable_rows = memtable_rows
        self.writer: TableWriter | None = None
        self.rows: dict[Key, Row] = {}
        self.written: list[tuple[Key, Row | None]] = []
        self.tokens: list[Remembered] = []
        self.collected = False
        self.acknowledged: dict[Key, int] | None = None

    def teardown(self) -> None:
        if getattr(self, "writer", None) is not None:
            self.lose_writer()
        shutil.rmtree(getattr(self, "directory", ""), ignore_errors=True)

    def lose_writer(self) -> None:
        assert self.writer is not None
        self.writer.__exit__(RuntimeError, RuntimeError("end"), None)
        self.writer = None

    def open_writer(self, *, takeover: bool = False) -> TableWriter:
        if self.writer is None:
            self.writer = self.table.writer(max_memtable_rows=self.memtable_rows, takeover=takeover)
        return self.writer

    def as_rows(self, items: list[tuple[Key, Row]]) -> list[dict[str, Any]]:
        return [
            {**dict(zip(self.names, key, strict=True)), "color": color, "number": number}
            for key, (color, number) in items
        ]

    def key_of(self, row: dict[str, Any]) -> Key:
        return tuple(row[name] for name in self.names)

    def as_dict(self, found: pa.Table) -> dict[Key, Row]:
        rows = {self.key_of(row): (row["color"], row["number"]) for row in found.to_pylist()}
        assert len(rows) == found.num_rows
        return rows

    # Writing

    @rule(data=st.data())
    def upsert(self, data: st.DataObject) -> None:
        items = data.draw(st.lists(st.tuples(self.keys, VALUES), min_size=1, max_size=5))
        self.open_writer().upsert(self.as_rows(items))
        self.rows.update(items)
        self.written += items

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        keys = data.draw(st.lists(self.keys, min_size=1, max_size=3))
        self.open_writer().delete([key[0] for key in keys] if len(self.names) == 1 else keys)
        for key in keys:
            self.rows.pop(key, None)
            self.written.append((key, None))

    @rule()
    @precondition(lambda self: self.writer is not None)
    def flush(self) -> None:
        assert self.writer is not None
        self.writer.flush()

    @rule(forget=st.booleans())
    @precondition(lambda self: self.writer is not None)
    def crash(self, forget: bool) -> None:
        self.lose_writer()
        if forget:
            default_context().cache.clear()
            self.table = weir.open(self.table.uri, fsync=False)

    @rule()
    @precondition(lambda self: self.writer is not None and self.rows)
    def take_over(self) -> None:
        """What the fenced writer tries to write is not accepted, and never in the feed."""
        fenced, self.writer = self.writer, None
        assert fenced is not None
        items = list(self.rows.items())
        self.open_writer(takeover=True).upsert(self.as_rows(items))
        self.written += items
        if set(fenced.epochs) <= set(self.open_writer().epochs):
            with pytest.raises((FencedError, LeaseHeldError)):
                fenced.upsert(self.as_rows([(items[0][0], ("fenced", 0))]))
        fenced.__exit__(RuntimeError, RuntimeError("fenced"), None)

    @rule()
    def merge(self) -> None:
        self.table.maintenance.merge()

    @rule()
    def compact(self) -> None:
        lance.dataset(self.table.uri).optimize.compact_files()

    @rule(retention=st.sampled_from([None, NOW]))
    def collect(self, retention: timedelta | None) -> None:
        for _ in range(2):
            self.table.maintenance.collect_garbage(horizon=NOW, version_retention=retention)
        self.collected = True

    # Tokens

    @rule(pinned=st.booleans())
    def snapshot(self, pinned: bool) -> None:
        token = self.table.snapshot(retain=timedelta(hours=1) if pinned else None)
        assert (token.pin is not None) == pinned
        self.tokens.append(Remembered(str(token), pinned, dict(self.rows), len(self.written)))

    @rule(data=st.data())
    @precondition(lambda self: self.tokens)
    def release(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.tokens))
        self.table.release(one.text)
        one.pinned = False

    @rule(data=st.data(), cold=st.booleans())
    @precondition(lambda self: self.tokens)
    def read_at(self, data: st.DataObject, cold: bool) -> None:
        if cold:
            default_context().cache.clear()
            self.table = weir.open(self.table.uri, fsync=False)
        one = data.draw(st.sampled_from(self.tokens))
        wanted = data.draw(st.lists(self.keys, min_size=1, max_size=4))
        try:
            assert self.as_dict(self.table.scan(at=one.text).to_table()) == one.rows
            assert self.table.scan(at=one.text).count() == len(one.rows)
            assert self.table.scan(at=one.text, filter="number > 4").count() == sum(
                number is not None and number > 4 for _, number in one.rows.values()
            )
            keys = [key[0] for key in wanted] if len(self.names) == 1 else wanted
            found = self.as_dict(self.table.get(keys, at=one.text))
            assert found == {key: one.rows[key] for key in wanted if key in one.rows}
        except SnapshotExpiredError:
            assert self.collected
            assert not one.pinned

    @rule()
    def read_now(self) -> None:
        assert self.as_dict(self.table.scan().to_table()) == self.rows

    # Changes

    def check(
        self,
        changes: list[ChangeBatch],
        written: list[tuple[Key, Row | None]],
        start: dict[Key, Row] | None,
    ) -> None:
        """Compare changes with what was written, and with the rows they were applied to."""
        expected: dict[Key, list[Row | None]] = {}
        for key, row in written:
            expected.setdefault(key, []).append(row)
        found: dict[Key, list[Row | None]] = {}
        current = None if start is None else dict(start)
        order: dict[str, tuple[int, int]] = {}
        for change in changes:
            rows = change.rows.to_pylist()
            assert {row["_shard"] for row in rows} == {str(change.shard_id)}
            assert (rows[-1]["_position"], rows[-1]["_epoch"]) == (change.position, change.epoch)
            for row in rows:
                place = (row["_epoch"], row["_position"])
                assert order.get(row["_shard"], (0, 0)) <= place
                order[row["_shard"]] = place
                key, after = self.key_of(row), (row["color"], row["number"])
                found.setdefault(key, []).append(after if row["_op"] == "upsert" else None)
                if current is not None:
                    before = row["_before"]
                    held = None if before is None else (before["color"], before["number"])
                    assert held == current.get(key)
                    assert before is None or self.key_of(before) == key
                    current.pop(key, None)
                    if row["_op"] == "upsert":
                        current[key] = after
        assert found == expected

    @rule(
        data=st.data(),
        before=st.booleans(),
        batch_rows=st.sampled_from([1, 3, 1000]),
        max_rows=st.sampled_from([None, 1, 7]),
        by_plan=st.booleans(),
    )
    def changes(
        self, data: st.DataObject, before: bool, batch_rows: int, max_rows: int | None, by_plan: bool
    ) -> None:
        start = data.draw(st.sampled_from([None, *self.tokens]))
        later = [one for one in self.tokens if start is None or one.written >= start.written]
        end = data.draw(st.sampled_from([None, *later]))
        try:
            found, place = self.read_all(
                None if start is None else start.text,
                by_plan,
                until=None if end is None else end.text,
                before=before,
                batch_rows=batch_rows,
                max_rows=max_rows,
            )
        except SnapshotExpiredError:
            assert self.collected
            assert start is None or not start.pinned
            return
        first = 0 if start is None else start.written
        last = len(self.written) if end is None else end.written
        rows = {} if start is None else start.rows
        self.check(found, self.written[first:last], rows if before else None)
        # The place it has come to is a state of the table, where its state is stored.
        with suppress(SnapshotExpiredError):
            if place.base_version:
                there = self.as_dict(self.table.scan(at=place).to_table())
                assert there == (self.rows if end is None else end.rows)

    def read_all(
        self, since: str | None, by_plan: bool, **options: Any
    ) -> tuple[list[ChangeBatch], SnapshotToken]:
        """Read until there is no more, by iterating or by plans that are read in pieces; return the place."""
        feed = self.table.changes(since, **options)
        found: list[ChangeBatch] = []
        while True:
            if by_plan:
                plan = feed.plan(range_entries=2)
                some = [
                    ChangeBatch(one.shard_id, part.position, part.epoch, part.rows, plan.until)
                    for one in plan.ranges
                    for part in one.batches()
                ]
                feed = self.table.changes(plan.until, **options)
            else:
                some = list(feed)
            if not some:
                return found, feed.token
            found += some

    @rule(before=st.booleans())
    @precondition(lambda self: self.acknowledged is None)
    def begin_to_consume(self, before: bool) -> None:
        token = self.table.snapshot(retain=None)
        self.consumer_before = before
        self.table.changes(token, consumer="model", before=before)
        self.acknowledged = {}
        for key, _ in self.written:
            self.acknowledged[key] = self.acknowledged.get(key, 0) + 1

    @rule(data=st.data(), batch_rows=st.sampled_from([1, 4, 1000]))
    @precondition(lambda self: self.acknowledged is not None)
    def consume(self, data: st.DataObject, batch_rows: int) -> None:
        """Read everything, acknowledge some of it, and begin after that the next time."""
        assert self.acknowledged is not None
        left: list[tuple[Key, Row | None]] = []
        seen: dict[Key, int] = {}
        start: dict[Key, Row] = {}
        for key, row in self.written:
            seen[key] = seen.get(key, 0) + 1
            if seen[key] > self.acknowledged.get(key, 0):
                left.append((key, row))
            else:
                start.pop(key, None)
                if row is not None:
                    start[key] = row
        feed = self.table.changes(consumer="model", before=self.consumer_before, batch_rows=batch_rows)
        found = []
        stop_after = data.draw(st.integers(0, 5))
        for change in feed:
            found.append(change)
            if len(found) == stop_after:
                feed.commit()
                for row in (row for one in found for row in one.rows.to_pylist()):
                    key = self.key_of(row)
                    self.acknowledged[key] = self.acknowledged.get(key, 0) + 1
        self.check(found, left, start if self.consumer_before else None)
        if len(found) < stop_after:
            feed.commit()
            self.acknowledged = seen


@pytest.mark.hypothesis
@pytest.mark.one_in(2)
@pytest.mark.parametrize(("kind", "tail_bytes"), [("int64", 1 << 28), ("composite", 1 << 28), ("int64", 0)])
def test_tokens_and_changes_equal_a_dict(kind: str, tail_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # With 0, what generations cover is read from them as early as can be.
    monkeypatch.setattr(row_before, "_MAX_TAIL_BYTES", tail_bytes)
    fields, keys = KEYS[kind]
    machine = type(f"TimeTravelMachine_{kind}", (TimeTravelMachine,), {"fields": fields, "keys": keys})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=settings().max_examples // 4,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )

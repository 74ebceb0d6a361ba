"""Tables of other kinds driven through their life: merge engines, expiry, rows that are only added.

What a table of each kind comes to is a function of few lines over plain values, applied write by write.
Whatever the engine does, a strong read shows that (invariants I1, I5, I6, I7), and a write that is repeated
under its id counts once.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import weir
from weir.engine.context import default_context
from weir.write.table_writer import TableWriter

Values = tuple[str | None, int | None, datetime | None]
Item = tuple[int, Values]

PAST, FUTURE = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
ITEMS = st.lists(
    st.tuples(
        st.integers(0, 8),
        st.tuples(
            st.none() | st.sampled_from(["red", "green", "blue"]),
            st.none() | st.integers(-3, 9),
            st.sampled_from([None, PAST, FUTURE]),
        ),
    ),
    min_size=1,
    max_size=6,
)
FIELDS = [("color", pa.string()), ("number", pa.int64()), ("gone", pa.timestamp("us", "UTC"))]


def summed(old: Values | None, new: Values) -> Values:
    before = old or (None, None, None)
    numbers = [one for one in (before[1], new[1]) if one is not None]
    return new[0] or before[0], sum(numbers) if numbers else None, new[2] or before[2]


def kept(old: Values | None, new: Values) -> Values:
    before = old or (None, None, None)
    return cast(Values, tuple(a if b is None else b for a, b in zip(before, new, strict=True)))


def highest(old: Values | None, new: Values) -> Values:
    def rank(values: Values) -> int:
        return -4 if values[1] is None else values[1]

    return new if old is None or rank(new) >= rank(old) else old


Comes = Callable[[Values | None, Values], Values]
KINDS: dict[str, tuple[Comes, dict[str, Any]]] = {
    "sum": (summed, {"merge_engine": weir.MergeEngine.aggregation(number="sum")}),
    "partial update": (kept, {"merge_engine": "partial_update"}),
    "first row": (lambda old, new: old or new, {"merge_engine": "first_row"}),
    "sequence": (highest, {"sequence_by": "number"}),
    "expiring": (lambda _, new: new, {"expire_by": "gone"}),
}


class KindMachine(RuleBasedStateMachine):
    """One writer at a time, crashes, flushes, merges and readers on one table."""

    kind: str

    @initialize(shards=st.sampled_from([None, 3]), memtable_rows=st.sampled_from([3, 100]))
    def create(self, shards: int | None, memtable_rows: int) -> None:
        self.directory = tempfile.mkdtemp(prefix="weir-kinds-")
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False), *FIELDS])
        options = {} if self.is_added else {"primary_key": "id", **KINDS[self.kind][1]}
        shard_by = None if shards is None else weir.bucket("id", shards)
        self.table = weir.create(
            f"{self.directory}/table",
            schema,
            fsync=False,
            shard_by=shard_by,
            **{"primary_key": None, **options},
        )
        self.reader = weir.open(self.table.uri, fsync=False)
        self.memtable_rows = memtable_rows
        self.writer: TableWriter | None = None
        self.rows: dict[int, Values] = {}
        self.added: Counter[Item] = Counter()
        self.once: tuple[list[Item], str] | None = None
        self.requests = 0

    @property
    def is_added(self) -> bool:
        return self.kind == "append only"

    def teardown(self) -> None:
        if getattr(self, "writer", None) is not None:
            self.crash(False)
        shutil.rmtree(getattr(self, "directory", ""), ignore_errors=True)

    def open_writer(self) -> TableWriter:
        if self.writer is None:
            self.writer = self.table.writer(max_memtable_rows=self.memtable_rows)
        return self.writer

    def come(self, items: list[Item]) -> None:
        if self.is_added:
            self.added.update(items)
            return
        comes = KINDS[self.kind][0]
        for key, values in items:
            self.rows[key] = comes(self.rows.get(key), values)

    def shown(self) -> Counter[Item]:
        if self.is_added:
            return self.added
        live = self.rows.items()
        return Counter(one for one in live if self.kind != "expiring" or one[1][2] != PAST)

    @staticmethod
    def as_rows(items: list[Item]) -> list[dict[str, Any]]:
        return [{"id": key, "color": c, "number": n, "gone": gone} for key, (c, n, gone) in items]

    @staticmethod
    def items_of(found: pa.Table) -> Counter[Item]:
        return Counter((row["id"], (row["color"], row["number"], row["gone"])) for row in found.to_pylist())

    @rule(items=ITEMS)
    def upsert(self, items: list[Item]) -> None:
        self.open_writer().upsert(self.as_rows(items))
        self.come(items)

    @rule(items=ITEMS)
    def upsert_once(self, items: list[Item]) -> None:
        self.requests += 1
        self.once = items, f"request {self.requests}"
        result = self.open_writer().upsert(self.as_rows(items), source=weir.Source.once(self.once[1]))
        assert (result.rows, result.deduplicated) == (len(items), ())
        self.come(items)

    @rule()
    @precondition(lambda self: self.once is not None)
    def repeat_once(self) -> None:
        assert self.once is not None
        items, request = self.once
        result = self.open_writer().upsert(self.as_rows(items), source=weir.Source.once(request))
        assert result.rows == len(items)
        assert result.deduplicated

    @rule(keys=st.lists(st.integers(0, 8), min_size=1, max_size=3))
    @precondition(lambda self: not self.is_added and self.kind != "sequence")
    def delete(self, keys: list[int]) -> None:
        self.open_writer().delete(keys)
        for key in keys:
            self.rows.pop(key, None)

    @rule(color=st.sampled_from(["red", "green"]))
    @precondition(lambda self: self.is_added)
    def delete_where(self, color: str) -> None:
        self.open_writer().delete(where=f"color = '{color}'")
        self.added = Counter({one: count for one, count in self.added.items() if one[1][0] != color})

    @rule()
    @precondition(lambda self: self.kind == "expiring")
    def expire(self) -> None:
        self.table.maintenance.expire()

    @rule()
    @precondition(lambda self: self.writer is not None)
    def flush(self) -> None:
        assert self.writer is not None
        self.writer.flush()

    @rule()
    @precondition(lambda self: self.writer is not None)
    def close(self) -> None:
        assert self.writer is not None
        self.writer.close()
        self.writer = None

    @rule(forget=st.booleans())
    @precondition(lambda self: self.writer is not None)
    def crash(self, forget: bool) -> None:
        """The writer is gone without a word; with ``forget`` so is all this process remembers."""
        assert self.writer is not None
        self.writer.__exit__(RuntimeError, RuntimeError("crash"), None)
        self.writer = None
        if forget:
            default_context().cache.clear()
            self.table = weir.open(self.table.uri, fsync=False)

    @rule(elsewhere=st.booleans())
    def merge(self, elsewhere: bool) -> None:
        (self.reader if elsewhere else self.table).maintenance.merge()

    @rule(shards=st.sampled_from([2, 4]))
    @precondition(lambda self: not self.is_added)
    def reshard(self, shards: int) -> None:
        self.table.alter(shard_by=weir.bucket("id", shards))
        self.reader = weir.open(self.table.uri, fsync=False)

    @rule(cold=st.booleans())
    def scan(self, cold: bool) -> None:
        if cold:
            default_context().cache.clear()
        assert self.items_of(self.reader.scan().to_table()) == self.shown()

    @rule(keys=st.lists(st.integers(0, 8), min_size=1, max_size=4, unique=True))
    @precondition(lambda self: not self.is_added)
    def get(self, keys: list[int]) -> None:
        expected = {one: 1 for one in self.shown() if one[0] in keys}
        assert self.items_of(self.reader.get(keys)) == expected

    @invariant()
    def counts(self) -> None:
        if hasattr(self, "requests"):
            assert self.reader.scan().count() == self.shown().total()


@pytest.mark.hypothesis
@pytest.mark.parametrize("kind", [*KINDS, "append only"])
def test_a_table_of_each_kind_shows_what_its_writes_come_to(kind: str) -> None:
    machine = type(f"KindMachine_{kind.replace(' ', '_')}", (KindMachine,), {"kind": kind})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=max(settings().max_examples // 8, 2),
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )

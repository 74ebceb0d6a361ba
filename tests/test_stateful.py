"""A table driven through every step of its life in random order, against a plain dict.

The model is one dict from key to row and the list of states it has been through. Whatever the engine
does, a strong read shows the dict; a bounded or snapshot read shows, for every key, a version that the
key has had (invariants I1, I5, I6, I7, I12).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from typing import Any, Literal

import hypothesis.strategies as st
import lance
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
from tests.search.search_model import check_ranking, nearest, text_scores
from weir.engine.context import default_context
from weir.errors import FencedError
from weir.write.table_writer import TableWriter

Key = tuple[Any, ...]

KEYS: dict[str, tuple[list[pa.Field], st.SearchStrategy[Key]]] = {
    "int64": ([pa.field("id", pa.int64(), nullable=False)], st.tuples(st.integers(-5, 12))),
    "uint16": ([pa.field("id", pa.uint16(), nullable=False)], st.tuples(st.integers(65525, 65535))),
    "string": (
        [pa.field("id", pa.string(), nullable=False)],
        st.tuples(st.sampled_from(["", "a", "b", "a'b", 'x"y', "é", "aa", "\x00", "a\x00", "long " * 20])),
    ),
    "composite": (
        [pa.field("site", pa.string(), nullable=False), pa.field("id", pa.int32(), nullable=False)],
        st.tuples(st.sampled_from(["", "a", "b'"]), st.integers(-2, 3)),
    ),
}

VALUES = st.tuples(st.none() | st.sampled_from(["red", "green", "blue"]), st.none() | st.integers(0, 9))
FILTERS: list[tuple[str, Callable[[Any, Any], bool]]] = [
    ("number > 4", lambda color, number: number is not None and number > 4),
    ("color = 'red'", lambda color, number: color == "red"),
    ("color IS NULL OR number IN (1, 2)", lambda color, number: color is None or number in (1, 2)),
    ("NOT (color = 'red')", lambda color, number: color is not None and color != "red"),
    (
        "color LIKE '%e%' AND number <= 7",
        lambda c, n: c is not None and "e" in c and n is not None and n <= 7,
    ),
]


class TableMachine(RuleBasedStateMachine):
    """Writers, crashes, flushes, merges and readers on one table."""

    fields: list[pa.Field]
    keys: st.SearchStrategy[Key]

    @initialize(shards=st.sampled_from([None, 1, 3]), memtable_rows=st.sampled_from([3, 100]))
    def create(self, shards: int | None, memtable_rows: int) -> None:
        self.directory = tempfile.mkdtemp(prefix="weir-stateful-")
        uri = f"{self.directory}/table"
        schema = pa.schema(
            [
                *self.fields,
                ("color", pa.string()),
                ("number", pa.int64()),
                ("vector", pa.list_(pa.float32(), 2)),
            ]
        )
        names = [field.name for field in self.fields]
        shard_by = None if shards is None else weir.bucket(names[-1], shards)
        self.table = weir.create(uri, schema, primary_key=names, shard_by=shard_by, fsync=False)
        lance.dataset(uri).create_scalar_index("color", "INVERTED", stem=False)
        self.reader = weir.open(uri, fsync=False)
        self.memtable_rows = memtable_rows
        self.shards = shards
        self.writer: TableWriter | None = None
        self.fenced: TableWriter | None = None
        self.model: dict[Key, tuple[Any, Any]] = {}
        self.history: dict[Key, set[tuple[Any, Any] | None]] = {}
        self.marked: tuple[list[dict[str, Any]], weir.Source] | None = None

    def teardown(self) -> None:
        for writer in (getattr(self, "writer", None), getattr(self, "fenced", None)):
            if writer is not None:
                writer.__exit__(RuntimeError, RuntimeError("end"), None)
        shutil.rmtree(getattr(self, "directory", ""), ignore_errors=True)

    def open_writer(self) -> TableWriter:
        if self.writer is None:
            # The former writer may hold leases still, on other shards than those that were claimed.
            takeover = self.fenced is not None
            self.writer = self.table.writer(max_memtable_rows=self.memtable_rows, takeover=takeover)
        return self.writer

    def remember(self, key: Key, row: tuple[Any, Any] | None) -> None:
        self.history.setdefault(key, {None}).add(row)
        if row is None:
            self.model.pop(key, None)
        else:
            self.model[key] = row

    def as_rows(self, items: list[tuple[Key, tuple[Any, Any]]]) -> list[dict[str, Any]]:
        names = [field.name for field in self.fields]
        return [
            {
                **dict(zip(names, key, strict=True)),
                "color": color,
                "number": number,
                "vector": None if number is None else [float(number), float(len(repr(key)))],
            }
            for key, (color, number) in items
        ]

    def from_table(self, found: pa.Table) -> list[tuple[Key, tuple[Any, Any]]]:
        names = [field.name for field in self.fields]
        return [
            (tuple(row[name] for name in names), (row["color"], row["number"])) for row in found.to_pylist()
        ]

    # Writing

    @rule(data=st.data(), later=st.booleans())
    def upsert(self, data: st.DataObject, later: bool) -> None:
        items = data.draw(st.lists(st.tuples(self.keys, VALUES), min_size=1, max_size=6))
        result = self.open_writer().upsert(self.as_rows(items), wait=not later)
        if later:
            result.result()  # type: ignore[union-attr]
        for key, row in items:
            self.remember(key, row)

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        keys = data.draw(st.lists(self.keys, min_size=1, max_size=4))
        plain: list[Any] = [key[0] for key in keys] if len(self.fields) == 1 else keys
        self.open_writer().delete(plain)
        for key in keys:
            self.remember(key, None)

    # Writes that look at the rows there are

    @rule(data=st.data(), missing=st.sampled_from(["skip", "insert"]))
    def patch(self, data: st.DataObject, missing: Literal["skip", "insert"]) -> None:
        items = data.draw(st.lists(st.tuples(self.keys, VALUES), min_size=1, max_size=6))
        names = [*(field.name for field in self.fields), "color"]
        rows = [{name: row[name] for name in names} for row in self.as_rows(items)]
        self.open_writer().patch(rows, missing=missing)
        for key, (color, _) in items:
            if key in self.model:
                self.remember(key, (color, self.model[key][1]))
            elif missing == "insert":
                self.remember(key, (color, None))

    @rule(data=st.data())
    def insert(self, data: st.DataObject) -> None:
        items = data.draw(st.lists(st.tuples(self.keys, VALUES), min_size=1, max_size=6))
        self.open_writer().insert(self.as_rows(items))
        for key, row in items:
            if key not in self.model:
                self.remember(key, row)

    @rule(data=st.data())
    def upsert_if(self, data: st.DataObject) -> None:
        items = data.draw(st.lists(st.tuples(self.keys, VALUES), min_size=1, max_size=6))
        self.open_writer().upsert(self.as_rows(items), condition="number < new.number")
        for key, row in items:
            present = self.model.get(key)
            numbers = None if present is None else (present[1], row[1])
            if numbers is None or (None not in numbers and numbers[0] < numbers[1]):
                self.remember(key, row)

    @rule(which=st.sampled_from(FILTERS))
    def delete_where(self, which: tuple[str, Callable[[Any, Any], bool]]) -> None:
        text, holds = which
        self.open_writer().delete(where=text)
        for key in [key for key, row in self.model.items() if holds(*row)]:
            self.remember(key, None)

    @rule(which=st.sampled_from(FILTERS), color=st.sampled_from(["red", "green", "blue"]))
    def update_where(self, which: tuple[str, Callable[[Any, Any], bool]], color: str) -> None:
        text, holds = which
        self.open_writer().update(text, {"color": f"'{color}'"})
        for key in [key for key, row in self.model.items() if holds(*row)]:
            self.remember(key, (color, self.model[key][1]))

    @rule(data=st.data())
    def upsert_marked(self, data: st.DataObject) -> None:
        items = data.draw(st.lists(st.tuples(self.keys, VALUES), min_size=1, max_size=6))
        number = 0 if self.marked is None else self.marked[1].sequence + 1
        self.marked = self.as_rows(items), weir.Source("job", number)
        result = self.open_writer().upsert(self.marked[0], source=self.marked[1])
        assert not result.deduplicated
        for key, row in items:
            self.remember(key, row)

    @rule()
    @precondition(lambda self: self.marked is not None)
    def repeat_marked(self) -> None:
        assert self.marked is not None
        rows, source = self.marked
        result = self.open_writer().upsert(rows, source=source)
        assert (result.rows, result.positions) == (0, {})
        assert result.deduplicated

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

    @rule(data=st.data())
    @precondition(lambda self: self.writer is not None and self.writer.epochs and self.fenced is None)
    def take_over(self, data: st.DataObject) -> None:
        """Another writer claims every shard; the former one must not be able to write to them."""
        self.fenced, self.writer = self.writer, None
        keys = list(self.model) or [data.draw(self.keys)]
        items = [(key, self.model.get(key, ("red", 1))) for key in keys]
        self.open_writer().upsert(self.as_rows(items))
        for key, row in items:
            self.remember(key, row)

    @rule(data=st.data())
    @precondition(lambda self: self.fenced is not None)
    def fenced_writer_fails(self, data: st.DataObject) -> None:
        assert self.fenced is not None
        taken = set(self.fenced.epochs) & set(self.writer.epochs if self.writer is not None else ())
        # With several shards the key might belong to one that the former writer never claimed.
        if taken and self.shards in (None, 1):
            key = next(iter(self.model), None)
            if key is not None:
                with pytest.raises(FencedError):
                    self.fenced.upsert(self.as_rows([(key, ("blue", 0))]))
        self.fenced.__exit__(RuntimeError, RuntimeError("fenced"), None)
        self.fenced = None

    @rule(elsewhere=st.booleans())
    def merge(self, elsewhere: bool) -> None:
        (self.reader if elsewhere else self.table).maintenance.merge()

    # Reading

    @rule(cold=st.booleans())
    def scan(self, cold: bool) -> None:
        if cold:
            default_context().cache.clear()
        found = self.from_table(self.reader.scan().to_table())
        assert sorted(map(repr, found)) == sorted(map(repr, self.model.items()))

    @rule(which=st.sampled_from(FILTERS), limit=st.none() | st.integers(0, 3))
    def filtered(self, which: tuple[str, Callable[[Any, Any], bool]], limit: int | None) -> None:
        text, matches = which
        expected = {key: row for key, row in self.model.items() if matches(*row)}
        scan = self.reader.scan(filter=text, limit=limit)
        found = self.from_table(scan.to_table())
        assert len(found) == len(dict(found))
        assert set(map(repr, found)) <= set(map(repr, expected.items()))
        wanted = len(expected) if limit is None else min(limit, len(expected))
        assert len(found) == wanted == scan.count()

    @rule(data=st.data(), cold=st.booleans())
    def get(self, data: st.DataObject, cold: bool) -> None:
        keys = data.draw(st.lists(self.keys, min_size=1, max_size=6))
        if cold:
            default_context().cache.clear()
        plain: list[Any] = [key[0] for key in keys] if len(self.fields) == 1 else keys
        found = self.from_table(self.reader.get(plain))
        assert found == [(key, self.model[key]) for key in dict.fromkeys(keys) if key in self.model]

    @rule(number=st.integers(0, 9), k=st.integers(1, 6))
    def search(self, number: int, k: int) -> None:
        query = [float(number), 8.0]
        rows = {
            key: {"vector": [float(row[1]), float(len(repr(key)))]}
            for key, row in self.model.items()
            if row[1] is not None
        }
        found = self.reader.search(query, k).to_table()
        names = [field.name for field in self.fields]
        check_ranking(found, names, "_distance", nearest(rows, query), k, descending=False)
        assert set(map(repr, self.from_table(found))) <= set(map(repr, self.model.items()))

    @rule(color=st.sampled_from(["red", "green", "blue"]), k=st.integers(1, 6))
    def search_text(self, color: str, k: int) -> None:
        rows = {key: {"text": row[0]} for key, row in self.model.items()}
        found = self.reader.search_text(color, k, column="color").to_table()
        names = [field.name for field in self.fields]
        expected = text_scores(rows, weir.MatchQuery(color))
        check_ranking(found, names, "_score", expected, k, descending=True)
        assert set(map(repr, self.from_table(found))) <= set(map(repr, self.model.items()))

    @rule(consistency=st.sampled_from(["snapshot", "bounded(3600000)"]))
    def read_behind(self, consistency: str) -> None:
        found = self.from_table(self.reader.scan(consistency=consistency).to_table())
        assert len(found) == len(dict(found))
        for key, row in found:
            assert row in self.history[key]

    @invariant()
    def counts(self) -> None:
        if hasattr(self, "reader"):
            assert self.reader.scan().count() == len(self.model)


@pytest.mark.hypothesis
@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", KEYS)
def test_table_equals_a_dict(kind: str) -> None:
    fields, keys = KEYS[kind]
    machine = type(f"TableMachine_{kind}", (TableMachine,), {"fields": fields, "keys": keys})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=settings().max_examples // 4,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )

"""The change feed across columns that change: changes and the rows before them have the columns of today."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import weir
from weir.engine.context import default_context

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64()), ("text", pa.string())])
SEEDS = range(2)
Row = dict[str, Any]
State = dict[int, Row]


class Evolving:
    """A table whose columns change, and what it holds: rows by key, values by the first name of a column."""

    def __init__(self, place: Path, seed: int, **options: Any) -> None:
        self.place = place
        self.chance = random.Random(seed)
        self.sequence = "n" if options else None
        self.names = {"n": "n", "text": "text"}
        self.rows: State = {}
        self.writes = 0
        weir.create(place, SCHEMA, primary_key="id", fsync=False, **options)

    @property
    def table(self) -> weir.Table:
        return weir.open(self.place, fsync=False)

    def shown(self, row: Mapping[str, Any]) -> Row:
        return {first: row.get(first) for first in self.names}

    def write(self) -> None:
        for _ in range(self.chance.randint(1, 3)):
            self._write(self.chance.sample(range(6), self.chance.randint(1, 3)))

    def _write(self, keys: list[int]) -> None:
        with self.table.writer(takeover=True, flush_on_close=self.chance.random() < 0.3) as writer:
            if self.chance.random() < 0.2 and self.sequence is None:
                writer.delete(keys)
                for key in keys:
                    self.rows.pop(key, None)
                return
            made: State = {}
            for key in keys:
                self.writes += 1
                made[key] = {first: f"{first}{self.writes}" for first in self.names}
                made[key]["n"] = self.writes + self.chance.choice([0, -9])
            writer.upsert([{"id": key, **self._named(row)} for key, row in made.items()])
        for key, row in made.items():
            old = self.rows.get(key)
            if self.sequence is None or old is None or row["n"] >= old["n"]:
                self.rows[key] = row

    def _named(self, row: Row) -> Row:
        return {self.names[first]: value for first, value in row.items()}

    def add(self) -> None:
        first = f"x{self.writes}_{len(self.names)}"
        self.table.alter(add=[pa.field(first, pa.string())])
        self.names[first] = first

    def swap(self) -> None:
        """Plain Lance does, so that it may be the column by which the engine goes."""
        if len(self.names) < 2:
            return
        one, other = self.chance.sample(sorted(self.names), 2)
        steps = [(self.names[one], "_"), (self.names[other], self.names[one]), ("_", self.names[other])]
        for old, new in steps:
            change: Any = {"path": old, "name": new}
            lance.dataset(str(self.place)).alter_columns(change)
        self.names[one], self.names[other] = self.names[other], self.names[one]

    def drop(self) -> None:
        gone = self.chance.choice(sorted(self.names))
        if gone != "n":
            self.table.alter(drop=[self.names.pop(gone)])

    def merge(self) -> None:
        self.table.maintenance.merge()


@pytest.mark.covering
@pytest.mark.parametrize("options", [{}, {"sequence_by": "n"}], ids=["last row", "sequence"])
@pytest.mark.parametrize("seed", SEEDS)
def test_changes_lead_from_each_state_to_the_next(tmp_path: Path, seed: int, options: dict[str, Any]) -> None:
    world = Evolving(tmp_path / "t", seed, **options)
    begun: list[tuple[Any, State]] = [(None, {})]
    steps = [world.write] * 4 + [world.add, world.swap, world.drop, world.merge]
    for step in world.chance.choices(steps, k=14):
        step()
        if world.chance.random() < 0.3:
            begun.append((world.table.snapshot(), dict(world.rows)))
    for since, state in begun:
        for batch_rows in (1, 1000):
            rows = {key: world.shown(row) for key, row in state.items()}
            for batch in world.table.changes(since=since, before=True, batch_rows=batch_rows):
                for change in batch.rows.to_pylist():
                    before = change["_before"]
                    assert (before and _first(world, before)) == rows.get(change["id"])
                    rows.pop(change["id"], None)
                    if change["_op"] == "upsert":
                        rows[change["id"]] = _first(world, change)
            assert rows == {key: world.shown(row) for key, row in world.rows.items()}


def _first(world: Evolving, row: Mapping[str, Any]) -> Row:
    return {first: row[name] for first, name in world.names.items()}


def test_a_feed_has_the_columns_of_the_moment_when_it_is_opened(tmp_path: Path) -> None:
    """Somebody else may have altered them since this table was last looked at."""
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert([{"id": 1, "n": 1, "text": "one"}])
    feed = table.changes(consumer="one")
    assert sum(change.rows.num_rows for change in feed) == 1
    feed.commit()
    default_context().cache.clear()
    other = weir.open(table.uri, fsync=False)
    other.alter(add=[pa.field("more", pa.int64())], rename={"n": "text", "text": "n"})
    with other.writer() as writer:
        writer.upsert([{"id": 2, "text": 2, "n": "two", "more": 3}])
    (change,) = table.changes(consumer="one", before=True)
    (row,) = change.rows.select(["id", "text", "n", "more", "_before"]).to_pylist()
    assert row == {"id": 2, "text": 2, "n": "two", "more": 3, "_before": None}

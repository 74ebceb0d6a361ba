"""Random histories of writes by both writers and of columns that plain Lance alters, against a dict.

The model has rows by field id. What a reader is to show follows from the ids that the columns have at
that moment. Where everything is flushed, the library's own reader has to show the same.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import lance
import pyarrow as pa
import pytest

import weir
from tests.conformance import library
from weir.base.schema import key_metadata
from weir.write.table_writer import TableWriter

TYPES = {"int": pa.int32(), "text": pa.string(), "real": pa.float64()}
STEPS = 30
KEYS = 12

Tree = list[tuple[str, int, "Tree", pa.DataType]]


def tree_of(dataset: lance.LanceDataset) -> Tree:
    """Return name, field id, children and type of every column."""

    def visit(field: Any, type: pa.DataType) -> tuple[str, int, Tree, pa.DataType]:
        inside = [visit(child, type.field(child.name()).type) for child in field.children()]
        return field.name(), field.id(), inside, type

    schema = dataset.schema
    return [visit(one, schema.field(one.name()).type) for one in dataset.lance_schema.fields()]


class Gone:
    """A struct of which every field that it was written with is gone: Lance's base table may show none."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return other is None or (isinstance(other, dict) and not any(other.values()))


def shown(values: dict[int, Any], tree: Tree) -> dict[str, Any]:
    """Return a row of the model with the columns of a tree."""
    row: dict[str, Any] = {}
    for name, number, inside, _ in tree:
        value = values.get(number)
        if inside and value is not None:
            kept = any(field in value for _, field, _, _ in inside)
            row[name] = shown(value, inside) if kept else Gone()
        else:
            row[name] = value
    return row


class History:
    """One table, its model, and a writer of Weir that may be open for long."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.random = random.Random(seed)
        self.rows: dict[int, dict[int, Any]] = {}
        self.names = 0
        inner = pa.struct([("p", pa.int32()), ("q", pa.string())])
        schema = pa.schema(
            [
                pa.field("id", pa.int64(), nullable=False, metadata=key_metadata(0, 1)),
                ("a", pa.int32()),
                ("b", pa.string()),
                ("c", pa.int32()),
                ("s", inner),
            ]
        )
        self.table = weir.create(str(path), schema, primary_key="id", fsync=False)
        self.writer: TableWriter | None = None
        self.known: Tree = []

    @property
    def dataset(self) -> lance.LanceDataset:
        return lance.dataset(str(self.path))

    def value(self, inside: Tree, type: pa.DataType) -> tuple[Any, Any]:
        """Return a value as it is written, and as the model has it."""
        if self.random.random() < 0.2:
            return None, None
        if inside:
            made = [(name, number, self.value(deeper, kind)) for name, number, deeper, kind in inside]
            return {name: one[0] for name, _, one in made}, {number: one[1] for _, number, one in made}
        number = self.random.randrange(1000)
        plain = {pa.int32(): number, pa.string(): f"t{number}", pa.float64(): number / 4}[type]
        return plain, plain

    def upsert(self) -> None:
        """Write rows with the columns that the writer and the table agree about."""
        now = {(name, number): (inside, type) for name, number, inside, type in tree_of(self.dataset)}
        writer = self.open_writer()
        agreed = {(name, number) for name, number, _, _ in self.known} & set(now)
        # What the writer knows of the inside of a struct may be of before.
        agreed = {one for one in agreed if now[one][0] == dict(self.known_inside()).get(one, [])}
        rows = []
        for key in self.random.sample(range(KEYS), self.random.randrange(1, 4)):
            row: dict[str, Any] = {"id": key}
            values: dict[int, Any] = {0: key}
            for name, number in sorted(agreed - {("id", 0)}):
                if self.random.random() < 0.9:
                    row[name], values[number] = self.value(*now[name, number])
            rows.append(row)
            self.rows[key] = values
        writer.upsert(rows)

    def known_inside(self) -> Iterator[tuple[tuple[str, int], Tree]]:
        for name, number, inside, _ in self.known:
            yield (name, number), inside

    def delete(self) -> None:
        keys = self.random.sample(range(KEYS), 2)
        self.open_writer().delete(keys)
        for key in keys:
            self.rows.pop(key, None)

    def open_writer(self) -> TableWriter:
        if self.writer is None:
            self.table = weir.open(str(self.path), fsync=False)
            self.known = tree_of(self.dataset)
            self.writer = self.table.writer(flush_on_close=False)
        return self.writer

    def flush(self) -> None:
        """Flush the writer that is open, or whatever any has left in the log."""
        if self.writer is not None and self.writer.epochs:
            self.writer.flush()
        else:
            self.leave()
            weir.open(str(self.path), fsync=False).maintenance.recover(unleased=True)

    def leave(self) -> None:
        """Let go of the shard, with rows in the log, perhaps."""
        if self.writer is not None:
            self.writer.close()
            self.writer = None

    def library_writes(self) -> None:
        """Have the library take the shard over, write, and flush all that it has found in the log."""
        self.leave()
        shards = library.shards_of(self.path)
        writer = library.open_writer(self.path, shards[0] if shards else UUID(int=7))
        tree = tree_of(self.dataset)
        key, row, values = self.random.randrange(KEYS), {}, {}
        for name, number, inside, type in tree[1:]:
            row[name], values[number] = self.value(inside, type)
        writer.put(pa.Table.from_pylist([{"id": key, **row}], schema=self.dataset.schema))
        self.rows[key] = {0: key, **values}
        writer.close()

    def merge(self) -> None:
        weir.open(str(self.path), fsync=False).maintenance.merge()

    def fresh_name(self) -> str:
        self.names += 1
        return f"n{self.names}"

    def alter(self) -> None:
        """Have plain Lance alter the columns."""
        dataset, tree = self.dataset, tree_of(self.dataset)
        last = self.last_id(tree)
        columns = [name for name, number, inside, _ in tree[1:] if not inside and number != last]
        structs = [(name, inside) for name, _, inside, _ in tree[1:] if inside]
        what = self.random.choice(["add", "drop", "rename", "swap", "again", "inside", "inside"])
        if what == "add" or len(columns) < 2:
            dataset.add_columns(pa.field(self.fresh_name(), self.random.choice(list(TYPES.values()))))
        elif what == "drop":
            dataset.drop_columns([self.random.choice(columns)])
        elif what == "rename":
            self.rename(dataset, self.random.choice(columns), self.fresh_name())
        elif what == "swap":
            one, other = self.random.sample(columns, 2)
            self.rename(dataset, one, "swapped")
            self.rename(dataset, other, one)
            self.rename(dataset, "swapped", other)
        elif what == "again":
            (name,) = self.random.sample(columns, 1)
            type = dataset.schema.field(name).type
            dataset.drop_columns([name])
            dataset.add_columns(pa.field(name, type))
        elif structs:
            name, inside = structs[0]
            child = self.random.choice(inside)
            if self.random.random() < 0.4:
                self.rename(dataset, f"{name}.{child[0]}", self.fresh_name())
            elif len(inside) > 1 and child[1] != last:
                dataset.drop_columns([f"{name}.{child[0]}"])
                dataset.add_columns(pa.schema([(name, pa.struct([(child[0], child[3])]))]))

    def last_id(self, tree: Tree) -> int | None:
        """Return the highest field id, if Lance would give it to another column once its own is dropped.

        It does so for as long as no fragment of the base table has values of the column.
        """
        last = max(max([number, *(child[1] for child in inside)]) for _, number, inside, _ in tree)
        files = [file for one in self.dataset.get_fragments() for file in one.metadata.files]
        return None if any(last in file.fields for file in files) else last

    @staticmethod
    def rename(dataset: lance.LanceDataset, path: str, name: str) -> None:
        dataset.alter_columns({"path": path, "name": name})  # type: ignore[dict-item]

    def check(self) -> None:
        tree = tree_of(self.dataset)
        expected = [shown(self.rows[key], tree) for key in sorted(self.rows)]
        for table in (self.table, weir.open(str(self.path), fsync=False)):
            assert sorted(table.scan().to_table().to_pylist(), key=lambda row: row["id"]) == expected
            assert table.get(sorted(self.rows)).to_pylist() == expected if self.rows else True
        columns = [name for name, _, inside, _ in tree[1:] if not inside]
        name = self.random.choice(columns)
        value = self.random.choice([row[name] for row in expected] or [None])
        text = f"'{value}'" if isinstance(value, str) else value
        condition = f"{name} IS NULL" if value is None else f"{name} = {text}"
        found = self.table.scan(columns=["id"], filter=condition).to_table().column("id").to_pylist()
        assert sorted(found) == [row["id"] for row in expected if row[name] == value], condition

    def check_with_library(self) -> None:
        """Compare with the library's own reader, which shows what is flushed."""
        self.flush()
        tree = tree_of(self.dataset)
        expected = [shown(self.rows[key], tree) for key in sorted(self.rows)]
        found = library.scan(self.path).to_pylist()
        assert sorted(found, key=lambda row: int(row["id"])) == expected

    def run(self) -> None:
        steps = {
            self.upsert: 6,
            self.delete: 1,
            self.flush: 2,
            self.leave: 2,
            self.library_writes: 1,
            self.merge: 1,
            self.alter: 4,
            self.check_with_library: 2,
        }
        for _ in range(STEPS):
            (step,) = self.random.choices(list(steps), list(steps.values()))
            step()
            self.check()
        self.flush()
        self.merge()
        tree = tree_of(self.dataset)
        found = self.dataset.to_table().to_pylist()
        expected = [shown(self.rows[key], tree) for key in sorted(self.rows)]
        assert sorted(found, key=lambda row: int(row["id"])) == expected
        self.leave()


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 4))]
)
def test_both_readers_show_what_a_dict_has(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path / "table", seed)
    try:
        history.run()
    finally:
        history.leave()
        library.close_writers()

"""Random histories of a table whose columns change while it is written, read, merged and compacted.

The model is a dict of rows. A row is a dict of values by a column's *birth*, a number that a column gets when
it is added and keeps for good; names and types are a list beside it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import lance
import pyarrow as pa

import weir
from weir.errors import InputError, SchemaError
from weir.table.table import Table
from weir.write.table_writer import TableWriter

WIDER = {pa.int16(): pa.int32(), pa.int32(): pa.int64(), pa.float32(): pa.float64()}
POINT = pa.struct([("x", pa.int16()), ("y", pa.string())])
TYPES = (pa.int16(), pa.int32(), pa.float32(), pa.string(), POINT)


class Column:
    """A column of the model."""

    def __init__(self, name: str, kind: pa.DataType, birth: int) -> None:
        self.name, self.kind, self.birth = name, kind, birth


class History:
    """One table, the model of it, and the handles on it that stay open.

    Parameters
    ----------
    uri : str
        Where the table is made.
    seed : int
        Chooses every step.
    options : mapping of str to str, optional
        Storage options.
    """

    def __init__(self, uri: str, seed: int, options: Mapping[str, str] | None = None) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        self.births = 0
        self.columns = [self._column(name) for name in ("a", "b", "c")]
        schema = pa.schema(
            [pa.field("id", pa.int64(), nullable=False), *((one.name, one.kind) for one in self.columns)]
        )
        buckets = self.random.choice((1, 1, 3))
        self.options = dict(options or {})
        self.table = weir.create(
            uri,
            schema,
            primary_key="id",
            shard_by=weir.bucket("id", buckets),
            storage_options=self.options or None,
            fsync=False,
        )
        self.reader = self._open()
        self.writer: TableWriter | None = None
        self.rows: dict[int, dict[int, Any]] = {}
        self.tokens: list[tuple[str, list[dict[str, Any]]]] = []
        self.steps: list[str] = []
        self.highest_id = 0

    def _open(self) -> Table:
        return weir.open(self.table.uri, storage_options=self.options or None, fsync=False)

    def _column(self, name: str, kind: pa.DataType | None = None) -> Column:
        self.births += 1
        return Column(name, kind or self.random.choice(TYPES), self.births)

    def run(self, steps: int) -> None:
        """Take some steps, and look at the table after each."""
        try:
            for _ in range(steps):
                step = self.random.choice(
                    [self.upsert] * 6
                    + [self.delete] * 2
                    + [self.alter] * 5
                    + [
                        self.flush,
                        self.merge,
                        self.compact,
                        self.reopen,
                        self.token,
                        self.refused,
                        self.plain,
                    ]
                )
                self.steps.append(step.__name__)
                step()
                self.check()
        except Exception as error:
            raise AssertionError(f"seed {self.seed}, after {', '.join(self.steps)}: {error}") from error
        finally:
            if self.writer is not None:
                self.writer.close()

    def check(self) -> None:
        """Compare what is read with the model, by a handle that has been open all the while."""
        expected = self.expected()
        for table in (self.reader, self.table):
            assert table.scan().to_table().sort_by("id").to_pylist() == expected
        keys = [key for key in range(12) if self.random.random() < 0.3]
        if keys:
            found = {row["id"]: row for row in self.reader.get(keys).to_pylist()}
            assert found == {row["id"]: row for row in expected if row["id"] in keys}
        numbers = [one for one in self.columns if pa.types.is_integer(one.kind)]
        if numbers:
            one = self.random.choice(numbers)
            condition = f"{one.name} > 3"
            above = [row["id"] for row in expected if row[one.name] is not None and row[one.name] > 3]
            assert sorted(self.reader.scan(["id"], filter=condition).to_table()["id"].to_pylist()) == above
        for token, rows in self.tokens[-2:]:
            assert self.reader.scan(at=token).to_table().sort_by("id").to_pylist() == rows

    def expected(self) -> list[dict[str, Any]]:
        return [
            {"id": key, **{one.name: self.rows[key].get(one.birth) for one in self.columns}}
            for key in sorted(self.rows)
        ]

    def value(self, kind: pa.DataType) -> Any:
        if self.random.random() < 0.2:
            return None
        if pa.types.is_struct(kind):
            return {field.name: self.value(field.type) for field in kind}
        if pa.types.is_string(kind):
            return self.random.choice("pqr")
        number = self.random.randrange(-5, 10)
        if kind == pa.int64():
            number *= 2**33
        return float(number) / 2 if pa.types.is_floating(kind) else number

    def upsert(self) -> None:
        given = [one for one in self.columns if self.random.random() < 0.8]
        rows = []
        for key in self.random.sample(range(12), self.random.randrange(1, 4)):
            values = {one.birth: self.value(one.kind) for one in given}
            self.rows[key] = values
            rows.append({"id": key, **{one.name: values[one.birth] for one in given}})
        fields = [pa.field("id", pa.int64()), *(pa.field(one.name, one.kind) for one in given)]
        self.writing().upsert(pa.Table.from_pylist(rows, pa.schema(fields)))

    def delete(self) -> None:
        keys = self.random.sample(range(12), 2)
        for key in keys:
            self.rows.pop(key, None)
        self.writing().delete(keys)

    def writing(self) -> TableWriter:
        if self.writer is None:
            self.writer = self._open().writer(flush_on_close=self.random.random() < 0.5, takeover=True)
        return self.writer

    def reopen(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None
        self.reader = self._open()

    def flush(self) -> None:
        self.writing().flush()

    def merge(self) -> None:
        self.table.maintenance.merge()

    def compact(self) -> None:
        self.table.maintenance.compact()

    def token(self) -> None:
        token = self.table.snapshot()
        self.tokens.append((str(token), self.expected()))

    def alter(self) -> None:
        asked = self._asked()
        if not any(asked.values()):
            return
        self._note_ids()
        self.steps[-1] = f"alter({asked})"
        handle = self.random.choice((self.table, self.reader))
        handle.alter(**asked)

    def _asked(self) -> dict[str, Any]:
        """Choose what to alter, and do it to the model."""
        left = list(self.columns)
        self.random.shuffle(left)
        asked: dict[str, Any] = {"add": [], "drop": [], "rename": {}, "widen": {}}
        free = [name for name in "abcdef" if name not in {one.name for one in self.columns}]
        self.random.shuffle(free)
        if len(left) > 1 and self.random.random() < 0.25:
            one = left.pop()
            asked["drop"].append(one.name)
            self.columns.remove(one)
        if len(left) > 1 and self.random.random() < 0.35:
            one, other = left.pop(), left.pop()
            asked["rename"] = {one.name: other.name, other.name: one.name}
            one.name, other.name = other.name, one.name
        elif left and free and self.random.random() < 0.4:
            one = left.pop()
            asked["rename"] = {one.name: free[-1]}
            one.name = free.pop()
        if left and self.random.random() < 0.4:
            self._widen(left.pop(), asked["widen"])
        if free and self.random.random() < 0.5:
            one = self._column(free.pop())
            asked["add"].append(pa.field(one.name, one.kind))
            self.columns.append(one)
        return asked

    def _widen(self, one: Column, asked: dict[str, Any]) -> None:
        if one.kind in WIDER:
            one.kind = asked[one.name] = WIDER[one.kind]
        elif pa.types.is_struct(one.kind) and one.kind.field("x").type in WIDER:
            wider = WIDER[one.kind.field("x").type]
            asked[f"{one.name}.x"] = wider
            one.kind = pa.struct([("x", wider), ("y", pa.string())])

    def _note_ids(self) -> int:
        """Return the highest field id that a column has, and remember it."""
        fields = lance.dataset(self.table.uri, storage_options=self.options or None).lance_schema.fields()
        highest: int = max(one.id() for one in fields)
        self.highest_id = max(self.highest_id, highest)
        return highest

    def plain(self) -> None:
        """Plain Lance renames a column, or adds one."""
        dataset = lance.dataset(self.table.uri, storage_options=self.options or None)
        taken = {one.name for one in self.columns}
        free = [name for name in "abcdef" if name not in taken]
        if not free or not self.columns:
            return
        if self.random.random() < 0.5:
            one = self.random.choice(self.columns)
            dataset.alter_columns({"path": one.name, "name": free[0]})  # type: ignore[dict-item]
            one.name = free[0]
        elif self._note_ids() == self.highest_id:
            # Else plain Lance gives the id of a dropped column again, and shows what is not merged of it.
            one = self._column(free[0])
            dataset.add_columns(pa.field(one.name, one.kind))
            self.columns.append(one)

    def refused(self) -> None:
        """What cannot be altered or written changes nothing."""
        before = self.table.scan().to_table().schema
        one = self.random.choice(self.columns) if self.columns else None
        wrong: list[dict[str, Any]] = [{"drop": ["id"]}, {"drop": ["nope"]}, {"rename": {"nope": "z"}}]
        if one is not None:
            wrong += [{"add": [pa.field(one.name, one.kind)]}, {"widen": {one.name: one.kind}}]
        with suppress(SchemaError):
            self.table.alter(**self.random.choice(wrong))
            raise AssertionError("was not refused")
        assert self.table.scan().to_table().schema == before
        with suppress(InputError):
            self.writing().upsert([{"id": 1, "nope": 1}])
            raise AssertionError("was not refused")

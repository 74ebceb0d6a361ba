"""Random columns and values, and the model: rows by key, each value under an id that no rename changes."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
from tests.conformance.tables import KEY_FIELD, KEY_POSITION

Key: TypeAlias = tuple[Any, ...]
Values: TypeAlias = dict[int, Any]

KEYS: Sequence[tuple[tuple[pa.DataType, ...], Sequence[Key]]] = (
    ((pa.int64(),), tuple((one,) for one in (-(2**63), -1, 0, 1, 2, 3, 5, 8, 13, 2**63 - 1))),
    ((pa.int32(),), tuple((one,) for one in (-(2**31), -7, 0, 1, 2, 4, 6, 9, 11, 2**31 - 1))),
    (
        (pa.string(),),
        tuple((one,) for one in ("", "a", "a\x00", "b", "é", "user-42", "x'y", "z" * 50, "10", "9")),
    ),
    (
        (pa.string(), pa.int32()),
        tuple((text, number) for text in ("", "a", "a\x00") for number in (-1, 0, 7)),
    ),
)

TYPES: Sequence[pa.DataType] = (
    pa.int64(),
    pa.int32(),
    pa.float64(),
    pa.string(),
    pa.bool_(),
    pa.binary(),
    pa.date32(),
    pa.timestamp("us", "UTC"),
    pa.decimal128(12, 2),
    pa.list_(pa.int32()),
    pa.list_(pa.float32(), 2),
    pa.struct([("a", pa.int32()), ("b", pa.string())]),
)


def value_of(type: pa.DataType, number: int) -> Any:
    """Return a value that tells which write it is of; null now and then."""
    if number % 7 == 6:
        return None
    if pa.types.is_boolean(type):
        return number % 2 == 0
    if pa.types.is_integer(type):
        return number
    if pa.types.is_floating(type):
        return number / 4
    if pa.types.is_string(type):
        return f"v{number}" if number % 5 else ""
    if pa.types.is_binary(type):
        return number.to_bytes(4, "little")
    if pa.types.is_date(type):
        return datetime.date(1970, 1, 1) + datetime.timedelta(days=number)
    if pa.types.is_timestamp(type):
        return datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=number)
    if pa.types.is_decimal(type):
        return Decimal(number).quantize(Decimal("0.01"))
    if pa.types.is_fixed_size_list(type):
        return [float(number), -1.0]
    if pa.types.is_list(type):
        return [number, None][: number % 3]
    return {"a": number if number % 2 else None, "b": f"b{number}"}


@dataclass(frozen=True)
class Column:
    """A column that is not of the key, under an id that stays when it is renamed."""

    id: int
    name: str
    type: pa.DataType


@dataclass(frozen=True)
class Shape:
    """The columns of a table."""

    key_types: tuple[pa.DataType, ...]
    columns: tuple[Column, ...]

    @property
    def key_names(self) -> tuple[str, ...]:
        return tuple(f"key{number}" for number in range(len(self.key_types)))

    @property
    def schema(self) -> pa.Schema:
        """As Lance stores it, the key marked."""
        fields = []
        for position, (name, type) in enumerate(zip(self.key_names, self.key_types, strict=True), 1):
            metadata = {KEY_FIELD: "true"}
            if len(self.key_types) > 1:
                metadata[KEY_POSITION] = str(position)
            fields.append(pa.field(name, type, nullable=False, metadata=metadata))
        return pa.schema([*fields, *(pa.field(one.name, one.type) for one in self.columns)])

    @property
    def plain_schema(self) -> pa.Schema:
        """As a user of Weir writes it down."""
        return (
            self.schema.remove_metadata()
            if not self.columns
            else pa.schema([pa.field(one.name, one.type, one.nullable) for one in self.schema])
        )

    def table(self, rows: Mapping[Key, Values]) -> pa.Table:
        """Return rows as Lance stores them."""
        plain = [
            {
                **dict(zip(self.key_names, key, strict=True)),
                **{one.name: row.get(one.id) for one in self.columns},
            }
            for key, row in rows.items()
        ]
        return pa.Table.from_pylist(plain, self.schema)

    def keys(self, keys: Iterable[Key]) -> pa.Table:
        columns = list(zip(*keys, strict=True)) or [()] * len(self.key_types)
        return pa.table(
            [pa.array(column, type) for column, type in zip(columns, self.key_types, strict=True)],
            names=list(self.key_names),
        )

    def key_of(self, row: Mapping[str, Any]) -> Key:
        return tuple(row[name] for name in self.key_names)

    def values_of(self, row: Mapping[str, Any]) -> Values:
        return {one.id: row[one.name] for one in self.columns}

    def renamed(self, names: Mapping[str, str]) -> Shape:
        return replace(
            self, columns=tuple(replace(one, name=names.get(one.name, one.name)) for one in self.columns)
        )


def random_shape(chance: random.Random) -> tuple[Shape, Sequence[Key]]:
    types, keys = chance.choice(KEYS)
    chosen = [chance.choice(TYPES) for _ in range(chance.randint(1, 5))]
    return Shape(types, tuple(Column(n, f"c{n}", type) for n, type in enumerate(chosen))), keys


@dataclass
class Model:
    """What the table must show."""

    shape: Shape
    rows: dict[Key, Values] = field(default_factory=dict)
    writes: int = 0
    columns_made: int = 100

    def new_rows(self, keys: Iterable[Key], shape: Shape | None = None) -> dict[Key, Values]:
        """Make a row for each key; nothing is remembered."""
        shape = shape or self.shape
        made = {}
        for key in keys:
            self.writes += 1
            made[key] = {one.id: value_of(one.type, self.writes + one.id) for one in shape.columns}
        return made

    def apply(self, rows: Mapping[Key, Values | None]) -> None:
        """Remember rows, or that they are deleted."""
        for key, row in rows.items():
            if row is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = row

    def expected(self) -> dict[Key, Values]:
        return {
            key: {one.id: row.get(one.id) for one in self.shape.columns} for key, row in self.rows.items()
        }

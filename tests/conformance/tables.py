"""Tables of every kind of key, their rows, and a model far simpler than any table: a dict."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa

KEY_FIELD = "lance-schema:unenforced-primary-key"
KEY_POSITION = "lance-schema:unenforced-primary-key:position"

Key: TypeAlias = tuple[Any, ...]
Row: TypeAlias = dict[str, Any]

VALUE_FIELDS = [
    pa.field("name", pa.string()),
    pa.field("vector", pa.list_(pa.float32(), 4)),
    pa.field("tags", pa.list_(pa.string())),
    pa.field(
        "place",
        pa.struct(
            [("on", pa.date32()), ("marks", pa.list_(pa.int32())), ("in", pa.struct([("x", pa.bool_())]))]
        ),
    ),
    pa.field("amount", pa.decimal128(12, 2)),
]


@dataclass(frozen=True)
class Kind:
    """A kind of table: its key columns, and some keys.

    Parameters
    ----------
    types : tuple of DataType
        Types of the key columns.
    keys : tuple of Key
        Twelve keys or more, the awkward values of the type among them.
    """

    types: tuple[pa.DataType, ...]
    keys: tuple[Key, ...]

    @property
    def key_columns(self) -> tuple[str, ...]:
        return tuple(f"key{number}" for number in range(len(self.types)))

    @property
    def schema(self) -> pa.Schema:
        """Columns as Lance stores them, the key marked."""
        fields = []
        for position, (name, type) in enumerate(zip(self.key_columns, self.types, strict=True), 1):
            metadata = {KEY_FIELD: "true"}
            if len(self.types) > 1:
                metadata[KEY_POSITION] = str(position)
            fields.append(pa.field(name, type, nullable=False, metadata=metadata))
        return pa.schema([*fields, *VALUE_FIELDS])

    @property
    def plain_schema(self) -> pa.Schema:
        """Columns as a user of Weir writes them down."""
        return pa.schema([*zip(self.key_columns, self.types, strict=True), *VALUE_FIELDS])

    def row(self, key: Key, version: int) -> Row:
        """Return one version of the row with a key; every third column or so is null."""
        return {
            **dict(zip(self.key_columns, key, strict=True)),
            "name": None if version % 5 == 4 else f"version {version}",
            "vector": None if version % 4 == 3 else [float(version), 0.5, -1.0, 0.0],
            "tags": [None, [], ["a", None], ["\x00", "é" * 20]][version % 4],
            "place": None
            if version % 3 == 2
            else {
                "on": datetime.date(1969, 12, 31) + datetime.timedelta(days=version),
                "marks": None if version % 2 else [version, None],
                "in": {"x": None} if version % 2 else None,
            },
            "amount": None if version % 7 == 6 else Decimal(version).quantize(Decimal("0.01")),
        }

    def rows(self, keys: Iterable[Key], version: int) -> pa.Table:
        """Return a row for each key, versions counting up from ``version``."""
        made = [self.row(key, version + number) for number, key in enumerate(keys)]
        return pa.Table.from_pylist(made, self.schema)

    def key_table(self, keys: Iterable[Key]) -> pa.Table:
        columns = list(zip(*keys, strict=True))
        return pa.table(
            [pa.array(column, type) for column, type in zip(columns, self.types, strict=True)],
            names=list(self.key_columns),
        )

    def key_of(self, row: Row) -> Key:
        return tuple(row[name] for name in self.key_columns)


@dataclass
class Model:
    """What a table must hold: the newest version of every row that is not deleted."""

    kind: Kind
    rows: dict[Key, Row] = field(default_factory=dict)
    _versions: int = 0

    def upsert(self, keys: Iterable[Key]) -> pa.Table:
        """Remember new versions of rows and return them."""
        keys = list(keys)
        made = self.kind.rows(keys, self._versions)
        self._versions += len(keys)
        self.rows.update((self.kind.key_of(row), row) for row in made.to_pylist())
        return made

    def delete(self, keys: Iterable[Key]) -> pa.Table:
        """Forget rows and return their keys."""
        keys = list(keys)
        for key in keys:
            self.rows.pop(key, None)
        return self.kind.key_table(keys)

    def at(self, key: Key) -> list[Row]:
        """Return what a lookup of a key must return."""
        return [self.rows[key]] if key in self.rows else []

    def check(self, found: pa.Table) -> None:
        """Compare with what a reader returned."""
        rows = found.select(self.kind.schema.names).to_pylist()
        assert len(rows) == len({self.kind.key_of(row) for row in rows}), "a key has come twice"
        assert {self.kind.key_of(row): row for row in rows} == self.rows


def _integers(type: pa.DataType) -> Kind:
    bits = type.bit_width
    low, high = (
        (-(1 << bits - 1), (1 << bits - 1) - 1) if pa.types.is_signed_integer(type) else (0, (1 << bits) - 1)
    )
    values = [low, low + 1, high, high - 1, *range(2, 10)]
    return Kind((type,), tuple((value,) for value in values))


_TEXTS = ("", "a", "a\x00", "\x00", "ab", "a'b", 'x"y', "é", "\U0001f30a", "b" * 300, "user-42", "ÿþ")
_BYTES = (*(text.encode() for text in _TEXTS), b"\xff", b"\x00\xff")

KINDS: Mapping[str, Kind] = {
    **{
        str(type): _integers(type)
        for type in (
            pa.int8(),
            pa.int16(),
            pa.int32(),
            pa.int64(),
            pa.uint8(),
            pa.uint16(),
            pa.uint32(),
            pa.uint64(),
        )
    },
    "string": Kind((pa.string(),), tuple((text,) for text in _TEXTS)),
    "large_string": Kind((pa.large_string(),), tuple((text,) for text in _TEXTS)),
    "binary": Kind((pa.binary(),), tuple((data,) for data in _BYTES)),
    "large_binary": Kind((pa.large_binary(),), tuple((data,) for data in _BYTES)),
    "string-int32": Kind(
        (pa.string(), pa.int32()),
        tuple((text, number) for text in ("", "a", "a\x00") for number in (-(2**31), -1, 0, 2**31 - 1)),
    ),
    "uint64-binary-bool": Kind(
        (pa.uint64(), pa.binary(), pa.bool_()),
        tuple((a, b, c) for a in (0, 2**64 - 1) for b in (b"", b"\x00", b"\xff") for c in (False, True)),
    ),
}
"""Every type a key may have; ``bool`` is part of a composite key, since alone it makes two rows."""

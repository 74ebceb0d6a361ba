"""Tables for the tests of services on Spark: rows in every place, and what is stored of a table as values."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import weir
from weir.base.index_changes import base_indexes
from weir.base.index_upkeep import uncovered_fragments
from weir.base.merge_guard import without_guards

DIMENSION = 4
ROWS = 240


@dataclass(frozen=True)
class KeyKind:
    """A kind of primary key: its columns, and what makes the keys of some numbers."""

    schema: pa.Schema
    shard_by: Any

    @property
    def names(self) -> list[str]:
        """The key columns."""
        return list(self.schema.names)

    def keys(self, numbers: Sequence[int]) -> dict[str, Any]:
        """Return the key columns for some numbers, each a key of its own."""
        return {field.name: [_value(field.type, n) for n in numbers] for field in self.schema}


def _value(kind: pa.DataType, number: int) -> Any:
    if pa.types.is_string(kind):
        return f"key-{number:05d}"
    if pa.types.is_binary(kind):
        return number.to_bytes(3, "little")
    return number % 7 if pa.types.is_int32(kind) else number


def _key_schema(*fields: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in fields])


KEY_KINDS = {
    "integer": KeyKind(_key_schema(("id", pa.int64())), weir.bucket("id", 4)),
    "string": KeyKind(_key_schema(("name", pa.string())), weir.bucket("name", 3)),
    "composite": KeyKind(
        _key_schema(("place", pa.string()), ("part", pa.int32())), weir.multi_bucket(["place", "part"], 4)
    ),
    "binary": KeyKind(_key_schema(("digest", pa.binary())), weir.unsharded()),
}

_COLUMNS = [
    ("carrier", pa.string()),
    ("remarks", pa.string()),
    ("delay", pa.float64()),
    ("vector", pa.list_(pa.float32(), DIMENSION)),
]


def rows(kind: KeyKind, numbers: Sequence[int], value: int) -> pa.Table:
    """Return rows whose other columns follow from the number and a value."""
    vectors = [np.array([n, value, n * value, 1], dtype=np.float32) for n in numbers]
    return pa.table(
        {
            **kind.keys(numbers),
            "carrier": [("UA", "AA", "DL")[(n + value) % 3] for n in numbers],
            "remarks": [f"flight {n} was late {value} times" for n in numbers],
            "delay": [n / 3 + value for n in numbers],
            "vector": vectors,
        },
        schema=schema_of(kind),
    )


def schema_of(kind: KeyKind) -> pa.Schema:
    """Return the columns of a table with that kind of key."""
    return pa.schema([*kind.schema, *_COLUMNS])


def new_table(directory: Path, kind: KeyKind) -> weir.Table:
    """Return a table with rows in the base table, in generations and in the log, deletes and indexes."""
    table = weir.create(
        directory / "table", schema_of(kind), primary_key=kind.names, shard_by=kind.shard_by, fsync=False
    )
    with table.writer() as writer:
        writer.upsert(rows(kind, range(ROWS), 0))
    table.maintenance.merge()
    table.indexes.create("delay", "ZONEMAP", name="zones")
    table.indexes.create("carrier", "BITMAP")
    table.indexes.create("remarks", "INVERTED")
    table.indexes.create("vector", "IVF_FLAT", num_partitions=2)
    write_more(table, kind)
    return table


def write_more(table: weir.Table, kind: KeyKind, value: int = 1) -> None:
    """Write generations with replaced, new and deleted keys, and leave more of all in the log."""
    with table.writer(flush_on_close=False) as writer:
        for step in (value, value + 1):
            writer.upsert(rows(kind, range(step * 10, step * 10 + 60), step))
            writer.upsert(rows(kind, range(ROWS + step * 30, ROWS + step * 30 + 40), step))
            writer.delete(pa.table(kind.keys(range(step * 7, ROWS, 11)), schema=kind.schema))
            writer.flush()
        writer.upsert(rows(kind, range(5, 50, 3), value + 2))
        writer.delete(pa.table(kind.keys(range(6, 50, 3)), schema=kind.schema))


def copy_of(table: weir.Table, directory: Path) -> weir.Table:
    """Return a copy of a local table."""
    shutil.copytree(table.uri, directory)
    return weir.open(directory, fsync=False)


def base_state(table: weir.Table) -> Mapping[str, object]:
    """Return what the base table holds and records, without what depends on the order of commits."""
    base = table.internals.base.latest()
    found = base.dataset.to_table()
    indexes = base_indexes(base)
    return {
        "rows": found.sort_by([(name, "ascending") for name in base.primary_key]),
        "merged": {one.shard_id: one.generation for one in without_guards(base.details.merged_generations)},
        "catch-up": {
            one.index_name: {shard.shard_id: shard.generation for shard in one.caught_up}
            for one in base.details.index_catchup
        },
        "indexes": {
            one.name: (one.library_kind, one.num_rows, len(uncovered_fragments(base, one))) for one in indexes
        },
    }


def live_rows(table: weir.Table) -> pa.Table:
    """Return what a strong read shows, in key order."""
    order = [(name, "ascending") for name in table.primary_key]
    return table.scan().to_table().sort_by(order)

"""Tables for the tests of reads: rows in the base table, in generations and in the log, some superseded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import weir
from weir.sharding.shard_by import ShardBy

__all__ = ["SCHEMA", "as_rows", "build"]

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("carrier", pa.string()),
        ("delay", pa.float64()),
        ("day", pa.date32()),
        ("vector", pa.list_(pa.float32(), 3)),
    ]
)


def rows(ids: range, note: str) -> pa.Table:
    """Return rows of some ids, with nulls in every column that may have them."""
    numbers = np.arange(ids.start, ids.stop, ids.step)
    return pa.table(
        {
            "id": numbers,
            "carrier": pa.array([None if n % 11 == 0 else f"{note} {n % 5}" for n in numbers.tolist()]),
            "delay": pa.array([None if n % 13 == 0 else n * 0.5 - 40 for n in numbers.tolist()]),
            "day": pa.array([None if n % 17 == 0 else n % 400 for n in numbers.tolist()])
            .cast(pa.int32())
            .cast(pa.date32()),
            "vector": pa.array(
                [None if n % 19 == 0 else [n, -n, 0.5] for n in numbers.tolist()], pa.list_(pa.float32(), 3)
            ),
        },
        SCHEMA,
    )


def build(path: Path | str, shard_by: ShardBy | None, **options: Any) -> weir.Table:
    """Return a table of 900 ids with several fragments, generations, a tail and tombstones in each."""
    table = weir.create(path, SCHEMA, primary_key="id", shard_by=shard_by, **options)
    for start in (0, 300, 600):
        with table.writer() as writer:
            writer.upsert(rows(range(start, start + 300), "base"))
        table.maintenance.merge()
    with table.writer() as writer:
        writer.delete(list(range(5, 900, 90)))
    table.maintenance.merge()
    with table.writer(flush_on_close=False) as writer:
        writer.upsert(rows(range(100, 700, 4), "one"))
        writer.delete(list(range(10, 900, 70)))
        writer.flush()
        writer.upsert(rows(range(0, 1000, 7), "two"))
        writer.flush()
        writer.upsert(rows(range(0, 1000, 31), "tail"))
        writer.delete(list(range(3, 900, 50)))
    return table


def as_rows(found: list[Any]) -> list[tuple[Any, ...]]:
    """Return rows in order of their id, so that they can be compared."""
    return sorted(
        (tuple(one.values()) if isinstance(one, dict) else tuple(one) for one in found), key=lambda r: r[0]
    )

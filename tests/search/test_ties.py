"""Rows that are equally good come by their primary key, wherever they are and however they are sharded."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import weir

SCHEMA = pa.schema(
    [
        pa.field("town", pa.string(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),
        ("label", pa.string()),
        ("text", pa.string()),
        ("vector", pa.list_(pa.float32(), 2)),
    ]
)
KEYS = [(town, number) for number in range(12) for town in ("bonn", "aachen", "celle")]


def row(town: str, number: int) -> dict[str, object]:
    """Return a row that is as good as the others of its half."""
    near = number < 6
    return {
        "town": town,
        "number": number,
        "label": f"{town} {number}",
        "text": "a late train" if near else "a late train and another train",
        "vector": [1.0, 0.0] if near else [2.0, 0.0],
    }


def filled(path: Path, shards: int) -> weir.Table:
    """Return a table with rows in its base, in generations and in the tail, not in order."""
    shard_by = weir.bucket("number", shards) if shards > 1 else None
    table = weir.create(path, SCHEMA, primary_key=["town", "number"], shard_by=shard_by, fsync=False)
    rows = [row(*key) for key in reversed(KEYS)]
    with table.writer(flush_on_close=False) as writer:
        writer.upsert(rows[::4])
        writer.flush()
        table.maintenance.merge()
        table.indexes.create("text", "FTS")
        writer.upsert(rows[1::4])
        writer.flush()
        writer.upsert(rows[2::4])
        writer.flush()
        writer.upsert(rows[3::4])
    return table


def labels(found: pa.Table) -> list[str]:
    return [str(one) for one in found.column("label").to_pylist()]


EXPECTED = [f"{town} {number}" for town, number in sorted(KEYS, key=lambda key: (key[1] >= 6, key))]


@pytest.mark.parametrize("shards", [1, 4])
def test_equally_good_rows_come_by_key(tmp_path: Path, shards: int) -> None:
    table = filled(tmp_path / "t", shards)
    for _ in range(2):
        for columns in (None, ["label", "number", "town"]):
            near = table.search([0.0, 0.0], k=50, columns=columns).to_table()
            assert labels(near) == EXPECTED
            assert near.column("_distance").to_pylist() == [1.0] * 18 + [4.0] * 18
            apt = table.search_text("late", k=50, column="text", columns=columns).to_table()
            assert labels(apt) == EXPECTED
            assert len(set(apt.column("_score").to_pylist())) == 2
            both = table.search_hybrid(
                [0.0, 0.0], "late", k=50, text_column="text", columns=columns
            ).to_table()
            assert labels(both) == EXPECTED
        assert apt.schema.names == ["label", "number", "town", "_score"]
        # Each query vector has ties of its own.
        batch = table.search([[0.0, 0.0], [3.0, 0.0]], k=50).to_table()
        assert labels(batch.filter(pc.equal(batch["_query_index"], 0))) == EXPECTED
        assert labels(batch.filter(pc.equal(batch["_query_index"], 1))) == EXPECTED[18:] + EXPECTED[:18]
        # And when all of it is in the base table.
        with table.writer():
            pass
        table.maintenance.recover()
        table.maintenance.merge()
        table.maintenance.catch_up_indexes()

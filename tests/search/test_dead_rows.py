"""Filters that fail on a dead row do not fail a search, which asks the library for dead rows too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import weir

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("words", pa.string()),
        pa.field("v", pa.list_(pa.float32(), 2)),
    ]
)


def rows(ids: range, text: str) -> pa.Table:
    return pa.table(
        {
            "id": ids,
            "text": [text] * len(ids),
            "words": ["sea lion"] * len(ids),
            "v": [[float(one), 0.0] for one in ids],
        },
        schema=SCHEMA,
    )


@pytest.mark.parametrize("merged", [False, True], ids=["unmerged", "merged"])
@pytest.mark.parametrize("dead", [3, 40])
def test_a_filter_is_shown_live_rows_alone(tmp_path: Path, dead: int, *, merged: bool) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", maintenance="off")
    with table.writer() as writer:
        writer.upsert(rows(range(200), "7"))
        writer.upsert(rows(range(dead), "none"))
    table.maintenance.merge()
    table.upsert(rows(range(dead), "8"))
    if merged:
        with table.writer() as writer:
            writer.flush()
        table.maintenance.merge()
    table.indexes.create("words", "INVERTED")
    filter = "CAST(text AS INT) > 5"
    by_text = table.search_text("sea", k=10, filter=filter, columns=["id"]).to_table()
    assert by_text.num_rows == 10
    last = table.search_text("sea", k=300, filter=filter, columns=["id"]).to_table().column("id").to_pylist()
    assert sorted(last) == list(range(200))
    found = table.search(np.zeros(2), k=10, filter=filter, columns=["id"]).to_table()
    assert found.column("id").to_pylist() == list(range(10))

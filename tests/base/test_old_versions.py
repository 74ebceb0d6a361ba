"""A process that follows a table for long lets go of versions that are past: each holds files and memory."""

from __future__ import annotations

import gc
from pathlib import Path

import lance
import pyarrow as pa

import weir
from weir.base.table import BaseTable

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string())])


def test_versions_that_are_past_are_let_go(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "table", SCHEMA, primary_key="id", fsync=False, maintenance="off")
    table.upsert([{"id": id, "text": "some words"} for id in range(20)])
    table.writer().close()
    table.maintenance.merge()
    lance.dataset(table.uri).create_scalar_index("text", "INVERTED", with_position=False)
    for number in range(8):
        table.upsert([{"id": number, "text": f"word{number} words"}])
        table.writer().close()
        table.maintenance.merge()
        table.maintenance.catch_up_indexes()
        assert table.get([number])["text"].to_pylist() == [f"word{number} words"]
        found = table.search_text(f"word{number} words", columns=["id"]).to_table()
        assert found["id"][0].as_py() == number
    gc.collect()
    held = {one.version for one in gc.get_objects() if isinstance(one, BaseTable) and one.uri == table.uri}
    assert len(held) <= 4, sorted(held)

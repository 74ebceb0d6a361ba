from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import weir
from weir.write.columns import TableColumns, resolved


def test_rows_with_the_columns_of_the_table_are_passed_on_as_they_are(tmp_path: Path) -> None:
    columns = [pa.field("id", pa.int64(), nullable=False), pa.field("value", pa.string())]
    table = weir.create(tmp_path, pa.schema(columns), primary_key="id")
    before = table.internals.row_schema
    rows = pa.Table.from_pylist([{"id": 1, "value": "a", "_tombstone": False}], schema=before)
    assert resolved(rows, TableColumns.of(table.internals.base, table.internals.router)) is rows
    table.alter(rename={"value": "text"})
    found = resolved(rows, TableColumns.of(table.internals.base, table.internals.router))
    assert found.schema.equals(table.internals.row_schema, check_metadata=True)
    assert found.column("text").to_pylist() == ["a"]

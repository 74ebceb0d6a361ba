"""Slices of nested structs, which the library cannot take as they are."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import weir
from weir.format.unsliced import unsliced

PAIRS = pa.array([{"a": {"x": row} if row % 3 else None} if row % 4 else None for row in range(20)])
NESTED = {
    "struct": PAIRS.slice(9, 4),
    "list": pa.ListArray.from_arrays([0, 2, 4], PAIRS.slice(9, 4)),
    "part of a list": pa.ListArray.from_arrays([0, 2, 4], PAIRS.slice(9, 4)).slice(1, 1),
    "list in a struct": pa.array([{"l": [{"a": {"x": row}}]} for row in range(20)]).slice(9, 4),
    "child": pa.StructArray.from_arrays([PAIRS.slice(9, 4)], ["b"]),
}


@pytest.mark.parametrize("column", NESTED.values(), ids=NESTED.keys())
def test_slices_of_nested_structs_can_be_stored(column: pa.Array, tmp_path: Path) -> None:
    rows = pa.table({"c": column, "n": pa.array(range(20)).slice(9, len(column))})
    copied = unsliced(rows)
    assert copied.equals(rows)
    assert copied["n"].chunk(0).offset == 9
    assert unsliced(rows.to_batches()[0]).equals(rows.to_batches()[0])
    stored = lance.write_dataset(copied, str(tmp_path / "t")).to_table()
    assert stored["c"].to_pylist() == column.to_pylist()


def test_sliced_rows_pass_through_a_table(tmp_path: Path) -> None:
    """Filtered, sliced, read while they are in the log, flushed, and merged."""
    rows = pa.table({"id": range(20), "c": PAIRS})
    table = weir.create(tmp_path / "t", rows.schema, primary_key="id", fsync=False)
    expected = rows.slice(9, 4).to_pylist()
    with table.writer() as writer:
        writer.upsert(rows.slice(9, 4))
        assert table.scan(filter="c IS NOT NULL OR id >= 0").to_table().to_pylist() == expected
    assert table.scan().to_table().to_pylist() == expected
    table.maintenance.merge()
    assert table.scan().to_table().to_pylist() == expected

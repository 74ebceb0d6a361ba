"""Structs that are null though their children never are, which Arrow casts to no type, not even their own."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import weir

PLACE = pa.struct([pa.field("x", pa.int64(), nullable=False)])
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("place", PLACE),
        ("text", pa.string()),
        ("vector", pa.list_(pa.float32(), 2)),
    ]
)


def rows(*ids: int) -> pa.Table:
    places = [{"x": key} if key % 2 else None for key in ids]
    columns = [ids, places, ["storm"] * len(ids), [[float(key), 0.0] for key in ids]]
    return pa.Table.from_arrays(
        [pa.array(values, kind) for values, kind in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA
    )


def places(table: pa.Table) -> dict[int, dict[str, int] | None]:
    return dict(zip(table["id"].to_pylist(), table["place"].to_pylist(), strict=True))


@pytest.mark.parametrize("engine", [None, "partial_update", "first_row"])
def test_every_service_takes_them(tmp_path: Path, engine: str | None) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", merge_engine=engine, fsync=False)
    table.indexes.create("text", "INVERTED")
    expected = places(rows(*range(10)))
    with table.writer(flush_on_close=False) as writer:
        writer.upsert(rows(*range(5)))
        writer.flush()
        table.maintenance.merge()
        writer.upsert(rows(*range(4, 8)))
        writer.flush()
        writer.upsert(rows(*range(3, 10)))
    table = weir.open(tmp_path / "t", fsync=False)
    for found in (
        table.scan(),
        table.search([0.0, 0.0], 20),
        table.search_text("storm", 20),
        table.search_hybrid([0.0, 0.0], "storm", 20),
        weir.clone(table.uri, tmp_path / "clone").scan(),
    ):
        assert places(found.to_table()) == expected
    table.maintenance.merge()
    assert places(table.scan().to_table()) == expected


def test_writes_are_decided_by_them(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    table.upsert(rows(1, 2))
    table.upsert(rows(2, 3), condition="place IS NULL")
    table.patch([{"id": 4, "text": "snow"}, {"id": 2, "text": "snow"}], missing="insert")
    assert places(table.scan().to_table()) == {1: {"x": 1}, 2: None, 3: {"x": 3}, 4: None}


def test_fields_of_a_null_struct_are_null_to_a_write(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("place", PLACE), ("n", pa.int64())])
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    # The field below the null is 0.
    table.upsert(pa.Table.from_pylist([{"id": 1, "place": None, "n": 1}], schema=schema))
    table.update("true", {"n": "place.x"})
    assert table.get([1])["n"].to_pylist() == [None]
    table.upsert([{"id": 1, "place": None, "n": 2}], condition="place.x IS NULL")
    assert table.get([1])["n"].to_pylist() == [2]
    table.upsert([{"id": 1, "place": None, "n": 3}], condition="new.place.x IS NULL")
    assert table.get([1])["n"].to_pylist() == [3]

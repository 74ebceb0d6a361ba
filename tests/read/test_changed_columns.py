"""A table that is open while Lance adds or drops a column: reads have the columns of the newest version."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import weir
from weir.errors import FilterError, QueryError, SchemaError

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("size", pa.int32()),
        ("place", pa.list_(pa.float32(), 2)),
    ]
)
OLD = {"id": 1, "name": "a", "size": 1, "place": [1.0, 0.0]}
NEW = {"id": 2, "size": 2, "place": [2.0, 0.0]}


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    """Return a table with a row in the log, of which this handle knows."""
    table = weir.create(tmp_path / "table", SCHEMA, primary_key="id", fsync=False)
    with table.writer(flush_on_close=False) as writer:
        writer.upsert([OLD])
    assert table.scan().count() == 1
    return table


def through_a_life(table: weir.Table, row: dict[str, Any]) -> Iterator[str]:
    """Write a row with the columns that there are now; yield wherever it is on its way to the base table."""
    yield "only old rows"
    other = weir.open(table.uri, fsync=False)
    with other.writer() as writer:
        writer.upsert([row])
        yield "in the log"
        writer.flush()
        yield "in a generation"
    other.maintenance.merge()
    yield "in the base table"


def by_id(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=lambda row: row["id"])


def test_a_column_that_was_added_is_read(table: weir.Table) -> None:
    never_read = weir.open(table.uri, fsync=False)
    lance.dataset(table.uri).add_columns(pa.field("added", pa.int32()))
    for stage in through_a_life(table, {**NEW, "added": 7}):
        expected = [{**OLD, "added": None}]
        if stage != "only old rows":
            expected.append({**NEW, "name": None, "added": 7})
        for reader in (table, never_read):
            assert by_id(reader.scan().to_table()) == expected, stage
            assert by_id(reader.get([1, 2])) == expected, stage
            assert by_id(reader.scan(["id", "size"], filter="size > 0").to_table()) == [
                {"id": row["id"], "size": row["size"]} for row in expected
            ]
            found = reader.search([0.0, 0.0], k=5).to_table().drop_columns(["_distance"])
            assert by_id(found) == expected, stage


def test_a_column_that_was_dropped_is_named(table: weir.Table) -> None:
    never_read = weir.open(table.uri, fsync=False)
    asked: list[Callable[[weir.Table], object]] = [
        lambda reader: reader.scan(["id", "name"]).to_table(),
        lambda reader: reader.get([1, 2], ["name"]),
        lambda reader: reader.sql("SELECT name FROM t").to_table(),
        lambda reader: reader.search([0.0, 0.0], k=5, columns=["name"]).to_table(),
    ]
    lance.dataset(table.uri).drop_columns(["name"])
    without = {key: value for key, value in OLD.items() if key != "name"}
    for stage in through_a_life(table, NEW):
        expected = [without] if stage == "only old rows" else [without, NEW]
        for reader in (table, never_read):
            assert by_id(reader.scan().to_table()) == expected, stage
            assert by_id(reader.get([1, 2])) == expected, stage
            assert reader.sql("SELECT id FROM t WHERE size > 1").to_table().num_rows == len(expected) - 1
            found = reader.sql("SELECT * FROM t ORDER BY size LIMIT 1").to_table()
            assert found.column_names == list(without)
            for ask in asked:
                with pytest.raises((SchemaError, QueryError), match=r"no column 'name'|No field named name"):
                    ask(reader)
            with pytest.raises(FilterError, match="name"):
                reader.scan(filter="name = 'a'").count()


def test_a_scan_that_was_made_before_has_the_columns_of_when_it_runs(table: weir.Table) -> None:
    scan, named = table.scan(), table.scan(["name"])
    lance.dataset(table.uri).drop_columns(["name"])
    assert scan.to_table().schema.names == ["id", "size", "place"]
    with pytest.raises(SchemaError, match="no column 'name'"):
        named.to_table()

"""Columns that change while a merge is under way: what it writes are the values of the columns by now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from tests.merge.test_merge_races import PLACES, interrupted

import weir
from weir.table.table import Table

Row = dict[str, Any]
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("a", pa.int32()),
        ("b", pa.int32()),
        ("s", pa.struct([("x", pa.int32()), ("y", pa.int32())])),
    ]
)


def _row(number: int) -> Row:
    return {"id": number, "a": number, "b": -number, "s": {"x": number, "y": -number}}


def _lance_swaps(table: Table) -> None:
    dataset = lance.dataset(table.uri)
    for old, new in (("a", "_"), ("b", "a"), ("_", "b")):
        change: Any = {"path": old, "name": new}
        dataset.alter_columns(change)


def _replace(table: Table) -> None:
    table.alter(drop=["a"])
    table.alter(add=[pa.field("a", pa.int32())])


CHANGES: dict[str, tuple[Callable[[Table], object], Callable[[Row], Row]]] = {
    "swap": (
        lambda table: table.alter(rename={"a": "b", "b": "a"}),
        lambda row: {**row, "a": row["b"], "b": row["a"]},
    ),
    "swap by plain Lance": (_lance_swaps, lambda row: {**row, "a": row["b"], "b": row["a"]}),
    "swap of fields": (
        lambda table: table.alter(rename={"s.x": "y", "s.y": "x"}),
        lambda row: {**row, "s": {"x": row["s"]["y"], "y": row["s"]["x"]}},
    ),
    "drop": (
        lambda table: table.alter(drop=["a"]),
        lambda row: {name: value for name, value in row.items() if name != "a"},
    ),
    "drop and add": (_replace, lambda row: {**row, "a": None}),
    "add": (lambda table: table.alter(add=[pa.field("c", pa.string())]), lambda row: {**row, "c": None}),
    "widen": (lambda table: table.alter(widen={"a": pa.int64()}), lambda row: row),
}


@pytest.mark.covering
@pytest.mark.usefixtures("merged_by")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("change", CHANGES)
def test_values_are_those_of_the_columns_by_now(tmp_path: Path, place: str, change: str) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert([_row(1), _row(2), _row(3)])
        writer.flush()
        table.maintenance.merge()
        writer.upsert([_row(3), _row(4)])
        writer.delete([1])
        writer.flush()
        altered, now = CHANGES[change]
        other = weir.open(table.uri, fsync=False)
        with interrupted(place, lambda: altered(other)):
            table.maintenance.merge()
        expected = [now(_row(number)) for number in (2, 3, 4)]
        for _ in range(2):
            shown = weir.open(table.uri, fsync=False).scan().to_table().sort_by("id").to_pylist()
            assert shown == expected
            table.maintenance.merge()
        assert lance.dataset(table.uri).to_table().sort_by("id").to_pylist() == expected


def test_an_append_only_table_is_widened_before_rows_are_published(tmp_path: Path) -> None:
    schema = pa.schema([("at", pa.int64()), ("n", pa.int32())])
    table = weir.create(tmp_path / "t", schema, primary_key=None, fsync=False)
    with table.writer() as writer:
        writer.upsert([{"at": 1, "n": 1}])
    other = weir.open(table.uri, fsync=False)
    with interrupted("merge.before_commit", lambda: other.alter(widen={"n": pa.int64()})):
        table.maintenance.merge()
    assert lance.dataset(table.uri).to_table().to_pylist() == [{"at": 1, "n": 1}]

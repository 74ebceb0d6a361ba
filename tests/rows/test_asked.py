"""Rows that say what each does to its key, some patches or inserts: against one operation after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

import weir
from weir.errors import InputError, KeyValueError, SchemaError

SCHEMA = pa.schema(
    [
        pa.field("a", pa.int64(), nullable=False),
        pa.field("b", pa.string(), nullable=False),
        pa.field("n", pa.int64()),
        pa.field("m", pa.int64()),
    ]
)

ROW = st.fixed_dictionaries(
    {
        "a": st.integers(0, 2),
        "b": st.sampled_from("xy"),
        "n": st.none() | st.integers(0, 9),
        "_op": st.sampled_from(["upsert", "delete", "patch", "insert", None]),
    }
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("asked")


def applied(model: dict[Any, dict[str, Any]], row: dict[str, Any], also: tuple[str, ...]) -> None:
    key, asked = (row["a"], row["b"]), row["_op"] or "upsert"
    new = {"a": row["a"], "b": row["b"], "n": row["n"], "m": None}
    if asked == "delete":
        model.pop(key, None)
    elif asked == "upsert" or (asked == "insert" and key not in model):
        model[key] = new
    elif asked == "patch" and key in model:
        model[key] |= {name: row[name] for name in also}


@given(rows=st.lists(ROW, min_size=1, max_size=20), as_table=st.booleans())
def test_rows_come_to_what_one_after_the_other_would(
    place: Path, rows: list[dict[str, Any]], as_table: bool
) -> None:
    uri = place / "t"
    try:
        table = weir.create(uri, SCHEMA, primary_key=["a", "b"], fsync=False)
    except weir.errors.TableExistsError:
        weir.drop(uri)
        table = weir.create(uri, SCHEMA, primary_key=["a", "b"], fsync=False)
    there = [{"a": a, "b": "x", "n": -1, "m": -2} for a in range(2)]
    model = {(row["a"], row["b"]): dict(row) for row in there}
    columns = [("a", pa.int64()), ("b", pa.string()), ("n", pa.int64()), ("_op", pa.string())]
    with table.writer(flush_on_close=False) as writer:
        writer.upsert(there)
        result = writer.apply(pa.Table.from_pylist(rows, pa.schema(columns)) if as_table else rows)
    for row in rows:
        applied(model, row, ("n",))
    assert {(row["a"], row["b"]): row for row in table.scan().to_pylist()} == model
    assert len(result.positions) == 1


def test_a_patch_in_a_list_sets_what_its_row_has(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key=["a", "b"], fsync=False)
    key = {"a": 1, "b": "x"}
    with table.writer() as writer:
        writer.upsert([{**key, "n": 1, "m": 1}])
        writer.apply([{**key, "n": 2, "_op": "patch"}, {**key, "m": None, "_op": "patch"}])
    assert table.scan().to_pylist() == [{**key, "n": 2, "m": None}]


@pytest.mark.parametrize(
    ("columns", "error", "says"),
    [
        ({"a": [1, 1], "b": ["x", None]}, KeyValueError, "row 1"),
        ({"a": [1, 1]}, KeyValueError, "'b' is missing"),
        ({"a": [1, 1], "b": ["x", "y"]}, InputError, "sets no column"),
        ({"a": [1, 1], "b": ["x", "y"], "z": [1, 1]}, SchemaError, "'z'"),
    ],
)
def test_bad_rows_change_nothing(
    tmp_path: Path, columns: dict[str, list[object]], error: type[Exception], says: str
) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key=["a", "b"], fsync=False)
    with table.writer() as writer:
        with pytest.raises(error, match=says):
            writer.apply(pa.table({**columns, "_op": ["upsert", "patch"]}))
        with pytest.raises(InputError, match="operation 'merge' in row 1 is unknown"):
            writer.apply([{"a": 1, "b": "x", "_op": "patch"}, {"a": 1, "b": "x", "_op": "merge"}])
    assert not table.status().shards

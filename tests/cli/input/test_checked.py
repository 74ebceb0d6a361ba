from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.cli.input.checked import RowChecker
from weir.cli.input.rows import FileRows
from weir.errors import KeyValueError, SchemaError

_SCHEMA = pa.schema([pa.field("id", pa.int32(), nullable=False), ("name", pa.string())])
_ROWS = st.lists(st.tuples(st.sampled_from(["upsert", "delete"]), st.integers(0, 5), st.text(max_size=2)))


@given(_ROWS)
def test_upserts_and_deletes_in_any_order_leave_what_they_do_one_by_one(
    rows: list[tuple[str, int, str]],
) -> None:
    table = pa.table(
        {
            "op": pa.array([op for op, _, _ in rows], pa.string()),
            "id": pa.array([key for _, key, _ in rows], pa.int64()),
            "name": pa.array([name for _, _, name in rows], pa.string()),
        }
    )
    operations = RowChecker(_SCHEMA, ("id",), "op").check(FileRows(table, 1), "f")
    assert operations.upserts.schema.equals(_SCHEMA)
    assert operations.deletes.schema.names == ["id"]

    left = dict.fromkeys(range(6), "before")
    wanted = dict(left)
    for op, key, name in rows:
        if op == "upsert":
            wanted[key] = name
        else:
            wanted.pop(key, None)
    for key in operations.deletes.column("id").to_pylist():
        left.pop(key, None)
    for row in operations.upserts.to_pylist():
        left[row["id"]] = row["name"]
    assert left == wanted
    deleted = set(operations.deletes.column("id").to_pylist())
    assert deleted.isdisjoint(operations.upserts.column("id").to_pylist())


@pytest.mark.parametrize(
    ("columns", "error", "where"),
    [
        ({"id": [1, None]}, KeyValueError, "f, row 42, column 'id'"),
        ({"id": [1, 2**40]}, SchemaError, "f, row 42, column 'id'"),
        ({"id": ["1", "2"]}, SchemaError, "f, column 'id'"),
        ({"name": ["x", "y"]}, KeyValueError, "f"),
        ({"id": [1, 2], "more": [1, 2]}, SchemaError, "f, column 'more'"),
    ],
)
def test_an_error_names_the_row_in_the_file(
    columns: dict[str, list[object]], error: type[Exception], where: str
) -> None:
    with pytest.raises(error) as caught:
        RowChecker(_SCHEMA, ("id",)).check(FileRows(pa.table(columns), 41), "f")
    assert getattr(caught.value, "where") == where  # noqa: B009


def test_a_required_column_that_is_null_is_named() -> None:
    schema = pa.schema([("id", pa.int32()), pa.field("name", pa.string(), nullable=False)])
    with pytest.raises(SchemaError) as caught:
        RowChecker(schema, ("id",)).check(FileRows(pa.table({"id": [1, 2], "name": ["a", None]}), 1), "f")
    assert caught.value.where == "f, row 2, column 'name'"


def test_rows_among_deletes_keep_their_numbers() -> None:
    table = pa.table(
        {"op": ["delete", "upsert", "delete", "upsert"], "id": [1, 2, 3, 4], "name": ["a", "b", "c", "d"]}
    )
    schema = pa.schema([("id", pa.int32()), ("name", pa.int32())])
    broken = table.set_column(2, "name", pa.array([1, 2, 3, 2**40]))
    with pytest.raises(SchemaError) as caught:
        RowChecker(schema, ("id",), "op").check(FileRows(broken, 11), "f")
    assert caught.value.where == "f, row 14, column 'name'"


@pytest.mark.parametrize("op", ["remove", "", None, "Delete"])
def test_an_operation_that_is_unknown_is_refused(op: str | None) -> None:
    table = pa.table({"op": pa.array(["upsert", op]), "id": [1, 2]})
    with pytest.raises(SchemaError) as caught:
        RowChecker(_SCHEMA, ("id",), "op").check(FileRows(table, 1), "f")
    assert caught.value.where == "f, row 2, column 'op'"


def test_a_file_without_the_operation_column_is_refused() -> None:
    with pytest.raises(SchemaError, match="no column 'op'"):
        RowChecker(_SCHEMA, ("id",), "op").check_columns(_SCHEMA, "f")


def test_keys_to_delete_may_stand_among_other_columns() -> None:
    table = pa.table({"id": [3, 4], "more": ["x", "y"]})
    operations = RowChecker(_SCHEMA, ("id",), delete=True).check(FileRows(table, 1), "f")
    assert operations.upserts.num_rows == 0
    assert operations.deletes.to_pylist() == [{"id": 3}, {"id": 4}]

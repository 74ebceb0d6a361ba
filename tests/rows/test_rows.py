"""Rows as callers pass them become batches of WAL entries, or are refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from weir.errors import KeyValueError, SchemaError
from weir.format.wal_entry import wal_schema
from weir.rows import as_row_table, upsert_batches

POINT = pa.struct([pa.field("x", pa.int32(), nullable=False), pa.field("y", pa.int32())])
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), metadata={"note": "the key"}),
        pa.field("name", pa.string(), nullable=False),
        pa.field("path", pa.list_(POINT)),
    ],
    metadata={"owner": "somebody"},
)


def as_batches(rows: pa.Table) -> list[pa.RecordBatch]:
    table = as_row_table(rows, SCHEMA, ("id",))
    return upsert_batches(table, wal_schema(SCHEMA))


def rows(ids: list[int | None], names: list[str | None], paths: list[object]) -> pa.Table:
    plain = pa.list_(pa.struct([("x", pa.int32()), ("y", pa.int32())]))
    columns = (pa.array(ids, pa.int64()), pa.array(names, pa.string()), pa.array(paths, plain))
    return pa.table(dict(zip(SCHEMA.names, columns, strict=True)))


def hidden_null() -> pa.Table:
    """Return a row in which a part is null that its own type says cannot be."""
    points = pa.StructArray.from_arrays(
        [pa.array([None], pa.int32()), pa.array([1], pa.int32())], fields=POINT
    )
    paths = pa.ListArray.from_arrays(pa.array([0, 0, 1], pa.int32()), points)
    plain = rows([1, 2], ["a", "b"], [None, None])
    return plain.set_column(2, SCHEMA.field("path"), paths)


def test_batches_have_exactly_the_schema_of_wal_entries() -> None:
    given = pa.concat_tables(
        [rows([1], ["a"], [[{"x": 1, "y": None}]]), rows([], [], []), rows([2, 3], ["b", "c"], [None, []])]
    )
    batches = as_batches(given)
    assert [batch.num_rows for batch in batches] == [1, 2]
    for batch in batches:
        assert batch.schema.equals(wal_schema(SCHEMA), check_metadata=True)
    written = pa.Table.from_batches(batches).to_pydict()
    assert written == {**given.to_pydict(), "_tombstone": [False] * 3}


@pytest.mark.parametrize(
    ("given", "error", "where"),
    [
        (rows([1, None], ["a", "b"], [None, None]), KeyValueError, "id, row 1"),
        (rows([1, 2], ["a", None], [None, None]), SchemaError, "name, row 1"),
        (hidden_null(), SchemaError, "path.item.x"),
    ],
)
def test_nulls_are_refused_where_there_can_be_none(
    given: pa.Table, error: type[Exception], where: str
) -> None:
    with pytest.raises(error) as raised:
        as_batches(given)
    assert raised.value.where == where  # type: ignore[attr-defined]
    assert "null" in str(raised.value)


@pytest.mark.parametrize("kind", [pa.list_(pa.float32(), 2), pa.list_(pa.float32()), pa.float32()], ids=str)
def test_a_number_that_would_become_infinite_is_refused_at_any_depth(kind: pa.DataType) -> None:
    schema = pa.schema([("id", pa.int64()), ("value", kind)])
    nested = pa.types.is_nested(kind)

    def given(*numbers: float) -> pa.Table:
        wide = pa.list_(pa.float64()) if nested else pa.float64()
        values = [[number, 1.0] for number in numbers] if nested else list(numbers)
        return pa.table({"id": pa.array(range(len(numbers))), "value": pa.array(values, wide)})

    with pytest.raises(SchemaError, match=r"value.* too large"):
        as_row_table(given(1.0, 1e300), schema, ("id",))
    rows = as_row_table(given(float("inf"), 1.0), schema, ("id",))
    assert rows.num_rows == 2


def in_days(kind: pa.DataType, *ticks: int) -> pa.Array:
    return pa.array(ticks, pa.int64()).view(kind)


MILLISECONDS = pa.timestamp("ms")
DAY_MILLISECONDS = 86_400_000
LATE = 2**63 - 1
"""No moment of Python's."""


@pytest.mark.parametrize(
    ("values", "kind", "row"),
    [
        (in_days(MILLISECONDS, 0, DAY_MILLISECONDS, 1), pa.date32(), 2),
        (in_days(MILLISECONDS, 0, LATE), pa.date32(), 1),
        (in_days(pa.timestamp("ns"), 0, -LATE), pa.date64(), 1),
        (in_days(MILLISECONDS, 0, 1).dictionary_encode(), pa.date32(), 1),
        (pa.ListArray.from_arrays([0, 1, 2], in_days(MILLISECONDS, 0, 1)), pa.list_(pa.date32()), 1),
        (
            pa.StructArray.from_arrays([in_days(MILLISECONDS, 0, 1)], ["d"]),
            pa.struct([("d", pa.date32())]),
            1,
        ),
        (
            pa.MapArray.from_arrays([0, 1, 2], pa.array(["a", "b"]), in_days(MILLISECONDS, 0, 1)),
            pa.map_(pa.string(), pa.date32()),
            1,
        ),
    ],
    ids=str,
)
def test_moments_that_are_no_dates_are_refused_at_any_depth(
    values: pa.Array, kind: pa.DataType, row: int
) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", kind)])
    given = pa.table({"id": range(len(values)), "v": values})
    with pytest.raises(SchemaError, match="has a time of day") as refused:
        as_row_table(given, schema, ("id",), first_row=5)
    assert refused.value.where == f"v, row {5 + row}"
    taken = as_row_table(given.slice(0, row), schema, ("id",))
    assert taken.num_rows == row


def test_vectors_of_another_length_are_refused() -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.list_(pa.float32(), 3))])
    given = pa.table({"id": [1], "v": pa.array([[1.0, 2.0]], pa.list_(pa.float64(), 2))})
    with pytest.raises(SchemaError, match=r"'v' is of type .*\[2\] where the table has .*\[3\]"):
        as_row_table(given, schema, ("id",))


PLAIN = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string(), nullable=False)])


def test_a_table_of_exactly_the_schema_is_taken_as_it_is() -> None:
    given = pa.table({"id": [1, 2], "name": ["a", "b"]}, schema=PLAIN)
    taken = as_row_table(given, PLAIN, ("id",))
    assert taken is given
    other = as_row_table(given.replace_schema_metadata({"a": "b"}), PLAIN, ("id",))
    assert other.schema.equals(PLAIN, check_metadata=True)


@pytest.mark.parametrize(
    ("ids", "names", "error", "where"),
    [
        (pa.array([1, None]), pa.array(["a", "b"]), KeyValueError, "id, row 1"),
        (pa.array([1, 2]), pa.array(["a", None]), SchemaError, "name, row 1"),
        (
            pa.array([1, 2]),
            pa.StringArray.from_buffers(
                2, pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"a\xff")
            ),
            SchemaError,
            "name",
        ),
    ],
)
def test_a_table_of_exactly_the_schema_is_checked_all_the_same(
    ids: pa.Array, names: pa.Array, error: type[SchemaError], where: str
) -> None:
    given = pa.Table.from_arrays([ids, names], schema=PLAIN)
    with pytest.raises(error) as refused:
        as_row_table(given, PLAIN, ("id",))
    assert refused.value.where == where


def test_an_error_counts_rows_from_the_first_of_a_stream() -> None:
    good, bad = rows([1, 2], ["a", "b"], [None, None]), rows([3, None], ["c", "d"], [None, None])
    batches = [*good.to_batches(), *bad.to_batches()]
    stream = pa.RecordBatchReader.from_batches(good.schema, batches)
    with pytest.raises(KeyValueError, match="'id' is null in row 3"):
        as_row_table(stream, SCHEMA, ("id",))

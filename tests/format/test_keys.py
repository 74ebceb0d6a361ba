"""Primary keys: supported types as the library has them, and the order-preserving encoding."""

from __future__ import annotations

import functools
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.errors import SchemaError
from weir.format.keys import SUPPORTED_TYPES, PrimaryKey, check_key_type, encode_keys

OF_WEIR_ALONE = [
    pa.date32(),
    pa.date64(),
    pa.timestamp("s"),
    pa.timestamp("us"),
    pa.timestamp("ns", "UTC"),
    pa.timestamp("ms", "Europe/Berlin"),
    pa.decimal128(10, 2),
    pa.decimal256(40, 2),
    pa.binary(2),
]
UNSUPPORTED_TYPES = [
    pa.float16(),
    pa.float32(),
    pa.float64(),
    pa.time32("s"),
    pa.time32("ms"),
    pa.time64("us"),
    pa.time64("ns"),
    pa.duration("us"),
    pa.dictionary(pa.int32(), pa.string()),
]
# The library refuses these only later, when the table or the rows are written.
UNSUPPORTED_ANYWAY = [pa.string_view(), pa.list_(pa.int32()), pa.struct([("x", pa.int32())])]


def encode_row(values: tuple[object, ...], types: list[pa.DataType]) -> bytes:
    """The encoding of one key, written from its description."""
    encoded = b""
    for value, type in zip(values, types, strict=True):
        if value is None:
            encoded += b"\x00"
            continue
        encoded += b"\x01"
        if isinstance(value, bool):
            encoded += bytes([value])
        elif isinstance(value, int):
            shift = 1 << 63 if pa.types.is_signed_integer(type) else 0
            encoded += (value + shift).to_bytes(8, "big")
        elif pa.types.is_fixed_size_binary(type):
            encoded += bytes(value)  # type: ignore[call-overload]
        else:
            data = value.encode() if isinstance(value, str) else bytes(value)  # type: ignore[call-overload]
            encoded += data.replace(b"\x00", b"\x00\xff") + b"\x00\x00"
    return encoded


@given(data=st.data())
def test_composite_keys_are_encoded_as_described(
    key_columns: Callable[..., st.SearchStrategy[list[pa.Array]]], data: st.DataObject
) -> None:
    columns = data.draw(key_columns(min_columns=2, nulls=True))
    encoded = encode_keys(columns)
    types = [column.type for column in columns]
    rows = list(zip(*(column.to_pylist() for column in columns), strict=True))
    assert encoded.type == pa.binary()
    assert encoded.null_count == 0
    assert encoded.to_pylist() == [encode_row(row, types) for row in rows]


@given(data=st.data())
def test_encoded_keys_are_ordered_as_the_keys(
    key_columns: Callable[..., st.SearchStrategy[list[pa.Array]]], data: st.DataObject
) -> None:
    columns = data.draw(key_columns(min_columns=2, nulls=True, max_rows=8))
    encoded = encode_keys(columns).to_pylist()
    rows = list(zip(*(column.to_pylist() for column in columns), strict=True))

    def compare(one: int, other: int) -> int:
        for left, right in zip(rows[one], rows[other], strict=True):
            if left is None or right is None:
                order = (left is not None) - (right is not None)
            else:
                left, right = (v.encode() if isinstance(v, str) else v for v in (left, right))
                order = (left > right) - (left < right)
            if order:
                return order
        return 0

    numbers = range(len(rows))
    by_key = sorted(numbers, key=functools.cmp_to_key(compare))
    assert by_key == sorted(numbers, key=lambda number: encoded[number])


NUMBERS = st.none() | st.integers(-(10**6), 10**6)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("type", OF_WEIR_ALONE[:-1], ids=str)
@given(numbers=st.lists(st.tuples(NUMBERS, st.integers(0, 2)), max_size=8))
def test_dates_times_and_decimals_are_encoded_as_the_numbers_that_they_are(
    type: pa.DataType, numbers: list[tuple[int | None, int]]
) -> None:
    width = type.bit_width // 8 if pa.types.is_decimal(type) else 8
    whole = pa.array([None, *(one for one, _ in numbers)], pa.int32() if type == pa.date32() else pa.int64())
    if pa.types.is_decimal(type):
        values = [None if one is None else Decimal(one).scaleb(-type.scale) for one in whole.to_pylist()]
        column = pa.array(values, type).slice(1)
    else:
        column = whole.cast(type).slice(1)
    encoded = encode_keys([column, pa.array([other for _, other in numbers], pa.int8())])
    expected = []
    for one, other in numbers:
        of_one = b"\0" if one is None else b"\1" + (one + (1 << 8 * width - 1)).to_bytes(width, "big")
        expected.append(of_one + encode_row((other,), [pa.int8()]))
    assert encoded.to_pylist() == expected


@given(rows=st.lists(st.tuples(st.none() | st.binary(min_size=2, max_size=2), st.integers(0, 2)), max_size=8))
def test_fixed_size_binary_is_encoded_as_its_bytes(rows: list[tuple[bytes | None, int]]) -> None:
    types = [pa.binary(2), pa.int8()]
    columns = [pa.array([row[at] for row in rows], type) for at, type in enumerate(types)]
    assert encode_keys(columns).to_pylist() == [encode_row(row, types) for row in rows]


@given(data=st.data())
def test_a_single_column_stays_as_it_is(
    key_columns: Callable[..., st.SearchStrategy[list[pa.Array]]], data: st.DataObject
) -> None:
    column = data.draw(key_columns(nulls=True))[0]
    assert encode_keys([column]) is column


@pytest.mark.parametrize("type", SUPPORTED_TYPES, ids=str)
def test_the_library_takes_every_supported_type(library_table: Callable[..., Any], type: pa.DataType) -> None:
    check_key_type("id", type)
    library_table(pa.schema([pa.field("id", type, nullable=False)]), ["id"])


@pytest.mark.parametrize("type", OF_WEIR_ALONE + UNSUPPORTED_TYPES, ids=str)
def test_the_library_refuses_every_other_type(library_table: Callable[..., Any], type: pa.DataType) -> None:
    with pytest.raises(OSError, match="unsupported type"):
        library_table(pa.schema([pa.field("id", type, nullable=False)]), ["id"])


@pytest.mark.parametrize("type", UNSUPPORTED_TYPES + UNSUPPORTED_ANYWAY, ids=str)
def test_other_types_are_refused_by_name(type: pa.DataType) -> None:
    schema = pa.schema([pa.field("when", type, nullable=False)])
    for refused in (
        lambda: check_key_type("when", type),
        lambda: PrimaryKey(("when",), (type,)),
        lambda: PrimaryKey.from_schema(schema, ["when"]),
    ):
        with pytest.raises(SchemaError) as caught:
            refused()
        text = str(caught.value)
        assert "'when'" in text
        assert str(type) in text
        assert "large_binary" in text


def test_a_key_is_read_from_a_schema() -> None:
    schema = pa.schema(
        [
            pa.field("number", pa.int32(), nullable=False),
            pa.field("value", pa.float32()),
            pa.field("name", pa.string(), nullable=False),
        ]
    )
    key = PrimaryKey.from_schema(schema, ["name", "number"])
    assert key == PrimaryKey(("name", "number"), (pa.string(), pa.int32()))
    batch = pa.record_batch(
        [pa.array([1], pa.int32()), pa.array([0.5], pa.float32()), pa.array(["a"])], schema=schema
    )
    assert [column.to_pylist() for column in key.arrays(batch)] == [["a"], [1]]


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ([], "at least one column"),
        (["absent"], "'absent' is not in the schema"),
        (["twice"], "'twice' is in the schema more than once"),
        (["id", "id"], "'id' is named twice"),
        (["nullable"], "'nullable' is nullable"),
    ],
)
def test_a_key_that_does_not_fit_the_schema_is_refused(columns: list[str], problem: str) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("twice", pa.int64(), nullable=False),
            pa.field("twice", pa.int64(), nullable=False),
            pa.field("nullable", pa.int64()),
        ]
    )
    with pytest.raises(SchemaError, match=problem):
        PrimaryKey.from_schema(schema, columns)


def test_what_cannot_be_encoded_is_refused() -> None:
    with pytest.raises(SchemaError, match="at least one column"):
        encode_keys([])
    with pytest.raises(SchemaError, match="key column 1 of type double"):
        encode_keys([pa.array([1]), pa.array([0.5])])
    with pytest.raises(SchemaError, match="rows"):
        encode_keys([pa.array([1]), pa.array([1, 2])])

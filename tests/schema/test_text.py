from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.errors import SchemaError
from weir.schema.text import format_schema, parse_schema

_UNITS = st.sampled_from(["s", "ms", "us", "ns"])
_SCALARS = st.one_of(
    st.sampled_from(
        [
            *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64()),
            *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
            *(pa.float16(), pa.float32(), pa.float64(), pa.string(), pa.large_string()),
            *(pa.binary(), pa.large_binary(), pa.date32(), pa.date64()),
            *(pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
        ]
    ),
    st.builds(pa.timestamp, _UNITS, st.sampled_from([None, "UTC", "America/New_York", "+02:00"])),
    st.builds(pa.duration, _UNITS),
    st.builds(pa.decimal128, st.integers(1, 38), st.integers(0, 9)),
    st.builds(pa.decimal256, st.integers(39, 76), st.integers(0, 9)),
    st.builds(pa.binary, st.integers(1, 64)),
    st.just(pa.uuid()),
)
_NAMES = st.text(st.characters(blacklist_characters='"', blacklist_categories=["Cs"]), min_size=1, max_size=8)


def _fields(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.Field]:
    return st.builds(pa.field, _NAMES, types, nullable=st.booleans())


def _nested(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    items = st.builds(lambda kind, nullable: pa.field("item", kind, nullable), types, st.booleans())
    return st.one_of(
        st.builds(pa.list_, items),
        st.builds(pa.large_list, items),
        st.builds(pa.list_, types, st.integers(1, 2048)),
        st.builds(pa.struct, st.lists(_fields(types), min_size=1, max_size=3)),
    )


_TYPES = st.recursive(_SCALARS, _nested, max_leaves=4)


@given(st.lists(_fields(_TYPES), min_size=1, max_size=5).map(pa.schema))
def test_a_schema_survives_being_written_and_read(schema: pa.Schema) -> None:
    assert parse_schema(format_schema(schema)).equals(schema)


@pytest.mark.parametrize(
    ("text", "data_type"),
    [
        ("int", pa.int32()),
        ("INT64", pa.int64()),
        ("double", pa.float64()),
        ("float", pa.float32()),
        ("text", pa.string()),
        ("boolean", pa.bool_()),
        ("UUID", pa.uuid()),
        ("date", pa.date32()),
        ("time", pa.time64("us")),
        ("timestamp", pa.timestamp("us")),
        ("timestamp ( ms , UTC )", pa.timestamp("ms", "UTC")),
        ("decimal(10)", pa.decimal128(10, 0)),
        ("decimal(40,2)", pa.decimal256(40, 2)),
        ("vector(3)", pa.list_(pa.float32(), 3)),
        ("vector(3, float16)", pa.list_(pa.float16(), 3)),
        ("list(int64!)", pa.list_(pa.field("item", pa.int64(), nullable=False))),
    ],
)
def test_a_type_may_be_written_in_several_ways(text: str, data_type: pa.DataType) -> None:
    assert parse_schema(f"c: {text}").field("c") == pa.field("c", data_type)


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("", 1, "no column"),
        ("id", 3, "expected ':' and a type".replace("'", '"')),
        ("id:", 4, "expected a type"),
        ("id: int46", 5, "unknown type 'int46'"),
        ("id: int64(3)", 5, "takes no arguments"),
        ("v: vector", 4, "needs arguments"),
        ("v: vector(0)", 11, "at least 1"),
        ("v: vector(x)", 11, "at least 1"),
        ("v: list(int64", 14, 'expected ")"'),
        ("a: int64 b: int64", 10, 'expected "," or the end'),
        ("a: int64,", 10, "expected a column name"),
        ("a: decimal(99, 2)", 4, "precision"),
        ("a: timestamp(min)", 14, "unit of time"),
        ("a: int64; b: int64", 9, "cannot read ';'"),
        ("a: struct(b)", 12, "type after column 'b'"),
    ],
)
def test_an_error_says_what_is_wrong_and_where(text: str, place: int, said: str) -> None:
    with pytest.raises(SchemaError) as caught:
        parse_schema(text)
    assert said in caught.value.message
    assert caught.value.where == f"schema, character {place}"


def test_a_mistyped_type_gets_a_suggestion() -> None:
    with pytest.raises(SchemaError, match=r"Did you mean timestamp\?"):
        parse_schema("at: timestmp")

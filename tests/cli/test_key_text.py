from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest

from weir.cli.key_text import parse_keys
from weir.errors import KeyValueError


@pytest.mark.parametrize(
    ("data_type", "text", "value"),
    [
        (pa.int64(), "-7", -7),
        (pa.uint8(), "7", 7),
        (pa.string(), "a,b", "a,b"),
        (pa.string(), "[1]", "[1]"),
        (pa.large_string(), "x", "x"),
        (pa.binary(), "YWI=", b"ab"),
        (pa.date32(), "2013-01-01", date(2013, 1, 1)),
        (pa.bool_(), "true", True),
    ],
)
def test_a_key_is_typed_by_its_column(data_type: pa.DataType, text: str, value: object) -> None:
    keys = parse_keys([text], pa.schema([("id", data_type)]), ["id"])
    assert keys.column("id").type == data_type
    assert keys.to_pylist() == [{"id": value}]


@pytest.mark.parametrize(
    "text", ["JFK,17", "JFK, 17", '"JFK",17', '["JFK", 17]', '{"flight": 17, "origin": "JFK"}']
)
def test_a_composite_key_may_be_written_in_several_ways(text: str) -> None:
    schema = pa.schema([("flight", pa.int32()), ("origin", pa.string())])
    assert parse_keys([text], schema, ["origin", "flight"]).to_pylist() == [{"origin": "JFK", "flight": 17}]


@pytest.mark.parametrize(
    "text",
    [
        "JFK",
        "JFK,17,3",
        '["JFK"]',
        '{"origin": "JFK"}',
        "[1",
        "JFK,x",
        "[null, 17]",
        '[["JFK"], 17]',
        "[" * 3_000,
    ],
)
def test_a_key_that_does_not_fit_is_refused(text: str) -> None:
    schema = pa.schema([("origin", pa.string()), ("flight", pa.int32())])
    with pytest.raises(KeyValueError) as caught:
        parse_keys(["LGA,4", text], schema, ["origin", "flight"])
    assert caught.value.where == text


def test_a_key_that_is_no_text_is_refused() -> None:
    with pytest.raises(KeyValueError, match="does not fit key column 'id'"):
        parse_keys(["JFK\udc80"], pa.schema([("id", pa.string())]), ["id"])

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest

from weir.cli.text_values import parse_keys, parse_names, parse_storage_options
from weir.errors import KeyValueError, OptionError


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


@pytest.mark.parametrize("text", ["JFK", "JFK,17,3", '["JFK"]', '{"origin": "JFK"}', "[1", "JFK,x"])
def test_a_key_that_does_not_fit_is_refused(text: str) -> None:
    schema = pa.schema([("origin", pa.string()), ("flight", pa.int32())])
    with pytest.raises(KeyValueError) as caught:
        parse_keys(["LGA,4", text], schema, ["origin", "flight"])
    assert caught.value.where == text


def test_names_are_parted_at_commas() -> None:
    assert parse_names(" a,b , c", "columns") == ["a", "b", "c"]
    with pytest.raises(OptionError, match="columns"):
        parse_names("a,,b", "columns")


def test_storage_options_may_hold_equals_signs() -> None:
    assert parse_storage_options(["key=a=b", "empty="]) == {"key": "a=b", "empty": ""}


@pytest.mark.parametrize("text", ["a-long-secret", "=a-long-secret"])
def test_a_storage_option_that_is_wrong_is_not_shown(text: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_storage_options([text])
    assert "a-long-secret" not in str(caught.value)

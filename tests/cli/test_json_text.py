from __future__ import annotations

import base64
import json
import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.cli.json_text import json_column, json_lines, parse_json_column

_AT = datetime(2013, 3, 10, 7, 5, 0, 250_000, UTC)
_COLUMNS = [
    pa.array([1, None, -(2**63)], pa.int64()),
    pa.array([2**64 - 1, None, 0], pa.uint64()),
    pa.array([True, None, False]),
    pa.array([1.5, None, -1e300]),
    pa.array([1.5, None, 0.1], pa.float32()),
    pa.array([1.5, None, 2.0], pa.float16()),
    pa.array(['"\\\n\x01é😀</', None, ""]),
    pa.array(["x", None, ""], pa.large_string()),
    pa.array([b"\x00\xff", None, b""]),
    pa.array([b"ab", None, b"cd"], pa.binary(2)),
    pa.array([UUID(int=2**128 - 1), None, UUID(int=7)], pa.uuid()),
    pa.array([_AT, None, _AT], pa.timestamp("us", "UTC")),
    pa.array([_AT, None, _AT], pa.timestamp("ms", "America/New_York")),
    pa.array([_AT.replace(tzinfo=None), None, None], pa.timestamp("ns")),
    pa.array([date(2013, 1, 1), None, date(1969, 12, 31)]),
    pa.array([date(2013, 1, 1), None, date(1969, 12, 31)], pa.date64()),
    pa.array([time(23, 59, 59), None, time()], pa.time32("s")),
    pa.array([time(23, 59, 59, 999_999), None, time()], pa.time64("us")),
    pa.array([timedelta(seconds=1), None, timedelta(0)], pa.duration("ms")),
    pa.array([Decimal("1.50"), None, Decimal("-2.00")], pa.decimal128(10, 2)),
    pa.array([Decimal("1.50"), None, Decimal("-2.00")], pa.decimal256(50, 2)),
    pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32(), 2)),
    pa.array([[1, None], None, []], pa.list_(pa.int64())),
    pa.array([["a"], None, []], pa.large_list(pa.string())),
    pa.array([[[1], []], None, [None]], pa.list_(pa.list_(pa.int8()))),
    pa.array([{"a": 1, "b": [b"q"]}, None, {"a": None, "b": None}]),
    pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    pa.array(["a", None, "b"]).dictionary_encode(),
    pa.nulls(3),
]


def test_a_time_that_no_calendar_has() -> None:
    (text,) = json_column(pa.array([2**61], pa.timestamp("us"))).to_pylist()
    assert json.loads(text) == f"<value out of range: {2**61}>"


@pytest.mark.parametrize("column", _COLUMNS, ids=lambda column: str(column.type))
@pytest.mark.parametrize("part", [slice(0, 3), slice(1, 3), slice(1, 2), slice(0, 0)], ids=str)
def test_every_type_survives_being_written_and_read(column: pa.Array, part: slice) -> None:
    column = column[part]
    texts = json_column(column)
    texts.validate(full=True)
    for text, value in zip(texts.to_pylist(), column.to_pylist(), strict=True):
        assert (json.loads(text) is None) == (value is None)
    read = parse_json_column(texts.cast(pa.string()), column.type)
    read.validate(full=True)
    assert read.type == column.type
    assert read.to_pylist() == column.to_pylist()


@given(st.lists(st.none() | st.text(), max_size=8))
def test_text_is_escaped_as_json_wants_it(values: list[str | None]) -> None:
    texts = json_column(pa.array(values, pa.string())).to_pylist()
    assert [json.loads(text) for text in texts] == values


@given(st.lists(st.none() | st.floats(), max_size=8))
def test_numbers_are_json_numbers_and_the_others_have_names(values: list[float | None]) -> None:
    named = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
    texts = json_column(pa.array(values, pa.float64())).to_pylist()
    for text, value in zip(texts, values, strict=True):
        read = json.loads(text, parse_constant=lambda constant: pytest.fail(f"{constant} is not JSON"))
        read = named.get(read, read) if isinstance(read, str) else read
        assert read == value or (value is not None and math.isnan(value) and math.isnan(read))


def test_what_json_lacks_is_written_as_documented() -> None:
    batch = pa.record_batch(
        {
            "at": pa.array([_AT], pa.timestamp("ms", "America/New_York")),
            "local": pa.array([_AT.replace(tzinfo=None)], pa.timestamp("us")),
            "day": pa.array([date(2013, 3, 10)]),
            "clock": pa.array([time(7, 5)], pa.time32("s")),
            "wait": pa.array([timedelta(seconds=2)], pa.duration("ms")),
            "price": pa.array([Decimal("10.50")], pa.decimal128(10, 2)),
            "raw": pa.array([b"\x00\xff"]),
            "vec": pa.array([[1.0, 0.5]], pa.list_(pa.float32(), 2)),
            'odd "name"': pa.array([None], pa.int8()),
        }
    )
    (line,) = json_lines(batch)
    assert json.loads(line) == {
        "at": "2013-03-10T07:05:00.250Z",
        "local": "2013-03-10T07:05:00.250000",
        "day": "2013-03-10",
        "clock": "07:05:00",
        "wait": 2000,
        "price": "10.50",
        "raw": base64.b64encode(b"\x00\xff").decode(),
        "vec": [1.0, 0.5],
        'odd "name"': None,
    }
    assert "\n" not in line


def test_rows_without_columns_are_empty_objects() -> None:
    batch = pa.record_batch({"a": [1, 2]}).select([])
    assert list(json_lines(batch)) == ["{}", "{}"]


@pytest.mark.parametrize(
    ("text", "data_type"),
    [
        ("[1,2]", pa.list_(pa.float32(), 3)),
        ("[1,", pa.list_(pa.int64())),
        ('1} {"v":2', pa.list_(pa.int64())),
        ('[1], "w": [2]', pa.list_(pa.int64())),
        ('{"a": null}', pa.struct([pa.field("a", pa.int64(), nullable=False)])),
        ('{"a": 1, "b": 2}', pa.struct([("a", pa.int64())])),
        ('[{"key": null, "value": 1}]', pa.map_(pa.string(), pa.int64())),
        ('["not Base64"]', pa.list_(pa.binary())),
    ],
)
def test_text_that_does_not_fit_is_refused(text: str, data_type: pa.DataType) -> None:
    with pytest.raises(pa.ArrowInvalid):
        parse_json_column(pa.array([text]), data_type)

"""CSV and JSON lines: values of every type, and errors that name the row and the column."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest

from weir.cli.input.csv_rows import open_csv
from weir.cli.input.json_rows import open_json_lines
from weir.cli.input.rows import ReadRequest
from weir.errors import InputError, SchemaError

_AT = datetime(2013, 3, 10, 7, 5, 0, 250_000, UTC)
_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("text", pa.string()),
        ("real", pa.float64()),
        ("half", pa.float16()),
        ("flag", pa.bool_()),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("clock", pa.time64("us")),
        ("price", pa.decimal128(10, 2)),
        ("large", pa.decimal256(50, 2)),
        ("raw", pa.binary()),
        ("vec", pa.list_(pa.float32(), 2)),
        ("tags", pa.list_(pa.string())),
        ("more", pa.struct([("a", pa.int8())])),
        ("code", pa.dictionary(pa.int32(), pa.string())),
    ]
)
_VALUES = {
    "id": 1,
    "text": 'a,"b"\nc',
    "real": -0.5,
    "half": 1.5,
    "flag": True,
    "at": _AT,
    "day": date(2013, 3, 10),
    "clock": time(7, 5),
    "price": Decimal("1.50"),
    "large": Decimal("2.25"),
    "raw": b"\x00\xff",
    "vec": [1.0, 2.0],
    "tags": ["x", None],
    "more": {"a": 1},
    "code": "k",
}
_AS_CSV = (
    '1,"a,""b""\nc",-0.5,1.5,true,2013-03-10T07:05:00.25Z,2013-03-10,07:05:00,1.50,2.25,AP8=,'
    '"[1, 2]","[""x"", null]","{""a"": 1}",k\n'
)
_AS_JSON = (
    r'{"id": 1, "text": "a,\"b\"\nc", "real": -0.5, "half": 1.5, "flag": true, '
    r'"at": "2013-03-10T07:05:00.25Z", "day": "2013-03-10", "clock": "07:05:00", "price": 1.5, '
    r'"large": "2.25", "raw": "AP8=", "vec": [1, 2], "tags": ["x", null], "more": {"a": 1}, "code": "k"}'
)


def _csv(data: str | bytes, schema: pa.Schema = _SCHEMA, **options: object) -> pa.Table:
    request = ReadRequest(schema, **options)  # type: ignore[arg-type]
    stream = open_csv(io.BytesIO(data if isinstance(data, bytes) else data.encode()), "f.csv", request)
    return pa.concat_tables([part.rows for part in stream.batches])


def _json(data: str | bytes, schema: pa.Schema = _SCHEMA, **options: object) -> pa.Table:
    request = ReadRequest(schema, **options)  # type: ignore[arg-type]
    stream = open_json_lines(
        io.BytesIO(data if isinstance(data, bytes) else data.encode()), "f.jsonl", request
    )
    return pa.concat_tables([part.rows for part in stream.batches])


def test_csv_has_values_of_every_type() -> None:
    rows = _csv(",".join(_SCHEMA.names) + "\n" + _AS_CSV + "," * (len(_SCHEMA) - 1) + "\n")
    assert rows.schema.equals(_SCHEMA)
    assert rows.to_pylist() == [_VALUES, dict.fromkeys(_SCHEMA.names)]


def test_json_has_values_of_every_type() -> None:
    rows = _json(_AS_JSON + "\n\n{}\n" + '{"id": null}')
    assert rows.schema.equals(_SCHEMA)
    assert rows.to_pylist() == [_VALUES, *[dict.fromkeys(_SCHEMA.names)] * 2]


def test_an_empty_value_of_csv_is_null_and_a_quoted_one_is_text() -> None:
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    rows = _csv('id,text\n1,\n2,""\n3,NA\n,"NA"\n', schema, null_values=("", "NA"))
    assert rows.column("text").to_pylist() == [None, "", None, "NA"]
    assert rows.column("id").to_pylist() == [1, 2, 3, None]


def test_csv_may_have_a_byte_order_mark_other_delimiters_and_any_order() -> None:
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    rows = _csv("\ufefftext;id\nx;1\n", schema, delimiter=";")
    assert rows.to_pylist() == [{"text": "x", "id": 1}]
    rows = _json('\ufeff{"text": "x", "id": 1}', schema)
    assert rows.to_pylist() == [{"id": 1, "text": "x"}]


def test_lines_longer_than_a_block_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weir.cli.input.json_rows._BLOCK_BYTES", 16)
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    texts = ["x" * length for length in range(0, 60, 7)]
    data = "\n".join(f'{{"id": {number}, "text": "{text}"}}' for number, text in enumerate(texts))
    assert _json(data, schema).to_pydict() == {"id": list(range(len(texts))), "text": texts}


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("column", "bad"),
    [
        ("id", "x"),
        ("id", "1.5"),
        ("id", "9223372036854775808"),
        ("real", "much"),
        ("flag", "perhaps"),
        ("at", "yesterday"),
        ("day", "2013-02-30"),
        ("clock", "25:00:00"),
        ("price", "1.505"),
        ("price", "x"),
        ("large", "1.505"),
        ("raw", "!"),
        ("vec", '"[1]"'),
        ("vec", "1"),
        ("tags", '"[""x"""'),
        ("tags", '"[1]"'),
        ("more", '"{""a"": 300}"'),
    ],
)
def test_a_bad_value_of_csv_is_named_by_row_and_column(column: str, bad: str) -> None:
    schema = pa.schema([("n", pa.int64()), _SCHEMA.field(column)])
    good = "".join(f"{number},\n" for number in range(200_000))
    with pytest.raises(SchemaError) as caught:
        _csv(f"n,{column}\n{good}7,{bad}\n8,\n", schema)
    assert caught.value.where == f"f.csv, row 200001, column {column!r}"


@pytest.mark.parametrize(
    ("column", "bad"),
    [
        ("id", '"x"'),
        ("id", "1.5"),
        ("text", "5"),
        ("flag", "1"),
        ("at", '"yesterday"'),
        ("day", '"2013-02-30"'),
        ("clock", '"25:00:00"'),
        ("price", "1.505"),
        ("raw", '"!"'),
        ("vec", "[1]"),
        ("vec", "[1, [2]]"),
        ("tags", "[1]"),
        ("more", '{"a": 300}'),
        ("more", "[]"),
    ],
)
def test_a_bad_value_of_json_is_named_by_row_and_column(column: str, bad: str) -> None:
    schema = pa.schema([("n", pa.int64()), _SCHEMA.field(column)])
    good = "".join(f'{{"n": {number}}}\n' for number in range(1_000))
    with pytest.raises(SchemaError) as caught:
        _json(f'{good}\n{{"n": 7, "{column}": {bad}}}\n{{"n": 8}}\n', schema)
    assert caught.value.where == f"f.jsonl, row 1001, column {column!r}"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not JSON"),
        ("[1]", "a JSON list, not an object"),
        ("5", "a JSON int, not an object"),
        ('{"id": 1} {"id": 2}', "not JSON"),
        ('{"id": 1, "id": 2}', "id"),
    ],
)
def test_a_bad_line_is_named(line: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        _json('{"id": 0}\n' * 5 + line + "\n", pa.schema([("id", pa.int64())]))
    assert str(caught.value.where).startswith("f.jsonl, row 6")


def test_an_unknown_field_in_a_struct_of_json_is_named_with_its_row() -> None:
    schema = pa.schema([("id", pa.int64()), ("more", pa.struct([("a", pa.int8()), ("day", pa.date32())]))])
    good = '{"id": 0, "more": {"a": 1, "day": "2026-01-01"}}\n'
    with pytest.raises(SchemaError, match=r"does not fit column 'more'.*\"zz\": 2") as caught:
        _json(good * 2 + '{"id": 1, "more": {"a": 1, "zz": 2}}\n' + good, schema)
    assert caught.value.where == "f.jsonl, row 3, column 'more'"


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (pa.float16(), "65504", "70000"),
        (pa.float32(), "1e38", "1e39"),
        (pa.float64(), "1e308", "1e309"),
        (pa.list_(pa.float32(), 2), "[1, 2]", "[1, 1e39]"),
    ],
    ids=str,
)
def test_numbers_that_are_too_large_are_refused_and_infinite_ones_are_not(
    kind: pa.DataType, good: str, bad: str
) -> None:
    schema = pa.schema([("x", kind)])
    with pytest.raises(SchemaError, match=r"does not fit column 'x'|too large") as caught:
        _json(f'{{"x": {good}}}\n{{"x": {bad}}}\n', schema)
    assert caught.value.where == "f.jsonl, row 2, column 'x'"
    with pytest.raises(SchemaError, match="does not fit column 'x'") as caught:
        _csv(f'x\n"{good}"\n"{bad}"\n', schema)
    assert caught.value.where == "f.csv, row 2, column 'x'"
    if not pa.types.is_nested(kind):
        assert _csv("x\n-inf\n Infinity\n", schema)["x"].to_pylist() == [float("-inf"), float("inf")]


@pytest.mark.parametrize(
    "bad", ["1e400", "-1e400", '[5, {"y": 1e400}]', "7" * 400], ids=lambda text: text[:9]
)
def test_a_number_of_json_that_no_reader_takes_is_named_with_its_own_column(bad: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64())])
    with pytest.raises(SchemaError, match=r"a number in column 'x' is too large: -?\d+") as caught:
        _json(f'{{"id": 1, "x": 2.5}}\n{{"id": 2, "x": {bad}}}\n', schema)
    assert caught.value.where == "f.jsonl, row 2, column 'x'"
    assert len(str(caught.value)) < 200
    assert _json('{"id": 1, "x": -Infinity}\n', schema)["x"].to_pylist() == [float("-inf")]


def test_an_unknown_column_of_json_is_named_with_its_first_row() -> None:
    with pytest.raises(SchemaError, match="no column 'zz'") as caught:
        _json('{"id": 0}\n{"id": 1, "zz": 2}\n', pa.schema([("id", pa.int64())]))
    assert caught.value.where == "f.jsonl, row 2, column 'zz'"


def test_a_row_of_csv_with_too_many_values_is_named() -> None:
    with pytest.raises(InputError, match="Expected 1 columns") as caught:
        _csv("id\n1\n2\n3,4\n", pa.schema([("id", pa.int64())]))
    assert caught.value.where == "f.csv, row 3"


def test_csv_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(InputError, match="UTF8"):
        _csv(b"text\n\xff\xfe\n", pa.schema([("text", pa.string())]))


def test_csv_without_a_header_is_refused() -> None:
    with pytest.raises(InputError, match="the file is empty"):
        _csv("\n\n")

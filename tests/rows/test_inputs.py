"""Rows in, whatever they are: for a new table, and for one that is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import weir
from weir.errors import InputError, SchemaError
from weir.rows.coerce import as_table
from weir.rows.declared import declared_types

DICTS: list[dict[str, Any]] = [{"id": 1, "name": "a", "size": 2.5}, {"id": 2, "name": None, "size": None}]


@dataclass
class Row:
    id: int
    name: str | None
    size: float | None


@dataclass
class Declared:
    id: int
    price: float = 1
    text: str | None = None
    at: datetime | None = None
    amount: Decimal | None = None
    tags: Annotated[list[str], "of a shop"] = field(default_factory=list)
    other: Any = 7


class Model:
    """What a pydantic model shows of itself."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def model_dump(self) -> dict[str, Any]:
        return self._values


class OneArray:
    """Something that exports a single Arrow array."""

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return pa.RecordBatch.from_pylist(DICTS).__arrow_c_array__(requested_schema)


INPUTS: dict[str, Callable[[], Any]] = {
    "dicts": lambda: DICTS,
    "dataclasses": lambda: [Row(**row) for row in DICTS],
    "models": lambda: [Model(row) for row in DICTS],
    "table": lambda: pa.Table.from_pylist(DICTS),
    "reader": lambda: pa.Table.from_pylist(DICTS).to_reader(max_chunksize=1),
    "array": OneArray,
    "columns": lambda: {"id": [1, 2], "name": ["a", None], "size": [2.5, None]},
    "pandas": lambda: pd.DataFrame(DICTS).convert_dtypes(),
    "pandas objects": lambda: pd.DataFrame(DICTS).astype({"id": object}),
    "polars": lambda: pl.DataFrame(DICTS),
    "lazy": lambda: pl.LazyFrame(DICTS),
    "categories": lambda: pl.DataFrame(DICTS).with_columns(pl.col("name").cast(pl.Categorical)),
    "enum": lambda: pl.DataFrame(DICTS).with_columns(pl.col("name").cast(pl.Enum(["a", "b"]))),
    "generator of dicts": lambda: (row for row in DICTS),
    "generator of batches": lambda: (
        pa.RecordBatch.from_pylist([row], pa.Table.from_pylist(DICTS).schema) for row in DICTS
    ),
}


def test_annotations_tell_what_values_do_not(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", [Declared(1), Declared(2)], primary_key="id", fsync=False)
    assert {one.name: str(one.type) for one in table.schema} == {
        "id": "int64",
        "price": "double",
        "text": "string",
        "at": "timestamp[us]",
        "amount": "decimal128(38, 18)",
        "tags": "list<item: string>",
        "other": "int64",
    }
    table.upsert([Declared(3, 2.5, "a", datetime(2026, 1, 1), Decimal("1.50"), ["x"])])
    assert table.get([3]).to_pylist()[0]["amount"] == Decimal("1.50")
    # Where values know more, they count.
    aware = weir.create(tmp_path / "u", [Declared(1, at=datetime(2026, 1, 1, tzinfo=UTC))], primary_key="id")
    assert aware.schema.field("at").type == pa.timestamp("us", "UTC")
    fraction: Any = 1.5
    floats = weir.create(tmp_path / "v", [Declared(fraction, text="a")], primary_key="text")
    assert floats.schema.field("id").type == pa.float64()


@dataclass
class Line:
    article: str
    pieces: int | None = None
    off: float = 0


@dataclass
class Order:
    id: int
    lines: list[Line]
    first: Line | None = None


@dataclass
class Link:
    id: int
    next: Link | None = None


@dataclass
class Partly:
    id: int
    first: Declared | None = None


def test_annotations_of_what_is_inside_tell_too(tmp_path: Path) -> None:
    pydantic = pytest.importorskip("pydantic")
    line: Any = pydantic.create_model("L", article=(str, ...), pieces=(int | None, None), off=(float, 0))
    order = pydantic.create_model("O", id=(int, ...), lines=(list[line], ...), first=(line | None, None))
    for number, row in enumerate((Order(1, [Line("a")], Line("b")), order(id=1, lines=[line(article="a")]))):
        table = weir.create(tmp_path / str(number), [row], primary_key="id", fsync=False)
        of_line = pa.struct([("article", pa.string()), ("pieces", pa.int64()), ("off", pa.float64())])
        assert table.schema.field("first").type == of_line
        assert table.schema.field("lines").type.value_type == of_line
        table.upsert([{"id": 2, "lines": [{"article": "c", "pieces": 3, "off": 0.5}], "first": None}])
        assert table.get([2])["lines"].to_pylist() == [[{"article": "c", "pieces": 3, "off": 0.5}]]
    with pytest.raises(SchemaError, match=r"'next\.next' has no value from which to infer its type"):
        weir.create(tmp_path / "itself", [Link(1, Link(0))], primary_key="id", fsync=False)
    # What is told in part makes no struct without the rest.
    assert "first" not in declared_types([Partly(1)])


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        ({"name": "id"}, {"id": 7, "v": 1}),
        ({}, None),
    ],
)
def test_an_index_with_a_name_is_a_column(
    index: dict[str, str], expected: dict[str, int] | None, tmp_path: Path
) -> None:
    frame = pd.DataFrame({"v": [1]}, index=pd.Index([7], **index))
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    if expected is None:
        with pytest.raises(weir.errors.KeyValueError, match="id"):
            table.upsert(frame)
        with pytest.raises(SchemaError, match="'id' is not in the schema"):
            weir.create(tmp_path / "u", frame, primary_key="id", fsync=False)
        return
    table.upsert(frame)
    made = weir.create(tmp_path / "u", frame, primary_key="id", fsync=False)
    made.upsert(frame.reset_index().set_index(["id", "v"]))
    # A column counts more than an index of its name; an index that is no column is not lost in silence.
    made.upsert(pd.DataFrame({"id": [7], "v": [1]}, index=pd.Index([9], name="id")))
    with pytest.raises(SchemaError, match="'day'"):
        made.upsert(pd.DataFrame({"id": [7]}, index=pd.Index([1], name="day")))
    for one in (table, made):
        assert one.scan().to_pylist() == [expected]
        assert one.delete(frame.drop(columns="v")).rows == 1
        assert one.scan().count() == 0


def test_pydantic_models_are_rows(tmp_path: Path) -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Order", id=(int, ...), note=(str | None, None), size=(float, 2))
    table = weir.create(tmp_path / "t", [model(id=1), model(id=2)], primary_key="id", fsync=False)
    assert [str(one.type) for one in table.schema] == ["int64", "string", "double"]
    assert table.scan().count() == 2


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", list(INPUTS))
def test_a_table_is_made_of_rows_and_takes_them_again(kind: str, tmp_path: Path) -> None:
    made = weir.create(tmp_path / "t", INPUTS[kind](), primary_key="id", fsync=False)
    assert made.primary_key == ("id",)
    assert [str(field.type).removeprefix("large_") for field in made.schema] == ["int64", "string", "double"]
    rows = sorted(made.scan().to_pylist(), key=lambda row: row["id"])
    assert rows == DICTS
    with made.writer() as writer:
        writer.delete([1, 2])
        assert writer.upsert(INPUTS[kind]()).rows == 2
    assert sorted(made.scan().to_pylist(), key=lambda row: row["id"]) == DICTS


def test_what_tells_no_schema_makes_no_table(tmp_path: Path) -> None:
    for rows, error, message in (
        ([], InputError, "no rows"),
        (iter([]), InputError, "empty iterator"),
        (42, InputError, "int"),
        ([{"id": 1, "x": None}], SchemaError, "'x' has no value from which to infer its type"),
        ([{"id": 1, "x": {"y": None}}], SchemaError, "'x.y' has no value from which to infer its type"),
        ([{"id": 1, "x": []}], SchemaError, "'x' has no value from which to infer its type"),
        ([{"id": 1, "x": 1}, {"id": 2, "x": "one"}], SchemaError, "has no usable schema"),
        (pd.DataFrame({"id": [1, 2], "x": [1, "one"]}), SchemaError, "column x with type object: Could not"),
        ([{"id": 1}, {"id": None}], weir.errors.KeyValueError, "id"),
    ):
        with pytest.raises(error, match=message):
            weir.create(tmp_path / "t", rows, primary_key="id", fsync=False)
        with pytest.raises(weir.errors.TableNotFoundError):
            weir.open(tmp_path / "t")


def test_a_generator_is_written_piece_by_piece(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", pa.schema([("id", pa.int64())]), primary_key="id", fsync=False)
    seen: list[int] = []

    def rows() -> Iterator[dict[str, int]]:
        for number in range(25_000):
            if number == 10_001:
                seen.append(table.scan().count())
            yield {"id": number}

    with table.writer() as writer:
        assert writer.upsert(rows()).rows == 25_000
    assert seen == [10_000]
    assert table.scan().count() == 25_000


EAST = timezone(timedelta(hours=2))


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_moments_with_and_without_a_time_zone_are_never_mixed(zone: str | None, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", zone))])
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    naive, aware = datetime(2026, 1, 1, 12), datetime(2026, 1, 1, 12, tzinfo=EAST)
    with table.writer() as writer:
        for values in ([naive, aware], [aware, None, naive], [aware if zone is None else naive]):
            with pytest.raises(SchemaError, match="at"):
                writer.upsert([{"id": n, "at": value} for n, value in enumerate(values)])
            columns = {"id": range(len(values)), "at": pd.Series(values, dtype=object)}
            with pytest.raises(SchemaError, match="at"):
                writer.upsert(pd.DataFrame(columns))
        right = naive if zone is None else aware
        writer.upsert(pd.DataFrame({"id": [2, 3], "at": pd.Series([right, pd.NaT], dtype=object)}))
        writer.upsert([{"id": 0, "at": right}, {"id": 1, "at": None}])
    (found,) = table.get([0])["at"].to_pylist()
    assert found == (naive if zone is None else aware.astimezone(UTC))


NAIVE, AWARE = datetime(2026, 1, 1, 12), datetime(2026, 1, 1, 12, tzinfo=EAST)
MIXED: dict[str, Any] = {
    "lists": [{"id": 1, "x": [NAIVE, AWARE]}],
    "lists of rows": [{"id": 1, "x": [AWARE]}, {"id": 2, "x": [None, NAIVE]}],
    "structs": [{"id": 1, "x": {"at": AWARE}}, {"id": 2, "x": None}, {"id": 3, "x": {"at": NAIVE}}],
    "deep": [{"id": 1, "x": [{"at": [NAIVE]}, {"at": [AWARE]}]}],
    "objects of NumPy": {"id": [1, 2], "x": np.array([AWARE, NAIVE], object)},
    "objects of pandas": {"id": [1, 2], "x": pd.Series([NAIVE, AWARE], dtype=object)},
    "lists of pandas": pd.DataFrame({"id": [1], "x": [[NAIVE, AWARE]]}),
}


@pytest.mark.parametrize("rows", MIXED.values(), ids=MIXED)
def test_moments_are_never_mixed_at_any_depth(rows: Any, tmp_path: Path) -> None:
    """Arrow takes all as the first one is: those of the other kind would be shifted."""
    with pytest.raises(SchemaError, match="mixes datetimes with and without a time zone"):
        weir.create(tmp_path / "t", rows, primary_key="id", fsync=False)
    for zone in (None, "UTC"):
        moment = pa.timestamp("us", zone)
        for kind in (moment, pa.list_(moment), pa.struct([("at", moment)])):
            schema = pa.schema([("id", pa.int64()), ("x", kind)])
            table = weir.create(tmp_path / f"{zone} {kind.id}", schema, primary_key="id", fsync=False)
            with pytest.raises(SchemaError):
                table.upsert(rows)
            assert table.scan().count() == 0


def test_maps_of_moments_are_never_mixed(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("x", pa.map_(pa.string(), pa.timestamp("us")))])
    with pytest.raises(SchemaError, match="mixes datetimes with and without a time zone, first in row 1"):
        as_table([{"id": 1, "x": [("a", NAIVE)]}, {"id": 2, "x": {"b": AWARE}}], schema)


def test_decimals_of_python_leave_room_for_others(tmp_path: Path) -> None:
    first = [{"id": 1, "price": Decimal("1.50"), "parts": [Decimal(1)], "of": {"tax": Decimal("0.1")}}]
    for number, rows in enumerate((first, pd.DataFrame(first), iter(first), {"id": [1], **_columns(first)})):
        table = weir.create(tmp_path / str(number), rows, primary_key="id", fsync=False)
        assert table.schema.field("price").type == pa.decimal128(38, 18)
        more = {"price": Decimal("100.255"), "parts": [Decimal("0.001")], "of": {"tax": Decimal("99999.5")}}
        table.upsert([{"id": 2, **more}])
        assert sorted(table.scan().to_pylist(), key=lambda row: row["id"]) == [*first, {"id": 2, **more}]
    # What has a type of its own keeps it, and numbers that need other room get it.
    of_arrow = pa.table({"id": [1], "price": pa.array([Decimal("1.50")])})
    assert weir.create(tmp_path / "a", of_arrow, primary_key="id").schema.field(
        "price"
    ).type == pa.decimal128(3, 2)
    long = [{"id": 1, "price": Decimal("9" * 30 + ".25")}]
    table = weir.create(tmp_path / "b", long, primary_key="id")
    assert table.schema.field("price").type == pa.decimal128(38, 8)
    assert table.scan().to_pylist() == long


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in ("price", "parts", "of")}


def test_moments_at_midnight_are_dates(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("at", pa.timestamp("us"))])
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    days = pd.to_datetime(["2026-01-02", None, "1969-12-31"])
    table.upsert(pd.DataFrame({"id": [1, 2, 3], "day": days, "at": [date(2026, 1, 2), None, None]}))
    table.upsert([{"id": 4, "day": datetime(2026, 1, 3)}, {"id": 5, "day": pd.Timestamp("2026-01-04")}])
    rows = sorted(table.scan().to_pylist(), key=lambda row: row["id"])
    assert [row["day"] for row in rows] == [
        date(2026, 1, 2),
        None,
        date(1969, 12, 31),
        date(2026, 1, 3),
        date(2026, 1, 4),
    ]
    assert rows[0]["at"] == datetime(2026, 1, 2)
    for value in (datetime(2026, 1, 2, 0, 0, 0, 1), pd.Timestamp("1969-12-31 23:59")):
        with pytest.raises(SchemaError, match=r"has a time of day \[day, row 1\].*at midnight"):
            table.upsert(pd.DataFrame({"id": [6, 7], "day": [pd.Timestamp("2026-01-01"), value]}))
    with pytest.raises(SchemaError, match="day"):
        table.upsert([{"id": 6, "day": datetime(2026, 1, 2, tzinfo=EAST)}])
    assert table.scan().count() == 5


TEXT_KEYS: list[tuple[pa.DataType, Any, list[str], list[str]]] = [
    (pa.date32(), date(2026, 1, 2), ["2026-01-02"], ["2026-1-2", "02.01.2026", "2026-01-02 00:00", ""]),
    (pa.date64(), date(2026, 1, 2), ["2026-01-02"], ["soon"]),
    (
        pa.timestamp("us"),
        datetime(2026, 1, 2, 10),
        ["2026-01-02 10:00", "2026-01-02T10:00:00.000000"],
        ["2026-01-02T10:00:00Z", "2026-01-02T10:00:00.0000001"],
    ),
    (
        pa.timestamp("ms", "Europe/Berlin"),
        datetime(2026, 1, 2, 9, tzinfo=UTC),
        [
            "2026-01-02 10:00",
            "2026-01-02T09:00:00Z",
            "2026-01-02T11:00:00+02:00",
            "2026-01-02 11:00:00.000+0200",
        ],
        ["10:00", "2026-01-02Z"],
    ),
    (pa.decimal128(5, 2), Decimal("1.50"), ["1.5", "1.50", "15e-1"], ["1,5", "1.555", "nan"]),
    (pa.int16(), -7, ["-7", "-07"], ["0x7", "7.5", "seven", "70000"]),
    (pa.uint64(), 2**64 - 1, [str(2**64 - 1), f"+{2**64 - 1}"], ["-1"]),
    (pa.binary(16), UUID(int=7).bytes, [str(UUID(int=7)), str(UUID(int=7)).upper()], ["7", "0" * 16]),
]


@pytest.mark.parametrize(
    ("kind", "value", "texts", "others"), TEXT_KEYS, ids=[str(one[0]) for one in TEXT_KEYS]
)
def test_keys_may_be_texts_as_literals_of_filters_are(
    kind: pa.DataType, value: Any, texts: list[str], others: list[str], tmp_path: Path
) -> None:
    schema = pa.schema([("id", kind), ("v", pa.int64())])
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    table.upsert([{"id": value, "v": 1}])
    for text in texts:
        for keys in ([text], [(text,)], [{"id": text}], pd.Series([text]), pa.table({"id": [text]})):
            assert table.get(keys)["v"].to_pylist() == [1], keys
        if kind != pa.uint64():
            assert table.scan(["v"], filter=f"id = '{text}'").to_pylist() == [{"v": 1}]
    for text in others:
        for keys in ([texts[0], text], pa.array([texts[0], text])):
            with pytest.raises(SchemaError, match=r"is not a value of column 'id'.*written like") as refused:
                table.get(keys)
            assert refused.value.where == "id, key 1"
    # Of what is deleted "07" and "7" are not the same.
    table.delete([value] if pa.types.is_integer(kind) else texts[:1])
    assert table.scan().count() == 0


def test_progress_is_told_as_pieces_are_durable(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", pa.schema([("id", pa.int64())]), primary_key="id", fsync=False)
    seen: list[tuple[int, int]] = []

    def told(rows: int) -> None:
        seen.append((rows, table.scan().count()))

    with table.writer() as writer:
        writer.upsert(({"id": number} for number in range(25_000)), progress=told)
        assert seen == [(10_000, 10_000), (20_000, 20_000), (25_000, 25_000)]
        writer.upsert([{"id": -1}], progress=told)
        assert seen[-1] == (1, 25_001)
        with pytest.raises(InputError, match="wait"):
            writer.upsert([{"id": -2}], wait=False, progress=told)  # type: ignore[call-overload]
    assert table.scan().count() == 25_001


def test_uuids_of_rows_may_be_texts_and_keys_of_any_collection(tmp_path: Path) -> None:
    ids = [UUID(int=number) for number in range(1, 4)]
    table = weir.create(tmp_path / "t", [{"id": ids[0], "v": 1}], primary_key="id", fsync=False)
    table.upsert([{"id": str(ids[1]), "v": 2}])
    table.upsert(pl.DataFrame({"id": [str(ids[2])], "v": [3]}))
    for keys in (set(ids), iter(ids), dict.fromkeys(ids).keys(), {"a": ids[0], "b": ids[1]}.values()):
        assert set(table.get(keys)["id"].to_pylist()) == set(ids[:2] if "values" in str(type(keys)) else ids)
    for wrong in ("0123456789abcdef", "1", ""):
        with pytest.raises(SchemaError, match="id"):
            table.upsert([{"id": wrong, "v": 1}])
    assert table.scan().count() == 3


def test_integers_that_pandas_has_made_floats_of_come_back(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("n", pa.int16())])
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    table.upsert([{"id": 1, "n": 5}, {"id": 2, "n": None}, {"id": 3, "n": -(2**15)}])
    frame = table.scan().to_pandas()
    assert frame["n"].dtype == float
    table.upsert(frame)
    assert {row["id"]: row["n"] for row in table.scan().to_pylist()} == {1: 5, 2: None, 3: -(2**15)}
    for wrong in (0.5, 2.0**60, 2.0**15, float("inf")):
        with pytest.raises(SchemaError, match="n"):
            table.upsert(pd.DataFrame({"id": [1, 2], "n": [wrong, None]}))
    assert table.scan().count() == 3


def test_updates_set_dates_as_filters_have_them(tmp_path: Path) -> None:
    rows = [{"id": 1, "day": date(2026, 1, 1), "at": datetime(2026, 1, 1)}]
    table = weir.create(tmp_path / "t", rows, primary_key="id", fsync=False)
    table.update(where="day = '2026-01-01'", set={"day": "'2026-02-02'", "at": "'2026-02-02 10:00'"})
    assert table.scan().to_pylist() == [{"id": 1, "day": date(2026, 2, 2), "at": datetime(2026, 2, 2, 10)}]
    with pytest.raises(SchemaError, match="'soon' is not a value of column 'day'"):
        table.update(where="id = 1", set={"day": "'soon'"})


def test_keys_of_texts_stay_texts(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.large_string()), ("day", pa.date32()), ("v", pa.int64())])
    table = weir.create(tmp_path / "t", schema, primary_key=["id", "day"], fsync=False)
    table.upsert([{"id": "2026-01-02", "day": date(2026, 1, 2), "v": 1}])
    assert table.get([("2026-01-02", "2026-01-02")])["v"].to_pylist() == [1]
    assert table.get([{"id": "2026-01-02", "day": date(2026, 1, 2)}])["v"].to_pylist() == [1]
    # Rows are checked as they are: a text is no date.
    with pytest.raises(SchemaError, match="day"):
        table.upsert([{"id": "a", "day": "2026-01-02"}])


def test_a_text_is_no_integer_key_of_what_is_written_or_deleted(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("v", pa.int64())])
    table = weir.create(tmp_path / "t", schema, primary_key=["id", "day"], fsync=False)
    day = date(2026, 1, 2)
    table.upsert([{"id": 7, "day": day, "v": 1}])
    text = pa.table({"id": ["007"], "day": [day]})
    with table.writer() as writer:
        writes: list[Callable[[], object]] = [
            lambda: writer.patch([{"id": "007", "day": day, "v": 2}]),
            lambda: writer.upsert([{"id": "007", "day": day, "v": 2}]),
            lambda: writer.delete([("007", day)]),
            lambda: writer.delete([{"id": "007", "day": day}]),
            lambda: writer.delete(text),
            lambda: writer.delete(text, condition="v = 1"),
        ]
        for write in writes:
            with pytest.raises(SchemaError, match="'id' holds values of type string"):
                write()
        assert table.get([("007", "2026-01-02")])["v"].to_pylist() == [1]
        writer.delete([(7, "2026-01-02")])
    assert not table.scan().count()


NOON = datetime(2026, 1, 1, 12, 30, 0, 5)
CUT: dict[str, tuple[pa.DataType, list[Any], str]] = {
    "decimals in lists of integers": (pa.list_(pa.int64()), [[1], [Decimal("1.5")]], "v, row 1"),
    "decimals in structs": (pa.struct([("a", pa.int64())]), [{"a": 1}, {"a": Decimal("1.5")}], "v.a, row 1"),
    "fractions in maps": (pa.map_(pa.string(), pa.int64()), [{"a": 1}, [("a", 1.5)]], "v.value, row 1"),
    "moments in lists of dates": (pa.list_(pa.date32()), [[date(2026, 1, 1)], [NOON]], "v, row 1"),
    "moments among dates": (pa.date32(), [date(2026, 1, 1), NOON], "v, row 1"),
    "moments before dates": (pa.date64(), [NOON, date(2026, 1, 1)], "v, row 0"),
    "fine moments in lists": (pa.list_(pa.timestamp("s")), [[], [NOON]], "v, row 1"),
    "fine durations in lists": (pa.list_(pa.duration("s")), [[timedelta(milliseconds=1)]], "v, row 0"),
    "large numbers in lists": (pa.list_(pa.float32()), [[1.0], [1e300]], "v, row 1"),
    "large numbers in vectors": (pa.list_(pa.float32(), 2), [[1.0, 2.0], [1.0, 1e300]], "v, row 1"),
    "text as a list": (pa.list_(pa.string()), [["abc"], "abc"], "v, row 1"),
    "nothing but text as a list": (pa.list_(pa.string()), ["abc"], "v, row 0"),
    "a field that is no text": (pa.struct([("a", pa.int64())]), [{1: 1}], "v.1, row 0"),
    "no time in lists": (pa.list_(pa.date32()), [[date(2026, 1, 1)], [pd.NaT]], "v, row 1"),
    "nanoseconds": (pa.duration("us"), [pd.Timedelta(1_000), pd.Timedelta(1)], "v, row 1"),
    "a series as a struct": (pa.struct([("a", pa.int64())]), [pd.Series({"a": 1})], "v, row 0"),
    "an empty list as a struct": (pa.struct([("a", pa.int64())]), [{"a": 1}, []], "v, row 1"),
    "nothing but empty lists as structs": (pa.struct([("a", pa.int64())]), [[], []], "v, row 0"),
    "lists as structs in lists": (pa.list_(pa.struct([("a", pa.int64())])), [[{"a": 1}], [[]]], "v, row 1"),
    "times with a zone": (pa.time64("us"), [NOON.time(), NOON.time().replace(tzinfo=UTC)], "v, row 1"),
    "times with a zone in lists": (pa.list_(pa.time32("s")), [[], [time(12, tzinfo=UTC)]], "v, row 1"),
    "an integer that is too large": (pa.int32(), [1, 2**31], "v, row 1"),
    "text among integers": (pa.int64(), [1, 2, "3"], "v, row 2"),
}


@pytest.mark.parametrize("case", CUT)
def test_values_that_would_be_cut_are_refused_with_their_row(case: str) -> None:
    kind, values, where = CUT[case]
    schema = pa.schema([("id", pa.int64()), ("v", kind)])
    rows = [{"id": number, "v": value} for number, value in enumerate(values)]
    for data in (rows, {"id": range(len(rows)), "v": values}):
        with pytest.raises(SchemaError) as refused:
            as_table(data, schema)
        assert refused.value.where == where
    with pytest.raises(SchemaError) as refused:
        as_table(rows, schema, first_row=10)
    assert refused.value.where == where[:-1] + str(10 + int(where[-1]))


def test_dates_among_moments_are_midnights() -> None:
    schema = pa.schema([("at", pa.timestamp("us"))])
    for days in ([date(2026, 1, 2), NOON, None], [NOON, date(2026, 1, 2), None]):
        got = as_table({"at": days}, schema)["at"].to_pylist()
        assert got == [None if day is None else NOON if day is NOON else datetime(2026, 1, 2) for day in days]
    with pytest.raises(SchemaError):
        as_table({"at": [date(2026, 1, 2), NOON.replace(tzinfo=UTC)]}, schema)


def test_integers_of_a_frame_with_missing_ones_fit_or_are_named(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("n", pa.uint8())])
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    with pytest.raises(SchemaError, match=r"256.*\[n, row 2\]"):
        table.upsert(pd.DataFrame({"id": [1, 2, 3], "n": [1, None, 256]}))
    table.upsert(pd.DataFrame({"id": [1, 2, 3], "n": [1, None, 255]}))
    assert table.get([1, 2, 3])["n"].to_pylist() == [1, None, 255]


def test_objects_of_frames_are_read_as_what_the_table_has(tmp_path: Path) -> None:
    counts, codes = pa.map_(pa.string(), pa.int64()), pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema(
        [("id", pa.int64()), ("m", counts), ("at", pa.timestamp("us")), ("c", codes), ("l", pa.list_(codes))]
    )
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    table.upsert(pd.DataFrame({"id": [1, 2], "m": [{"a": 1}, None], "at": [date(2026, 1, 2), NOON]}))
    # The texts of Polars are views, of which Arrow makes no dictionaries.
    table.upsert(pl.DataFrame({"id": [3], "c": ["a"], "l": [["a", None]]}))
    assert sorted(table.scan().to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "m": [("a", 1)], "at": datetime(2026, 1, 2), "c": None, "l": None},
        {"id": 2, "m": None, "at": NOON, "c": None, "l": None},
        {"id": 3, "m": None, "at": None, "c": "a", "l": ["a", None]},
    ]
    with pytest.raises(SchemaError, match=r"\[m.value, row 1\]"):
        table.upsert(pd.DataFrame({"id": [1, 2], "m": [None, [("a", 1.5)]]}))


@pytest.mark.parametrize(
    "kind", [pa.date32(), pa.timestamp("us"), pa.duration("ns"), pa.time32("s")], ids=str
)
def test_a_missing_time_of_pandas_is_null(kind: pa.DataType) -> None:
    schema = pa.schema([("v", kind)])
    good = pa.array([1, None], pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind).to_pylist()
    for values in ([pd.NaT], [good[0], pd.NaT], [pd.NaT, good[0]]):
        got = as_table([{"v": value} for value in values], schema)["v"].to_pylist()
        assert got == [None if value is pd.NaT else value for value in values]

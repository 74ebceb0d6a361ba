"""Filters that Spark pushes down, compared with a plain evaluation by Spark's rules. Without a session."""

from __future__ import annotations

import datetime as dt
import math
import random
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

import weir
from weir.spark.filters import push_filters
from weir.spark.types import SparkBatches, spark_schema

NEGATIVE_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]
TEXTS = [
    "",
    "a",
    "ab",
    "it's",
    "'",
    "''",
    "a\\b",
    "%",
    "_b",
    "ä€😀",
    "a\nb",
    "\x00",
    "A",
    "--",
    '"',
    "_rowid",
    None,
]
INSTANTS = [
    dt.datetime(1, 1, 1),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
    dt.datetime(1970, 1, 1),
    dt.datetime(2020, 3, 29, 2, 30),
    dt.datetime(2020, 10, 25, 2, 30, 0, 1),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
    None,
]
SOON = [dt.datetime(1970, 1, 1), dt.datetime(2020, 3, 29, 2, 30), dt.datetime(2200, 1, 1), None]
IN_UTC = [None if one is None else one.replace(tzinfo=dt.UTC) for one in SOON]
SECONDS = [one for one in INSTANTS if one is None or not one.microsecond]
FLOATS = [0.0, -0.0, 1.5, -1.5, 0.1, 1e300, 5e-324, math.inf, -math.inf, math.nan, NEGATIVE_NAN, None]
SINGLES = [0.0, -0.0, 1.5, struct.unpack("<f", struct.pack("<f", 0.1))[0], math.nan, NEGATIVE_NAN, None]
DECIMALS = [Decimal("0.00"), Decimal("-1.10"), Decimal("1.10"), Decimal("99999999.99"), None]

# Column type; values of rows; more values to compare with, which no row may have.
COLUMNS: dict[str, tuple[pa.DataType, list[Any], list[Any]]] = {
    "flag": (pa.bool_(), [True, False, None], []),
    "tiny": (pa.int8(), [-128, 0, 127, None], [1]),
    "long": (pa.int64(), [-(2**63), -1, 0, 2**63 - 1, None], [7]),
    "byte": (pa.uint8(), [0, 1, 255, None], [-1, 256, 300]),
    "huge": (pa.uint64(), [0, 2**63, 2**64 - 1, None], [Decimal(5), Decimal(2**64), Decimal(-1)]),
    "half": (pa.float16(), [0.5, None], [0.1]),
    "single": (pa.float32(), SINGLES, []),
    "double": (pa.float64(), FLOATS, [2.0]),
    "price": (pa.decimal128(10, 2), DECIMALS, [Decimal("1.11")]),
    "wide": (pa.decimal128(38, 2), [Decimal("12345678901234567890123456.12"), None], [Decimal("1.00")]),
    "wider": (pa.decimal256(30, 2), [Decimal("1.12"), None], [Decimal("1.00")]),
    "hundreds": (pa.decimal128(5, -2), [Decimal("1E2"), None], [Decimal(150)]),
    "text": (pa.string(), TEXTS, ["b", "it"]),
    "large text": (pa.large_string(), TEXTS, ["b"]),
    "kind": (pa.dictionary(pa.int32(), pa.string()), TEXTS, ["b"]),
    "bytes": (pa.binary(), [b"", b"a", b"a\x00", b"\xff", None], [b"b'"]),
    "two": (pa.binary(2), [b"ab", b"\x00'", None], [b"a", b"abc"]),
    "day": (pa.date32(), [dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(9999, 12, 31), None], []),
    "long day": (pa.date64(), [dt.date(1970, 1, 1), dt.date(2020, 1, 1), None], []),
    "at": (pa.timestamp("us"), INSTANTS, []),
    "at seconds": (pa.timestamp("s"), SECONDS, [dt.datetime(1970, 1, 1, 0, 0, 0, 1)]),
    "at nanoseconds": (pa.timestamp("ns"), SOON, [dt.datetime(1, 1, 1), dt.datetime(9999, 1, 1)]),
    "berlin": (pa.timestamp("us", "Europe/Berlin"), IN_UTC, []),
    "berlin ms": (pa.timestamp("ms", "Europe/Berlin"), IN_UTC, []),
    "utc": (pa.timestamp("us", "UTC"), IN_UTC, []),
    "offset": (pa.timestamp("s", "+02:00"), IN_UTC, []),
    "time": (pa.time64("us"), [dt.time(1), dt.time(2, 3, 4, 5), None], []),
    "pair": (
        pa.struct([("x", pa.int32()), ("deep", pa.struct([("name", pa.string())]))]),
        [{"x": 1, "deep": {"name": "it's"}}, {"x": None, "deep": None}, None],
        [],
    ),
    "vector": (pa.list_(pa.float32(), 2), [[0.0, 1.0], None], []),
}
FULLY_PUSHED = {
    "flag",
    "tiny",
    "long",
    "price",
    "wide",
    "text",
    "large text",
    "kind",
    "bytes",
    "day",
    "at",
    "berlin",
    "utc",
}
COMPARISONS: dict[type, Callable[[int], bool]] = {
    EqualTo: lambda order: order == 0,
    EqualNullSafe: lambda order: order == 0,
    GreaterThan: lambda order: order > 0,
    GreaterThanOrEqual: lambda order: order >= 0,
    LessThan: lambda order: order < 0,
    LessThanOrEqual: lambda order: order <= 0,
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> weir.Table:
    """A table with every value of every column, half of the rows in the base table, the rest newer."""
    schema = pa.schema([("id", pa.int64()), *((name, kind) for name, (kind, _, _) in COLUMNS.items())])
    count = max(len(values) for _, values, _ in COLUMNS.values()) * 2
    data = pa.table(
        [
            pa.array(range(count)),
            *(pa.array((values * count)[:count], kind) for kind, values, _ in COLUMNS.values()),
        ],
        schema=schema,
    )
    table = weir.create(
        tmp_path_factory.mktemp("filters") / "t",
        schema,
        primary_key="id",
        shard_by=weir.bucket("id", 2),
        fsync=False,
    )
    with table.writer() as writer:
        writer.upsert(data)
    table.maintenance.merge()
    with table.writer(flush_on_close=False) as writer:
        writer.upsert(data.slice(count // 2, count // 4))
        writer.flush()
        writer.upsert(data.slice(count * 3 // 4))
    return table


def order(one: Any, other: Any) -> int:
    """Compare as Spark does: NaN equals itself and is above all numbers; text by its bytes."""
    if isinstance(one, float):
        one, other = ((math.isnan(value), 0.0 if math.isnan(value) else value) for value in (one, other))
    if isinstance(one, str):
        one, other = one.encode(), other.encode()
    return int(one > other) - int(one < other)


def expected(one: Filter, row: dict[str, Any]) -> bool | None:
    """Evaluate a filter on a row, with what SQL says of nulls."""
    if isinstance(one, Not):
        child = expected(one.child, row)
        return None if child is None else not child
    value: Any = row
    for name in one.attribute:  # type: ignore[attr-defined]
        value = None if value is None else value[name]
    if isinstance(one, IsNull | IsNotNull):
        return (value is None) == isinstance(one, IsNull)
    if isinstance(one, EqualNullSafe) and (value is None or one.value is None):
        return value is None and one.value is None
    if value is None:
        return None
    if isinstance(one, In):
        if any(other is not None and order(value, other) == 0 for other in one.value):
            return True
        return None if None in one.value else False
    if isinstance(one, StringStartsWith):
        return bool(value.startswith(one.value))
    if isinstance(one, StringEndsWith):
        return bool(value.endswith(one.value))
    if isinstance(one, StringContains):
        return one.value in value
    return COMPARISONS[type(one)](order(value, one.value))  # type: ignore[attr-defined]


def some_filters(name: str, chance: random.Random) -> list[Filter]:
    """Return filters about a column: every kind, with values drawn from those it has and some more."""
    path: tuple[str, ...] = (name,)
    values, more = COLUMNS[name][1:]
    if name == "pair":
        fields: list[tuple[tuple[str, ...], list[Any], list[Any]]] = [
            (("pair", "x"), [1, None], [2]),
            (("pair", "deep", "name"), ["it's", None], []),
        ]
        path, values, more = chance.choice(fields)
    if name == "huge":
        values = [None if value is None else Decimal(value) for value in values]
    given = [value for value in [*values, *more] if value is not None]
    found: list[Filter] = [IsNull(path), IsNotNull(path), EqualNullSafe(path, None)]
    for _ in range(4):
        found += [comparison(path, chance.choice(given)) for comparison in COMPARISONS]
        found.append(In(path, tuple(chance.choices(given, k=3))))
        found.append(In(path, (chance.choice(given), None)))
        if name in ("text", "large text", "kind"):
            texts = (StringStartsWith, StringEndsWith, StringContains)
            found += [text(path, chance.choice(given)) for text in texts]
    return [*found, *(Not(one) for one in found)]


@pytest.mark.parametrize("name", COLUMNS)
def test_what_is_pushed_keeps_the_rows_that_spark_would_keep(table: weir.Table, name: str) -> None:
    chance = random.Random(name)
    schema = table.schema
    columns = ["id", name]
    content = table.scan(columns).to_table()
    shown = SparkBatches(spark_schema(content.schema))
    seen = [row for batch in content.to_batches() for row in shown.convert(batch).to_pylist()]
    filters = some_filters(name, chance)
    pushed = 0
    for one in filters:
        result = push_filters([one], schema)
        assert len(result.conditions) + len(result.left) == 1
        if result.conditions:
            pushed += 1
            found = table.scan(["id"], filter=result.conditions[0]).to_table()
            kept = sorted(row["id"] for row in seen if expected(one, row))
            assert sorted(found.column("id").to_pylist()) == kept, (one, result.conditions)
    if name in FULLY_PUSHED:
        with_null = sum(isinstance(one, In) and None in one.value for one in filters)
        assert pushed >= len(filters) - 2 * with_null
    assert pushed >= (0 if name == "vector" else 4)


def test_conditions_that_name_no_column_of_the_table_are_left_to_spark() -> None:
    schema = pa.schema([("a", pa.int64())])
    filters: list[Filter] = [IsNull(("b",)), EqualTo(("a", "x"), 1), EqualTo(("a",), "1"), EqualTo((), 1)]
    assert push_filters(filters, schema).left == tuple(filters)

"""Conditions of Spark's SQL as Weir's filters, without Spark: its part is to say what constants are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
import sqlglot
from sqlglot import exp

from weir.errors import FilterError
from weir.spark.statements.constants import condition_text

SCHEMA = pa.schema(
    [
        ("n", pa.int32()),
        ("x", pa.float64()),
        ("price", pa.decimal128(10, 2)),
        ("text", pa.string()),
        ("v", pa.list_(pa.int32())),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("info", pa.struct([("n", pa.int64())])),
    ]
)
NEW_YEAR = datetime(2026, 1, 1, 5, tzinfo=UTC)
INSTANT = "arrow_cast(1767243600000000, 'Timestamp(Microsecond, Some(\"UTC\"))')"
LOCAL = "arrow_cast(1767225600000000, 'Timestamp(Microsecond, None)')"
KNOWN = {
    "CAST(CURRENT_TIMESTAMP() AS DATE)": pa.scalar(date(2026, 1, 1)),
    "CURRENT_DATE": pa.scalar(date(2026, 1, 1)),
    "DATE_ADD(CURRENT_DATE, 7 * -1)": pa.scalar(date(2025, 12, 25)),
    "CURRENT_TIMESTAMP()": pa.scalar(NEW_YEAR, pa.timestamp("us", "America/New_York")),
    "CAST(CURRENT_TIMESTAMP() AS TIMESTAMP)": pa.scalar(NEW_YEAR, pa.timestamp("us", "America/New_York")),
    "CAST('2026-01-01' AS TIMESTAMP)": pa.scalar(NEW_YEAR, pa.timestamp("us", "America/New_York")),
    "CAST(CAST('2026-01-01' AS TIMESTAMP) AS TIMESTAMP)": pa.scalar(NEW_YEAR, pa.timestamp("us", "UTC")),
    "CAST('2026-01-01' AS TIMESTAMP_NTZ)": pa.scalar(datetime(2026, 1, 1), pa.timestamp("us")),
    "CAST(CAST('2026-01-01' AS TIMESTAMP) AS TIMESTAMP_NTZ)": pa.scalar(
        datetime(2026, 1, 1), pa.timestamp("us")
    ),
    "X'1F'": pa.scalar(b"\x1f"),
    "1 + 1": pa.scalar(2),
    "CAST('x' AS INT)": pa.scalar(None, pa.int32()),
    "ARRAY(1, 2)": pa.scalar([1, 2]),
}


def evaluate(expressions: Sequence[exp.Expr]) -> pa.Table:
    values = [KNOWN[one.sql("spark")] for one in expressions]
    return pa.table([[one] for one in values], names=[str(number) for number in range(len(values))])


@pytest.mark.parametrize(
    ("spark", "expected"),
    [
        ("n / 4 > 1", "CAST(n AS DOUBLE) / NULLIF(4, 0) > 1"),
        ("n / 4.0 > x / 2", "n / NULLIF(4.0, 0) > x / NULLIF(2, 0)"),
        ("price / n > 1", "price / NULLIF(n, 0) > 1"),
        (
            "info.n / 2 = new.n / 2",
            "CAST(info.n AS DOUBLE) / NULLIF(2, 0) = CAST(new.n AS DOUBLE) / NULLIF(2, 0)",
        ),
        ("v[0] = n", "v[1] = n"),
        ("v[n] = element_at(v, 1)", "v[(n) + 1] = v[1]"),
        (
            "CAST(text AS INT) = 1 OR try_cast(text AS INT) = 2",
            "CAST(text AS INT) = 1 OR TRY_CAST(text AS INT) = 2",
        ),
        ("element_at(v, -1) = v[2]", "v[-1] = v[3]"),
        ("concat(text, '!') = text", "(text || '!') = text"),
        ("day < current_date()", "day < date '2026-01-01'"),
        ("day < date_sub(current_date(), 7)", "day < date '2025-12-25'"),
        ("at < TIMESTAMP '2026-01-01'", f"at < {INSTANT}"),
        ("at < '2026-01-01'", f"at < {INSTANT}"),
        ("'2026-01-01' > at", f"{INSTANT} > at"),
        ("at BETWEEN '2026-01-01' AND current_timestamp()", f"at BETWEEN {INSTANT} AND {INSTANT}"),
        ("at IN ('2026-01-01', NULL)", f"at IN ({INSTANT}, NULL)"),
        ("local = '2026-01-01'", f"local = {LOCAL}"),
        ("local = TIMESTAMP '2026-01-01'", f"local = {LOCAL}"),
        ("text = '2026-01-01'", "text = '2026-01-01'"),
        ("n = 1 + 1", "n = 2"),
        ("text = X'1F'", "text = X'1f'"),
        ("n = CAST('x' AS INT)", "n = NULL"),
        ("CASE WHEN 1 + 1 = n THEN -1 ELSE n END = 1", "CASE WHEN 2 = n THEN -1 ELSE n END = 1"),
        ("v = array(1, 2)", "v = ARRAY(1, 2)"),
        ("rand() < 0.5 OR something(1) = 2", "RAND() < 0.5 OR SOMETHING(1) = 2"),
    ],
)
def test_a_condition_means_what_it_means_in_spark(spark: str, expected: str) -> None:
    assert condition_text(sqlglot.parse_one(spark, read="spark"), SCHEMA, evaluate) == expected


def test_what_a_column_is_set_to_has_its_type() -> None:
    given = sqlglot.parse_one("current_timestamp()", read="spark")
    assert condition_text(given, SCHEMA, evaluate, of="at") == INSTANT
    text = sqlglot.parse_one("'2026-01-01'", read="spark")
    assert condition_text(text, SCHEMA, evaluate, of="local") == LOCAL
    assert condition_text(text, SCHEMA, evaluate, of="text") == "'2026-01-01'"
    assert condition_text(given, SCHEMA, evaluate, of="day") == "date '2026-01-01'"


def test_dates_are_not_compared_with_instants() -> None:
    with pytest.raises(FilterError, match="day is a date, and is compared with an instant"):
        condition_text(sqlglot.parse_one("day < current_timestamp()", read="spark"), SCHEMA, evaluate)

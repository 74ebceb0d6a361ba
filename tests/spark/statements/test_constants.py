"""Conditions of Spark's SQL as Weir's filters, without Spark: its part is to say what constants are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
import sqlglot
from sqlglot import exp

from weir.errors import FilterError, UnsupportedError
from weir.spark.statements.constants import condition_text

SCHEMA = pa.schema(
    [
        ("n", pa.int32()),
        ("x", pa.float64()),
        ("f", pa.float32()),
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
    "NOW()": pa.scalar(NEW_YEAR, pa.timestamp("us", "America/New_York")),
    "CAST(NOW() AS TIMESTAMP)": pa.scalar(NEW_YEAR, pa.timestamp("us", "America/New_York")),
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
    "SIZE(CAST(NULL AS ARRAY<INT>))": pa.scalar(-1),
}


def one(text: str) -> str:
    """Return a float that is compared: one zero, one NaN."""
    return f"NANVL({text} + 0.0, CAST('NaN' AS DOUBLE))"


def evaluate(expressions: Sequence[exp.Expr]) -> pa.Table:
    values = [KNOWN[one.sql("spark")] for one in expressions]
    return pa.table([[one] for one in values], names=[str(number) for number in range(len(values))])


@pytest.mark.parametrize(
    ("spark", "expected"),
    [
        ("n / 4 > 1", f"{one('CAST(n AS DOUBLE) / NULLIF(4, 0)')} > 1"),
        ("n / 4.0 > x / 2", f"{one('n / NULLIF(4.0, 0)')} > {one('x / NULLIF(2, 0)')}"),
        ("CAST(price AS DOUBLE) / n > 1", f"{one('CAST(price AS DOUBLE) / NULLIF(n, 0)')} > 1"),
        (
            "f = 0.5 OR f = f AND f IN (1, 2)",
            f"{one('CAST(f AS DOUBLE)')} = 0.5 OR {one('f')} = {one('f')} "
            f"AND {one('CAST(f AS DOUBLE)')} IN (1, 2)",
        ),
        (
            "price * 1.10 > x - 1",
            f"CAST(price * CAST('1.10' AS DECIMAL(3, 2)) AS DOUBLE) > {one('x - 1')}",
        ),
        ("n + 1 = -n * x", f"CAST(n AS BIGINT) + 1 = {one('-CAST(n AS BIGINT) * x')}"),
        ("x = 0 OR -x = 0 OR -x > 2", f"x = 0 OR {one('(0.0 - x)')} = 0 OR {one('(0.0 - x)')} > 2"),
        (
            "1 / x > f / -f",
            f"{one('1 / NULLIF(x + 0.0, 0)')} > "
            f"{one('CAST(f AS DOUBLE) / NULLIF(CAST((0.0 - f) AS DOUBLE) + 0.0, 0)')}",
        ),
        ("x > 1 OR NOT 1 <= x", "(x > 1 OR ISNAN(x)) OR NOT (1 <= x OR ISNAN(x))"),
        ("x < 1 OR x BETWEEN -1 AND 2", "(x < 1 AND NOT ISNAN(x)) OR (x BETWEEN -1 AND 2 AND NOT ISNAN(x))"),
        ("x > NULL", "x > NULL"),
        ("x = f + 1", f"{one('x')} = {one('CAST(f AS DOUBLE) + 1')}"),
        ("x = (f + f) * n", f"{one('x')} = {one('CAST((f + f) AS DOUBLE) * CAST(n AS BIGINT)')}"),
        (
            "n <=> 1 AND x = 1 OR NOT n IS DISTINCT FROM 2",
            "(n IS NOT DISTINCT FROM 1) AND x = 1 OR NOT (n IS DISTINCT FROM 2)",
        ),
        (
            "text NOT ILIKE 'A%' AND NOT text ILIKE 'b'",
            "LOWER(text) NOT LIKE 'a%' AND NOT LOWER(text) LIKE 'b'",
        ),
        ("x % n = 0", f"{one('x % NULLIF(CAST(n AS BIGINT), 0)')} = 0"),
        ("n % 2 = n div 4", "CAST(n AS BIGINT) % 2 = CAST(CAST(n AS BIGINT) / 4 AS BIGINT)"),
        ("text ILIKE 'A%'", "LOWER(text) LIKE 'a%'"),
        (
            "info.n / 2 = new.n / 2",
            f"{one('CAST(info.n AS DOUBLE) / NULLIF(2, 0)')} = {one('CAST(new.n AS DOUBLE) / NULLIF(2, 0)')}",
        ),
        ("v[0] = n", "v[1] = n"),
        ("v[n] = element_at(v, 1)", "v[(n) + 1] = v[1]"),
        (
            "CAST(text AS INT) = 1 OR try_cast(x AS INT) = 2",
            "CAST(text AS INT) = 1 OR TRY_CAST(x AS INT) = 2",
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
        ("at < now()", f"at < {INSTANT}"),
        (
            "text LIKE 'a%' AND NOT contains(lower(text), 'b')",
            "text LIKE 'a%' AND NOT CONTAINS(LOWER(text), 'b')",
        ),
        ("array_contains(v, 1) OR size(v) = 0", "ARRAY_CONTAINS(v, 1) OR COALESCE(ARRAY_LENGTH(v), -1) = 0"),
    ],
)
def test_a_condition_means_what_it_means_in_spark(spark: str, expected: str) -> None:
    assert condition_text(sqlglot.parse_one(spark, read="spark"), SCHEMA, evaluate) == expected


@pytest.mark.parametrize(
    "spark",
    [
        # Not a number of another sign, and nothing instead of an error.
        *("ln(x) > 0", "sqrt(n) > 1", "n & 1 = 1", "rand() < 0.5", "something(n) = 2", "round(x, 2) = 0.1"),
        # Every match or the first, letters behind what is no letter, nulls left out.
        *(
            "regexp_replace(text, '[0-9]', '') = 'a'",
            "initcap(text) = 'A'",
            "concat_ws('-', text, text) = 'a'",
        ),
        *("text RLIKE '^a'", "left(text, n) = 'a'", "substr(text, -1) = 'a'", "trim(text) = 'a'"),
        # Digits and exponents, and a place between any two characters.
        *("concat(x, 'a') = '1.5a'", "price || '' = '1'", "length(x) = 3", "concat(at, '') = ''"),
        *("replace(text, '', 'b') = 'b'", "replace(text, text, '') = ''"),
        # White space, digits that are lost, the time zone of the session.
        *("try_cast(text AS INT) IS NULL", "CAST(price AS INT) = 3", "price / 3 = 1.666667"),
        *("at = local", "CAST(at AS DATE) = day", "at + INTERVAL 1 DAY > now()", "day + 1 = current_date()"),
        # A list with a null among others.
        *("NOT array_contains(v, 7)", "sort_array(v)[0] = 1"),
    ],
)
def test_what_spark_finds_otherwise_is_refused(spark: str) -> None:
    with pytest.raises(UnsupportedError, match=r"cannot evaluate .* as Spark does"):
        condition_text(sqlglot.parse_one(spark, read="spark"), SCHEMA, evaluate)


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

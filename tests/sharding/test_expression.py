from __future__ import annotations

import pyarrow as pa
import pytest
from tests.sharding.oracles import datafusion_values

from weir.errors import ShardingError
from weir.sharding.expression import Expression
from weir.sharding.transforms import DatePart, Truncate

NUMBERS = pa.array([8, None, -1, 0, 2**62])
TEXTS = pa.array(["héllo", None, "", "ab", "日本語"])
TIMES = pa.array([0, None, -1, 10**15, 1_700_000_000_000_000], pa.timestamp("us"))


@pytest.mark.parametrize(
    ("sql", "result_type", "columns"),
    [
        ("col0 % 7", "int64", [NUMBERS]),
        ("CASE WHEN col0 > 3 THEN 'big' ELSE 'small' END", "utf8", [NUMBERS]),
        ("coalesce(col0, 0) + col1", "int64", [NUMBERS, NUMBERS]),
        ("upper(left(col0, 2))", "utf8", [TEXTS]),
        ("col0 LIKE 'a%'", "boolean", [TEXTS]),
        ("date_trunc('month', col0)", "timestamp:us:-", [TIMES]),
        ("CAST(col0 AS DATE)", "date32", [TIMES]),
        ("date_part('dow', col0) * 100 + character_length(col1)", "int64", [TIMES, TEXTS]),
        ("CAST(col0 AS DOUBLE) / 3", "float64", [NUMBERS]),
    ],
)
def test_values_are_those_of_datafusion(sql: str, result_type: str, columns: list[pa.Array]) -> None:
    expression = Expression(sql, result_type)
    types = [column.type for column in columns]
    declared = expression.result_type(types)
    got = expression.evaluate(columns, types)
    expected = datafusion_values({f"col{number}": column for number, column in enumerate(columns)}, sql)
    assert got.type == declared
    assert got.to_pylist() == expected.to_pylist()


def test_rows_keep_their_order_in_large_batches() -> None:
    numbers = pa.array(range(100_000))
    assert Expression("col0", "int64").evaluate([numbers], [pa.int64()]).equals(numbers)


def test_no_rows_have_no_values() -> None:
    assert len(Expression("col0", "int64").evaluate([pa.array([], pa.int64())], [pa.int64()])) == 0


@pytest.mark.parametrize(
    ("sql", "transform", "column", "result_type"),
    [
        ("left(col0, 2)", Truncate(2), TEXTS, "utf8"),
        ("col0 - (col0 % 5)", Truncate(5), NUMBERS, "int64"),
        ("date_part('hour', col0)", DatePart("hour"), TIMES, "int32"),
    ],
)
def test_transforms_are_the_expressions_the_spec_derives(
    sql: str, transform: Truncate | DatePart, column: pa.Array, result_type: str
) -> None:
    by_expression = Expression(sql, result_type).evaluate([column], [column.type])
    assert by_expression.equals(transform.evaluate([column], [column.type]))


@pytest.mark.parametrize(
    "sql",
    [
        *("now()", "CURRENT_DATE", "CURRENT_TIMESTAMP", "current_time", "today()", "random()", "rand()"),
        *("uuid()", "version()", "col0 + random()", "CASE WHEN col0 = 1 THEN 1 ELSE rand() END"),
        *("sum(col0)", "count(*)", "max(col0) FILTER (WHERE col0 > 1)", "row_number() OVER ()"),
        *("first_value(col0) OVER ()", "(SELECT 1)", "EXISTS (SELECT 1)", "col0 IN (SELECT 1)"),
        *("col0 > ALL (SELECT 1)", "unnest([1, 2])", "$1", "nullif(col0, CAST(now() AS BIGINT))"),
    ],
)
def test_what_is_not_a_function_of_the_row_is_refused(sql: str) -> None:
    with pytest.raises(ShardingError, match="not deterministic and stateless"):
        Expression(sql, "int64").result_type([pa.int64()])


@pytest.mark.parametrize(
    "sql",
    ["col0 +", "col0, col0", "col0) FROM t", "col0; DROP TABLE t", "*", "id", "col1", "COL0", "f(col0)"],
)
def test_what_is_not_one_expression_over_the_columns_is_refused(sql: str) -> None:
    with pytest.raises(ShardingError, match="is not valid SQL over col0"):
        Expression(sql, "int64").result_type([pa.int64()])


@pytest.mark.parametrize(
    ("sql", "declared", "source", "message"),
    [
        ("col0 % 7", "int32", pa.int64(), "is of type int64, not int32"),
        ("make_array(col0)", "int64", pa.int64(), "is of type list"),
        ("abs(col0)", "int64", pa.string(), "does not fit its columns"),
        ("CAST(coalesce(col0, 'x') AS BIGINT)", "int64", pa.string(), "fails on a row"),
    ],
)
def test_types_that_do_not_fit_are_refused(
    sql: str, declared: str, source: pa.DataType, message: str
) -> None:
    with pytest.raises(ShardingError, match=message):
        Expression(sql, declared).result_type([source])


def test_a_row_it_cannot_be_computed_for_is_refused() -> None:
    with pytest.raises(ShardingError, match=r"fails on a row: .*[Dd]ivide by zero"):
        Expression("100 / col0", "int64").evaluate([pa.array([1, 0])], [pa.int64()])


@pytest.mark.parametrize(("sql", "declared"), [("", "int64"), ("  ", "int64"), ("col0", "integer")])
def test_malformed_expressions_are_refused_at_once(sql: str, declared: str) -> None:
    with pytest.raises(ShardingError):
        Expression(sql, declared)

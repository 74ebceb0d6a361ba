"""Names in statements: found whatever their case, and never those of another column."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import sqlglot
from pyspark.sql import SparkSession
from sqlglot import exp

import weir
from weir.errors import FilterError, QueryError, SchemaError
from weir.spark import sql
from weir.spark.statements.dialect import PassedOn
from weir.spark.statements.merge_plan import plan_merge_rows
from weir.spark.statements.own_names import with_own_fields

INNER = pa.struct([("Z", pa.int64()), ("deep", pa.struct([("B", pa.struct([("C", pa.int64())]))]))])
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("a", pa.int64()),
        ("A", pa.int64()),
        ("s", pa.struct([("X", pa.int64()), ("y", INNER), ("two", pa.int64()), ("TWO", pa.int64())])),
        ("l", pa.list_(pa.struct([("X", pa.int64())]))),
    ]
)


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    inner = {"Z": 1, "deep": {"B": {"C": 2}}}
    table.upsert(
        [
            {"id": n, "a": n, "A": -n, "s": {"X": n, "y": inner, "two": n, "TWO": -n}, "l": [{"X": n}]}
            for n in (1, 2)
        ]
    )
    return table


def ids(table: weir.Table) -> list[int]:
    return sorted(table.scan(["id"]).to_table().column("id").to_pylist())


@pytest.mark.parametrize(
    "condition",
    [
        *("a = 1", "A = -1", "T.a = 1", "t.A = -1", "ID = 1"),
        *("s.x = 1", "S.X = 1", "t.S.x = 1", "s.Y.z = 1 AND id = 1", "t.s.y.z = 1 AND id = 1"),
        *("s.y.DEEP.b.c = 2 AND id = 1", "t.s.y.DEEP.b.c = 2 AND id = 1", "l[0].x = 1", "s.two = 1"),
        *("s['x'] = 1", "S['y']['Z'] = 1 AND id = 1", "l[0]['x'] = 1", "s.y['deep'].b['C'] = 2 AND id = 1"),
        *("s['x'] / 2 = 0.5", "s['y']['deep']['b']['c'] = 2 AND id = 1"),
    ],
)
def test_rows_are_found_by_the_column_that_is_meant(
    spark: SparkSession, table: weir.Table, condition: str
) -> None:
    sql(spark, f"DELETE FROM t WHERE {condition}", {"t": table})
    assert ids(table) == [2]


def test_the_column_that_is_meant_is_set(spark: SparkSession, table: weir.Table) -> None:
    sql(spark, "UPDATE t SET a = S.x + 10, A = 7 WHERE id = 1", {"t": table})
    row = table.get([1]).to_pylist()[0]
    assert (row["a"], row["A"]) == (11, 7)


@pytest.mark.parametrize(
    ("condition", "error", "message"),
    [
        ("s.Two = 1", QueryError, "'Two' may be any of two, TWO"),
        ("s.none = 1", FilterError, "none"),
        ("none.x = 1", FilterError, "no column none.x"),
    ],
)
def test_names_of_none_or_of_several(
    spark: SparkSession, table: weir.Table, condition: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        sql(spark, f"DELETE FROM t WHERE {condition}", {"t": table})
    assert ids(table) == [1, 2]


def test_the_names_of_a_merge() -> None:
    def values(column: str) -> dict[str, exp.Expression]:
        statement = sqlglot.parse_one(
            f"MERGE INTO t USING s ON t.ID = s.Id WHEN MATCHED THEN UPDATE SET {column} = s.v", read=PassedOn
        )
        assert isinstance(statement, exp.Merge)
        schema = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("A", pa.int64()), ("bb", pa.int64())])
        plan = plan_merge_rows(statement, schema, ["id"], ["id", "v"], lambda found: pa.table({}))
        found = plan.matched[0].values
        assert found is not None
        return found

    assert list(values("a")) == ["id", "a"]
    assert list(values("A")) == ["id", "A"]
    assert list(values("BB")) == ["id", "bb"]
    with pytest.raises(SchemaError, match="no column 'c'"):
        values("c")


def test_fields_of_values_that_have_none_keep_their_names() -> None:
    for text in ("a.x = 1", "a[0].x = 1", "a['x'] = 1", "m.x = 1"):
        parsed = sqlglot.parse_one(text, read=PassedOn)
        assert isinstance(parsed, exp.Expression)
        assert with_own_fields(parsed, SCHEMA) == parsed


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["struct", "string", "int", "date", "map", "array", "f"])
def test_calls_inside_calls_are_read_in_time(name: str) -> None:
    """Each of them once doubled the time: thirty would take for ever."""
    text = f"SELECT {f'{name}(' * 30}1{')' * 30}"
    assert sqlglot.parse_one(text, read=PassedOn).sql(PassedOn).lower() == text.lower()


def test_types_before_a_text_are_no_calls() -> None:
    for text, shown in (
        ("SELECT DECIMAL(10, 2) '1.5'", "CAST('1.5' AS DECIMAL(10, 2))"),
        ("SELECT DATE '2026-01-31'", "CAST('2026-01-31' AS DATE)"),
        ("SELECT date('2026-01-31')", "DATE('2026-01-31')"),
        ("SELECT CAST(struct(1) AS STRUCT<a: INT>)", "CAST(STRUCT(1) AS STRUCT<a: INT>)"),
    ):
        assert sqlglot.parse_one(text, read=PassedOn).sql(PassedOn) == f"SELECT {shown}"

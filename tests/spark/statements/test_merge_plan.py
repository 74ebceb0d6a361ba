"""What MERGE INTO comes to, without Spark: clauses, conditions, and what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest
import sqlglot
from sqlglot import exp

from weir.errors import QueryError, SchemaError, UnsupportedError, WeirError
from weir.spark.statements.expressions import filter_text
from weir.spark.statements.merge_plan import MergePlan, plan_merge_rows

SCHEMA = pa.schema([("id", pa.int64()), ("version", pa.int32()), ("text", pa.string()), ("a b", pa.string())])
COLUMNS = SCHEMA.names
SOURCE = ["id", "version", "text", "a b", "op", "more"]


def plan(clauses: str, on: str = "t.id = s.id", key: tuple[str, ...] = ("id",)) -> MergePlan:
    statement = sqlglot.parse_one(f"MERGE INTO t USING src AS s ON {on} {clauses}", read="spark")
    assert isinstance(statement, exp.Merge)
    return plan_merge_rows(statement, SCHEMA, key, SOURCE, lambda constants: pytest.fail(str(constants)))


def test_clauses_that_write_one_whole_row_are_an_upsert() -> None:
    found = plan(
        "WHEN MATCHED AND s.op = 'D' THEN DELETE WHEN MATCHED THEN UPDATE SET * "
        "WHEN NOT MATCHED AND s.op <> 'D' THEN INSERT *"
    )
    assert [one.values is None for one in found.matched] == [True, False]
    assert found.is_upsert(1, 0, COLUMNS)
    assert found.absent[0].chosen_by is not None


@pytest.mark.parametrize(
    ("update", "insert"),
    [
        ("UPDATE SET text = s.text", "INSERT *"),
        ("UPDATE SET *", "INSERT (id, text) VALUES (s.id, s.text)"),
        ("UPDATE SET version = s.version + 1, text = s.text, `a b` = s.`a b`", "INSERT *"),
    ],
)
def test_clauses_that_write_other_rows_are_none(update: str, insert: str) -> None:
    found = plan(f"WHEN MATCHED THEN {update} WHEN NOT MATCHED THEN {insert}")
    assert not found.is_upsert(0, 0, COLUMNS)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("t.version < s.version", "`version` < new.`version`"),
        (r"t.text IS NULL OR t.`a b` = 'it\'s'", "`text` IS NULL OR `a b` = 'it''s'"),
        ("T.VERSION <= S.Version AND t.id = s.id", "`version` <= new.`version` AND `id` = new.`id`"),
    ],
)
def test_a_condition_on_the_row_that_is_there(condition: str, expected: str) -> None:
    (clause,) = plan(f"WHEN MATCHED AND {condition} THEN UPDATE SET *").matched
    assert clause.condition == expected
    assert clause.chosen_by is None


@pytest.mark.parametrize(
    ("clauses", "error", "message"),
    [
        ("WHEN NOT MATCHED BY SOURCE THEN DELETE", UnsupportedError, "BY SOURCE"),
        ("WHEN MATCHED THEN UPDATE SET text = t.text || s.text", UnsupportedError, "depends on the row"),
        ("WHEN MATCHED AND t.version < s.more THEN UPDATE SET *", UnsupportedError, "is not written"),
        (
            "WHEN MATCHED AND t.version > 1 THEN DELETE WHEN MATCHED THEN UPDATE SET *",
            UnsupportedError,
            "a clause after",
        ),
        ("WHEN MATCHED THEN UPDATE SET id = s.version", UnsupportedError, "does not change"),
        (
            "WHEN MATCHED AND s.t.version > 1 THEN DELETE",
            UnsupportedError,
            "s.t.version, a field of a column",
        ),
        ("WHEN MATCHED THEN UPDATE SET text = s.more.text", UnsupportedError, "a field of a column"),
        ("WHEN MATCHED THEN UPDATE SET nothing = s.text", SchemaError, "no column 'nothing'"),
        ("WHEN MATCHED THEN UPDATE SET text = s.nothing", SchemaError, "no column 'nothing'"),
        ("WHEN MATCHED AND version > 1 THEN DELETE", QueryError, "both have"),
        ("WHEN MATCHED AND x.version > 1 THEN DELETE", QueryError, "neither"),
        ("WHEN NOT MATCHED AND t.version > 1 THEN INSERT *", QueryError, "no columns of the table"),
        ("WHEN NOT MATCHED THEN INSERT (id, text) VALUES (s.id)", QueryError, "as many"),
        ("WHEN NOT MATCHED THEN INSERT (text) VALUES (s.text)", UnsupportedError, "another id"),
        (
            "WHEN MATCHED THEN UPDATE SET text = (SELECT max(more) FROM src)",
            WeirError,
            "query inside|depends|both have",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(clauses: str, error: type[WeirError], message: str) -> None:
    with pytest.raises(error, match=message):
        plan(clauses)


@pytest.mark.parametrize(
    "on",
    [
        "t.id = 3 OR t.id = s.id",
        "t.version = s.version",
        "t.id < s.id",
        "true",
        "t.id = s.id AND t.id = s.more",
    ],
)
def test_on_compares_the_key(on: str) -> None:
    with pytest.raises(UnsupportedError, match="ON"):
        plan("WHEN MATCHED THEN DELETE", on=on)


@pytest.mark.parametrize(
    "clause", ["WHEN MATCHED THEN UPDATE SET *", "WHEN NOT MATCHED THEN INSERT *", "WHEN MATCHED THEN DELETE"]
)
def test_a_star_sets_the_key_that_is_compared(clause: str) -> None:
    """Another column of the source that is called like the key would be the key of another row."""
    found = plan(clause, on="t.id = CAST(s.ID AS BIGINT)")
    assert found.keys["id"].sql("spark") == "CAST(`s`.`id` AS BIGINT)"
    if "*" not in clause:
        plan(clause, on="t.id = s.more")
        return
    with pytest.raises(UnsupportedError, match=r"\* where ON compares id with `s`.`more`"):
        plan(clause, on="t.id = s.more")


def test_a_source_without_a_name() -> None:
    text = "MERGE INTO t USING (SELECT 1) ON t.id = more WHEN MATCHED AND op > 1 THEN UPDATE SET text = op"
    statement = sqlglot.parse_one(text, read="spark")
    assert isinstance(statement, exp.Merge)
    found = plan_merge_rows(statement, SCHEMA, ("id",), SOURCE, lambda constants: pytest.fail(str(constants)))
    assert found.keys["id"].sql("spark") == "`more`"


def test_a_key_of_several_columns_and_of_expressions() -> None:
    found = plan(
        "WHEN MATCHED THEN DELETE", on="(s.more + 1 = t.id) AND t.text = lower(s.text)", key=("id", "text")
    )
    assert [value.sql("spark") for value in found.keys.values()] == ["`s`.`more` + 1", "LOWER(`s`.`text`)"]


def test_texts_of_spark_are_texts_of_filters() -> None:
    parsed = sqlglot.parse_one(r"a = 'it\'s' AND b = \"x\\y\"".replace('\\"', '"'), read="spark")
    assert isinstance(parsed, exp.Expression)
    assert filter_text(parsed) == r"a = 'it''s' AND b = 'x\y'"

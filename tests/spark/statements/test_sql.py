"""Statements of SQL on tables of Weir's, run by a real Spark."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlglot
from pyspark.sql import SparkSession

import weir
from weir.errors import (
    FilterError,
    KeyValueError,
    QueryError,
    SchemaError,
    TableExistsError,
    UnsupportedError,
    WeirError,
)
from weir.spark import sql
from weir.spark.statements.constants import condition_text, evaluated_by

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("version", pa.int32()),
        ("text", pa.string()),
        ("v", pa.list_(pa.float32(), 2)),
    ]
)


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 2), fsync=False)
    table.upsert([{"id": n, "version": n, "text": f"t{n}", "v": [n, n]} for n in range(6)])
    return table


def rows(table: weir.Table) -> dict[int, tuple[Any, ...]]:
    return {
        row["id"]: (row["version"], row["text"])
        for row in table.scan(["id", "version", "text"]).to_table().to_pylist()
    }


def affected(spark: SparkSession, statement: str, table: weir.Table) -> int:
    (row,) = sql(spark, statement, {"t": table}).collect()
    return int(row.num_affected_rows)


FIRST = {n: (n, f"t{n}") for n in range(6)}
SOURCE = """(SELECT * FROM VALUES
    (1L, 9, 'new', array(1f, 2f), 'U'), (2L, 1, 'old', array(1f, 2f), 'U'),
    (3L, 9, 'gone', NULL, 'D'), (7L, 7, 'added', NULL, 'U'), (8L, 8, 'never', NULL, 'D')
    AS r(id, version, text, v, op)) AS s"""


@pytest.mark.everywhere
def test_a_batch_of_changes_is_written_by_executors(
    spark: SparkSession, table: weir.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weir.Table, "writer", None)
    statement = f"""MERGE INTO t USING {SOURCE} ON t.id = s.id
        WHEN MATCHED AND s.op = 'D' THEN DELETE
        WHEN MATCHED THEN UPDATE SET *
        WHEN NOT MATCHED AND s.op <> 'D' THEN INSERT *"""
    assert affected(spark, statement, table) == 5
    expected = {**FIRST, 1: (9, "new"), 2: (1, "old"), 7: (7, "added")}
    del expected[3]
    assert rows(table) == expected


@pytest.mark.everywhere
def test_a_condition_on_the_row_is_decided_with_the_write(spark: SparkSession, table: weir.Table) -> None:
    statement = f"""MERGE INTO t USING {SOURCE} ON s.id = t.id
        WHEN MATCHED AND t.version < s.version THEN UPDATE SET *
        WHEN NOT MATCHED THEN INSERT *"""
    assert affected(spark, statement, table) == 4
    assert rows(table) == {
        **FIRST,
        1: (9, "new"),
        3: (9, "gone"),
        7: (7, "added"),
        8: (8, "never"),
    }


def test_some_columns_of_rows_that_are_there_and_whole_new_ones(
    spark: SparkSession, table: weir.Table
) -> None:
    statement = f"""MERGE INTO t USING {SOURCE} ON t.id = s.id
        WHEN MATCHED AND s.op = 'D' THEN DELETE
        WHEN MATCHED THEN UPDATE SET text = upper(s.text)
        WHEN NOT MATCHED AND s.op = 'U' THEN INSERT (id, text) VALUES (s.id, 'x')"""
    assert affected(spark, statement, table) == 5
    expected = {**FIRST, 1: (1, "NEW"), 2: (2, "OLD"), 7: (None, "x")}
    del expected[3]
    assert rows(table) == expected


@pytest.mark.long
def test_only_rows_that_are_there_or_only_others(spark: SparkSession, table: weir.Table) -> None:
    merge = f"MERGE INTO t USING {SOURCE} ON t.id = s.id "
    assert affected(spark, merge + "WHEN NOT MATCHED THEN INSERT *", table) == 2
    assert rows(table) == {**FIRST, 7: (7, "added"), 8: (8, "never")}
    assert affected(spark, merge + "WHEN MATCHED AND s.id = 8 THEN UPDATE SET *", table) == 1
    assert affected(spark, merge + "WHEN MATCHED AND t.version > 7 THEN DELETE", table) == 1
    assert rows(table) == {**FIRST, 7: (7, "added")}


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        (
            "MERGE INTO t USING (SELECT * FROM VALUES (1L, 1), (1L, 2) AS r(id, version)) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET version = s.version",
            KeyValueError,
            "2 rows of the source have the key id = 1",
        ),
        (
            "MERGE INTO t USING (SELECT CAST(NULL AS BIGINT) AS id, 1 AS version) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET version = s.version",
            KeyValueError,
            "key id = None",
        ),
        (
            f"MERGE INTO t USING {SOURCE} ON t.id = s.id WHEN MATCHED AND s.op = 'D' THEN DELETE "
            "WHEN NOT MATCHED THEN INSERT *",
            UnsupportedError,
            "2 rows of the source delete",
        ),
        ("UPDATE t SET nothing = 1", SchemaError, "no column 'nothing'"),
        ("UPDATE t SET text = 'x' WHERE id IN (SELECT 1)", UnsupportedError, "a query inside"),
        ("DELETE FROM t WHERE other.id = 1", WeirError, "no column other.id"),
        ("INSERT OVERWRITE t SELECT 1, 2, 'x', NULL", UnsupportedError, "OVERWRITE"),
        ("INSERT INTO t SELECT 1", SchemaError, "1 values for 4 columns"),
        ("INSERT INTO t (id, _op) VALUES (1, 'delete')", SchemaError, "no column '_op'"),
        ("INSERT INTO t (id, text, TEXT) VALUES (1, 'a', 'b')", QueryError, "named twice"),
        ("INSERT INTO t (id) VALUES (NULL)", KeyValueError, "null"),
        ("INSERT INTO t (id, version) VALUES (1, 9000000000)", SchemaError, "does not fit int32"),
        ("INSERT INTO t REPLACE WHERE id > 3 SELECT * FROM t", UnsupportedError, "REPLACE WHERE"),
        ("INSERT INTO t VALUES (1, 1, 'x', NULL) ON CONFLICT DO NOTHING", UnsupportedError, "ON CONFLICT"),
        ("INSERT INTO t AS x (version, id) VALUES (1, 2)", UnsupportedError, "INSERT with AS"),
        ("INSERT INTO t DEFAULT VALUES", UnsupportedError, "DEFAULT VALUES"),
        ("INSERT INTO t BY NAME SELECT 1 AS id", UnsupportedError, "BY NAME"),
        ("FROM t INSERT INTO t SELECT *", UnsupportedError, "FROM ... INSERT"),
        (
            "WITH s AS (SELECT 1L AS id) MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN DELETE",
            UnsupportedError,
            "inside USING",
        ),
        ("DELETE FROM t USING u WHERE t.id = u.id", UnsupportedError, "DELETE with USING"),
        ("UPDATE t SET version = 1 FROM u", UnsupportedError, "UPDATE with FROM"),
        ("DELETE FROM t WHERE id = 1 LIMIT 1", UnsupportedError, "DELETE with LIMIT"),
        ("INSERT INTO t PARTITION (id = 1) SELECT 1, 'x', NULL", UnsupportedError, "PARTITION"),
        ("DELETE FROM t VERSION AS OF 'x' WHERE id = 1", UnsupportedError, "VERSION AS OF"),
        ("UPDATE t SET v.text = 'x'", UnsupportedError, "cannot set v.text"),
        ("UPDATE t SET text = 'x', TEXT = 'y'", QueryError, "'text' is set twice"),
        ("UPDATE t SET version = CAST(text AS INT)", WeirError, "t0"),
        ("DELETE FROM t WHERE text < CAST('x' AS INT)", FilterError, "Spark cannot evaluate"),
        ("OPTIMIZE t", UnsupportedError, "OPTIMIZE"),
        ("-- all\nOPTIMIZE t", UnsupportedError, "OPTIMIZE"),
        ("DROP TABLE t", UnsupportedError, "weir.drop"),
        ("SELECT 1; SELECT 2", QueryError, "one statement"),
        ("MERGE INTO t USING", QueryError, "cannot be read"),
        (f"DELETE FROM t WHERE {'(' * 2_000}id = 1{')' * 2_000}", QueryError, "nested too deeply"),
        (f"DELETE FROM t WHERE id{' + 1' * 1_500} = 1", FilterError, "1,501 levels deep"),
        (f"SELECT * FROM t WHERE {'NOT ' * 2_000}id = 1", QueryError, "nested too deeply"),
        ("DELETE FROM t WHERE text = '\ud800'", QueryError, "half of a character"),
    ],
)
def test_what_cannot_be_done_changes_nothing(
    spark: SparkSession, table: weir.Table, statement: str, error: type[WeirError], message: str
) -> None:
    with pytest.raises(error, match=message):
        sql(spark, statement, {"t": table})
    assert rows(table) == FIRST


def test_update_and_delete(spark: SparkSession, table: weir.Table) -> None:
    update = 'UPDATE t AS x SET version = x.version + 10, text = "it\'s" WHERE x.ID >= 4'
    assert affected(spark, update, table) == 2
    assert affected(spark, "DELETE FROM T WHERE text = 't1' OR version IS NULL", table) == 1
    expected = {**FIRST, 4: (14, "it's"), 5: (15, "it's")}
    del expected[1]
    assert rows(table) == expected
    assert affected(spark, "DELETE FROM t", table) == 5
    assert rows(table) == {}


def test_names_that_sql_has_another_meaning_for(spark: SparkSession, tmp_path: Path) -> None:
    names = ["now", "current_date", "order", "end", "null", "interval", "t", "Mixed"]
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), *((name, pa.int32()) for name in names)])
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    table.upsert([{"id": n, **dict.fromkeys(names, n)} for n in range(3)])
    for name in names:
        assert affected(spark, f"UPDATE t AS x SET `{name}` = `{name}` + 7 WHERE `{name}` = 1", table) == 1
    assert table.get([1]).to_pylist() == [{"id": 1, **dict.fromkeys(names, 8)}]
    source = f"(SELECT id, {', '.join(f'9 AS `{name}`' for name in names)} FROM range(3)) AS s"
    larger = " AND ".join(f"x.`{name}` < s.`{name}`" for name in names)
    merge = f"MERGE INTO t AS x USING {source} ON x.id = s.id WHEN MATCHED AND {larger} THEN UPDATE SET *"
    assert affected(spark, merge, table) == 3
    assert affected(spark, "DELETE FROM t WHERE now = 9 AND t.mixed = 9", table) == 3


def test_functions_are_passed_on_as_they_are_written(spark: SparkSession, table: weir.Table) -> None:
    """Also those that the parser writes another way where it understands them."""
    for value in (
        "to_char(7, '999')",
        "TIME '12:30:00'",
        "substr('abc', -2)",
        "log(1, 2)",
    ):
        (expected,) = spark.sql(f"SELECT string({value})").first()  # type: ignore[misc]
        assert affected(spark, f"UPDATE t SET text = string({value}) WHERE id = 1", table) == 1
        merge = f"MERGE INTO t USING (SELECT 2L id, string({value}) a) s ON t.id = s.id WHEN MATCHED THEN "
        assert affected(spark, f"{merge} UPDATE SET text = s.a", table) == 1
        merge = "MERGE INTO t USING (SELECT 3L id) s ON t.id = s.id WHEN MATCHED THEN "
        assert affected(spark, f"{merge} UPDATE SET text = string({value})", table) == 1
        assert affected(spark, f"INSERT INTO t (id, text) SELECT 4, string({value})", table) == 1
        (read,) = sql(spark, f"SELECT DISTINCT string({value}) FROM t", {"t": table}).collect()
        assert {read[0], *(rows(table)[n][1] for n in (1, 2, 3, 4))} == {expected}
    assert (
        affected(spark, "UPDATE t SET text = upper(to_char(7, '999')) WHERE lower(text) = 't5'", table) == 1
    )
    for varies in ("uuid()", "uniform(1, 9)", "no_such_function()"):
        with pytest.raises(UnsupportedError, match="cannot evaluate"):
            sql(spark, f"UPDATE t SET text = string({varies})", {"t": table})


def test_operators_mean_what_they_mean_in_spark(spark: SparkSession, table: weir.Table) -> None:
    assert affected(spark, "UPDATE t SET version = -1 WHERE version / 2 = 2.5", table) == 1
    assert affected(spark, "UPDATE t SET version = -2 WHERE v[0] = 3", table) == 1
    assert affected(spark, "UPDATE t SET text = concat(text, NULL) WHERE id = 1", table) == 1
    assert rows(table) == {**FIRST, 5: (-1, "t5"), 3: (-2, "t3"), 1: (1, None)}
    assert affected(spark, "-- the rest\n/* of it */ DELETE FROM t WHERE id < 10 / 4", table) == 3


def test_conditions_find_the_rows_that_spark_finds(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            *(("n", pa.int8()), ("x", pa.float64()), ("f", pa.float32()), ("price", pa.decimal128(10, 2))),
            *(
                ("text", pa.string()),
                ("day", pa.date32()),
                ("list", pa.list_(pa.int32())),
                ("is_on", pa.bool_()),
            ),
        ]
    )
    columns: list[list[Any]] = [
        [1, 2, 3, 4, 5, 6],
        [60, -7, None, 0, 27, 5],
        # With a sign, as processors make it.
        [0.1, -7.5, None, -float("nan"), float("inf"), -0.0],
        [0.1, -2.5, None, -float("nan"), 2.5, -0.0],
        [Decimal(one) if one else None for one in ("3.50", "-7.25", "", "0.00", "99999999.99", "0.01")],
        ["10", "abc", None, "", "a%b_c", "Straße"],
        [None, *(date(2026, 1, day) for day in range(1, 6))],
        [[1, 2], [], None, [None, 7], [3], [0]],
        [True, False, None, True, False, None],
    ]
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    table.upsert(pa.table(columns, schema=schema))
    others: dict[str, tuple[set[int], set[int]]] = {}
    for condition in (
        *(
            "f = 0.1",
            "f = CAST(0.1 AS FLOAT)",
            "f IN (2.5, 0.1)",
            "f > 0.1",
            "f = 0",
            "x > 5",
            "x = x",
            "x <> 0",
        ),
        *("n + n > 100", "n * 2 = -14", "-n = 7", "n % 3 = -1", "n div 2 = -3", "n / 2 = 2.5", "n = '05'"),
        *("price * 1.1 = 3.85", "price - 0.001 < 0", "price = 3.5", "round(price) = 4", "round(f) = -3"),
        *(
            "text LIKE 'a\\%%'",
            "text NOT LIKE 'a%'",
            "concat(text, text) = '1010'",
            "upper(text) = 'STRASSE'",
        ),
        *("length(text) = 3", "contains(text, '%')", "coalesce(text, '') = ''", "nullif(n, 5) IS NULL"),
        *("greatest(n, 6, NULL) = 6", "n NOT IN (5, NULL)", "NOT (n = 5)", "n <=> NULL", "is_on IS NOT TRUE"),
        *("array_contains(list, 7)", "size(list) = 0", "day >= '2026-01-03'"),
        *("x = -x", "f < -f", "x <=> -x", "x * -1 = 0", "nullif(x, -x) IS NULL", "n < -f"),
        *("f <= 0.5", "x BETWEEN -9 AND 9", "NOT x < 1"),
        *("x * 0 > 5", "x * 0 = f * 0", "NOT f - x < 0", "greatest(x - x, 1) > 1"),
        *("price = x", "price <> f", "text ILIKE '%SS%'", "text ILIKE 's'", "size(list) IS NULL"),
        *(
            "CAST(n AS DOUBLE) = 5",
            "try_cast(x AS INT) = -7",
            "CAST(is_on AS INT) = 1",
            "abs(x) = 7.5",
        ),
    ):
        expected = {
            row.id for row in sql(spark, f"SELECT id FROM t WHERE {condition}", {"t": table}).collect()
        }
        text = condition_text(sqlglot.parse_one(condition, read="spark"), schema, evaluated_by(spark))
        found = set(table.scan(["id"], filter=text).to_table().column("id").to_pylist())
        if found != expected:
            others[condition] = (expected, found)
    assert others == {}


def test_decimals_are_rounded_as_spark_rounds_what_it_stores(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("price", pa.decimal128(10, 2))])
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    table.upsert([{"id": 1, "price": Decimal("1.05")}])
    for value, expected in (("price * 1.1", "1.16"), ("9.99", "9.99"), ("-1.005", "-1.01"), ("7", "7.00")):
        assert affected(spark, f"UPDATE t SET price = {value}", table) == 1
        assert table.get([1]).column("price").to_pylist() == [Decimal(expected)]
    with pytest.raises(FilterError, match="Spark cannot evaluate"):
        sql(spark, "UPDATE t SET price = 1234567890.5", {"t": table})


def test_instants_are_those_of_the_session(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("at", pa.timestamp("us", "UTC")),
            ("local", pa.timestamp("us")),
        ]
    )
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    hours = range(24)
    at = [datetime(2026, 1, 1, hour) for hour in hours]
    table.upsert(pa.table([hours, at, at], schema=schema))
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        for condition in (
            "at < '2026-01-01 00:00:00'",
            "at < TIMESTAMP '2026-01-01'",
            "local < '2026-01-01 05:00:00'",
        ):
            where = condition.replace("at <", "t.at <")
            found = sql(spark, f"SELECT count(*) AS n FROM t WHERE {where}", {"t": table}).first()
            assert found is not None
            assert found.n == 5
            assert affected(spark, f"UPDATE t SET local = local WHERE {where}", table) == 5
        assert affected(spark, "UPDATE t SET at = '2026-01-01 00:00:00' WHERE id = 0", table) == 1
        assert table.get([0]).column("at")[0].as_py() == datetime(2026, 1, 1, 5, tzinfo=UTC)
        assert affected(spark, "DELETE FROM t WHERE at < current_timestamp() - INTERVAL 1 DAY", table) == 24
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))


def test_a_query_keeps_what_it_says_of_a_table(
    spark: SparkSession, table: weir.Table, tmp_path: Path
) -> None:
    other = weir.create(tmp_path / "other", SCHEMA, primary_key="id", fsync=False)
    other.upsert([{"id": n, "version": 10 * n, "text": "new", "v": None} for n in (1, 2, 7)])
    tables = {"t": table, "other": other}
    token = table.snapshot()
    table.tags.create("first")
    table.delete([5])

    def numbers(query: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row) for row in sql(spark, query, tables).collect())

    assert numbers("SELECT other.version FROM (t JOIN other ON t.id = other.id)") == [(10,), (20,)]
    assert numbers(f"SELECT count(*) FROM t VERSION AS OF '{token}'") == [(6,)]
    assert numbers("SELECT count(*), x.id FROM t VERSION AS OF 'first' AS x WHERE x.id = 5 GROUP BY ALL") == [
        (1, 5)
    ]
    assert numbers("SELECT count(*) FROM t TABLESAMPLE (2 ROWS)") == [(2,)]
    pivot = "SELECT * FROM (SELECT id, version FROM t) PIVOT (sum(version) FOR id IN (1, 2))"
    assert numbers(pivot) == [(1, 2)]
    # A WITH of the name of a table, whose query reads the table; and one that others do not see.
    assert numbers("WITH t AS (SELECT * FROM t WHERE id > 1) SELECT count(*) FROM t") == [(3,)]
    inner = "WITH t AS (SELECT 1L AS id) SELECT id FROM t"
    assert numbers(f"SELECT count(*) FROM t WHERE id IN ({inner}) OR id = 0") == [(2,)]
    with pytest.raises(UnsupportedError, match="TIMESTAMP AS OF"):
        sql(spark, "SELECT * FROM t TIMESTAMP AS OF current_timestamp()", tables)
    merge = "MERGE INTO t USING other ON t.id = other.id WHEN MATCHED THEN UPDATE SET version = other.version"
    sql(spark, merge, tables)
    sql(spark, "WITH q AS (SELECT * FROM other WHERE id = 7) INSERT INTO t SELECT * FROM q", tables)
    assert rows(table) == {**dict(list(FIRST.items())[:5]), 1: (10, "t1"), 2: (20, "t2"), 7: (70, "new")}
    sql(spark, "INSERT INTO other TABLE t", tables)
    assert rows(other) == rows(table)


@pytest.mark.everywhere
def test_a_table_from_its_creation_to_queries(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a b"
    create = f"""CREATE TABLE IF NOT EXISTS weir.`{path}` (
        id BIGINT, at TIMESTAMP_NTZ COMMENT 'when', tags ARRAY<STRING>, daily TIME, PRIMARY KEY (id)
    ) USING weir CLUSTERED BY (id) INTO 2 BUCKETS"""
    for _ in range(2):
        sql(spark, create)
    with pytest.raises(TableExistsError):
        sql(spark, create.replace("IF NOT EXISTS ", ""))
    table = weir.open(path)
    assert table.primary_key == ("id",)
    assert table.schema.field("at").type == pa.timestamp("us")
    assert table.schema.field("daily").type == pa.time64("ns")
    assert table.sharded_by == "bucket(id, 2)"
    names = {"events": path}
    counted = sql(spark, "INSERT INTO events (id, tags) VALUES (1, array('a')), (2, NULL)", names)
    assert counted.first().num_affected_rows == 2  # type: ignore[union-attr]
    query = f"""WITH e AS (SELECT id FROM Events WHERE id > 1)
        SELECT events.id, size(x.tags) AS n FROM events JOIN weir.`{path}` x USING (id)
        WHERE events.id NOT IN (SELECT id FROM e)"""
    assert [tuple(row) for row in sql(spark, query, names).collect()] == [(1, 1)]
    sql(spark, "INSERT INTO events SELECT id + 10, at, tags, daily FROM events", names)
    assert table.scan().count() == 4
    sql(spark, "CREATE OR REPLACE TEMPORARY VIEW many AS SELECT count(*) AS n FROM events", names)
    assert spark.sql("SELECT n FROM many").first().n == 4  # type: ignore[union-attr]
    assert sql(spark, "SELECT 1 AS one").first().one == 1  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("(id BIGINT) USING weir LOCATION '{}' TBLPROPERTIES ('x' = 'y')", UnsupportedError, "merge_engine"),
        ("(id BIGINT, PRIMARY KEY (x)) USING weir LOCATION '{}'", SchemaError, "no column 'x'"),
        ("(id BIGINT PRIMARY KEY, v VARIANT) USING weir LOCATION '{}'", SchemaError, "'v' is variant"),
        ("(id BIGINT PRIMARY KEY, v VARCHAR(9)) USING weir LOCATION '{}'", SchemaError, "Write STRING"),
        ("(id BIGINT PRIMARY KEY, v INT DEFAULT 5) USING weir LOCATION '{}'", UnsupportedError, "DEFAULT 5"),
        (
            "(id BIGINT PRIMARY KEY, v DECIMAL(50)) USING weir LOCATION '{}'",
            SchemaError,
            "cannot read the col",
        ),
        ("(id BIGINT PRIMARY KEY) USING weir", QueryError, "nothing says where"),
        ("USING weir LOCATION '{}' AS SELECT 1 AS id", UnsupportedError, "AS SELECT"),
        ("(id BIGINT) USING weir PARTITIONED BY (days(id)) LOCATION '{}'", UnsupportedError, "PARTITIONED"),
    ],
)
def test_tables_that_cannot_be_created(
    spark: SparkSession, tmp_path: Path, text: str, error: type[WeirError], message: str
) -> None:
    place = tmp_path / "new"
    with pytest.raises(error, match=message):
        sql(spark, f"CREATE TABLE new {text.format(place)}")
    assert not place.exists()

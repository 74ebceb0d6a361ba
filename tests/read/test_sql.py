"""SQL over the merged view, against the same query over a copy of the rows in memory."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from datafusion import SessionConfig, SessionContext

import weir
from weir.errors import OptionError, QueryError
from weir.read.plan import ScanPlan
from weir.read.planner import ScanPlanner

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("carrier", pa.string()),
        ("delay", pa.float64()),
        ("Odd name", pa.int32()),
        ("tags", pa.list_(pa.string())),
        ("vector", pa.list_(pa.float32(), 2)),
        ("place", pa.struct([("x", pa.int32())])),
    ]
)


def row(number: int, **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "id": number,
        "carrier": ["AA", "B'x", None, "t.id"][number % 4],
        "delay": [1.5, None, -3.0, math.nan, 60.0][number % 5],
        "Odd name": number % 3,
        "tags": ["a", "b"][: number % 3],
        "vector": [float(number), 0.0],
        "place": {"x": number},
    }
    return values | changes


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> weir.Table:
    """Return a table with rows in the base, in a generation and in the log, some newer than others."""
    uri = tmp_path_factory.mktemp("sql") / "table"
    table = weir.create(uri, SCHEMA, primary_key="id", shard_by=weir.bucket("id", 2), fsync=False)
    with table.writer() as writer:
        writer.upsert([row(number) for number in range(60)])
    table.maintenance.merge()
    with table.writer() as writer:
        writer.upsert([row(number, delay=100.0) for number in range(10, 20)])
        writer.delete(list(range(5)))
    with table.writer(flush_on_close=False) as writer:
        writer.upsert([row(number, carrier="ZZ") for number in range(58, 70)])
        writer.delete([11])
    return table


def expected_rows() -> pa.Table:
    rows = {number: row(number) for number in range(60)}
    rows |= {number: row(number, delay=100.0) for number in range(10, 20)}
    rows |= {number: row(number, carrier="ZZ") for number in range(58, 70)}
    for number in (*range(5), 11):
        del rows[number]
    return pa.Table.from_pylist(list(rows.values()), schema=SCHEMA)


def in_memory(query: str) -> pa.Table:
    context = SessionContext(SessionConfig().set("datafusion.sql_parser.enable_ident_normalization", "false"))
    context.register_record_batches("t", [expected_rows().to_batches()])
    return context.sql(query).to_arrow_table()


def texts(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


QUERIES = [
    "SELECT * FROM t",
    "SELECT carrier, avg(delay), COUNT(*) FROM t WHERE delay > 60 AND carrier IN ('AA', 'B''x') GROUP BY 1",
    "SELECT count(*) FROM t",
    "SELECT count(*) FROM t WHERE carrier = 'ZZ'",
    "SELECT count(delay), max(id) FROM t WHERE carrier IS NULL OR delay < 0",
    "SELECT a.id, b.delay FROM t a JOIN t b ON a.id = b.id + 1 WHERE a.delay > 3 AND b.\"Odd name\" = 1",
    "WITH x AS (SELECT *, carrier || 'x' AS y FROM t WHERE id BETWEEN 3 AND 30) SELECT id FROM x",
    "SELECT id, delay FROM t ORDER BY delay DESC, id LIMIT 10",
    "SELECT id FROM t WHERE carrier = 't.id' AND delay = 'NaN'",
    "SELECT id FROM t WHERE carrier = ' WHERE t.id' OR id = 7",
    "SELECT \"Odd name\", sum(id) FROM t WHERE \"Odd name\" <> 1 GROUP BY 1",
    "SELECT id, tags[1], place['x'] FROM t WHERE place['x'] > 60",
    "SELECT id FROM t WHERE array_has(tags, 'b')",
    "SELECT id, vector FROM t WHERE id = 61",
    "SELECT id FROM t WHERE id IN (SELECT id FROM t WHERE delay = 100) AND carrier = 'AA'",
    "SELECT id, row_number() OVER (PARTITION BY carrier ORDER BY id) FROM t WHERE id > 50",
    "SELECT id FROM t WHERE id > 60 UNION ALL SELECT id FROM t WHERE id < 8",
    "SELECT id FROM t WHERE id = 1 AND id = 2",
    "SELECT 1",
    "SELECT id FROM t WHERE delay > 2 AND NOT (carrier LIKE 'A%')",
    "SELECT * FROM t ORDER BY id DESC LIMIT 7",
    "SELECT * FROM t ORDER BY delay NULLS FIRST, id LIMIT 9 OFFSET 3",
    "SELECT * FROM t ORDER BY carrier DESC NULLS LAST, id LIMIT 12",
    "SELECT carrier, vector FROM t WHERE \"Odd name\" = 1 AND carrier <> 'B''x' ORDER BY id LIMIT 5",
    "SELECT a.tags, a.\"Odd name\" AS x FROM t a WHERE a.delay > 1 ORDER BY a.id LIMIT 4",
    "SELECT carrier AS id, vector FROM t ORDER BY id, vector[1] LIMIT 6",
    "SELECT id, carrier FROM t ORDER BY \"Odd name\" + id, id LIMIT 6",
    "SELECT max(delay), count(*) FROM (SELECT * FROM t ORDER BY id LIMIT 20) WHERE carrier = 'AA'",
    "SELECT * FROM (SELECT * FROM t ORDER BY id LIMIT 20) ORDER BY delay DESC, id LIMIT 3",
    "SELECT * FROM t WHERE delay = 'NaN' ORDER BY id LIMIT 3",
    "SELECT * FROM t WHERE id < 0 ORDER BY id LIMIT 3",
    "SELECT * FROM t ORDER BY id LIMIT 0",
    "SELECT id, vector FROM t WHERE delay >= (SELECT avg(id) FROM t) ORDER BY id LIMIT 3",
    "SELECT a.* FROM t a JOIN t b ON a.id = b.id + 1 ORDER BY a.id LIMIT 3",
    "SELECT DISTINCT carrier, \"Odd name\" FROM t ORDER BY carrier, \"Odd name\" LIMIT 3",
    "SELECT id FROM t WHERE id IS NULL",
    "SELECT carrier FROM t WHERE id IS NULL",
    "SELECT count(*) FROM t WHERE id IS NOT NULL",
    "SELECT carrier FROM t WHERE id IS NOT NULL AND delay > 60",
    "SELECT sum(CASE WHEN id IS NULL THEN 1 ELSE 0 END) FROM t",
    "SELECT a.delay FROM t a LEFT JOIN t b ON a.id = b.id + 1 WHERE b.id IS NULL",
    "SELECT id, vector FROM t WHERE carrier = '\"tags\"' OR id > 60 ORDER BY id LIMIT 3",
    "SELECT id, (SELECT max(\"Odd name\") FROM t) FROM t WHERE id < 9",
    "SELECT sum(id + (SELECT max(\"Odd name\") FROM t)) FROM t",
    "SELECT CASE WHEN id > (SELECT avg(delay) FROM t WHERE delay < 70) THEN carrier END FROM t",
    "SELECT id, (SELECT min(carrier) FROM t) FROM t ORDER BY id LIMIT 3",
    "SELECT count(*) FROM (SELECT id FROM t WHERE tags = ['a'] LIMIT 5)",
    "SELECT count(*) FROM (SELECT id FROM t WHERE place = named_struct('x', 61) LIMIT 5)",
    "SELECT id FROM (SELECT * FROM t LIMIT 1000) WHERE carrier = 'ZZ' LIMIT 50",
    "SELECT count(*) FROM (SELECT * FROM (SELECT * FROM t WHERE id > 5 LIMIT 999) WHERE delay = 100 LIMIT 4)",
    "SELECT count(*) FROM (SELECT id FROM (SELECT id, id + random() AS r FROM t) WHERE r > 60 LIMIT 5)",
    "SELECT count(*) FROM (SELECT id + random() FROM (SELECT id FROM t LIMIT 50 OFFSET 20) LIMIT 5)",
]  # fmt: skip


@pytest.mark.parametrize("state", ["log", "generation", "base"])
def test_null_structs_whose_children_have_no_nulls(tmp_path: Path, state: str) -> None:
    place = pa.struct([pa.field("x", pa.int32(), nullable=False)])
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("place", place)])
    table = weir.create(tmp_path / "table", schema, primary_key="id", fsync=False)
    rows = [{"id": 1, "place": {"x": 1}}, {"id": 2, "place": None}]
    with table.writer(flush_on_close=state != "log") as writer:
        writer.upsert(rows)
    if state == "base":
        table.maintenance.merge()
    assert table.scan().to_table().sort_by("id").to_pylist() == rows
    assert table.get([2, 1]).sort_by("id").to_pylist() == rows
    for condition, wanted in [("IS NULL", [2]), ("IS NOT NULL", [1]), ("= 0", []), ("= 1", [1])]:
        found = table.sql(f"SELECT id FROM t WHERE place['x'] {condition}").to_table()
        assert found.column("id").to_pylist() == wanted


@pytest.mark.one_in(2)
@pytest.mark.parametrize("query", QUERIES)
def test_as_over_the_rows_in_memory(table: weir.Table, query: str) -> None:
    found = table.sql(query).to_table()
    wanted = in_memory(query)
    assert texts(found) == texts(wanted)
    assert found.schema.names == wanted.schema.names
    assert found.schema.types == wanted.schema.types


@pytest.mark.parametrize(
    ("query", "columns", "condition", "limit"),
    [
        ("SELECT carrier FROM t WHERE delay > 60", ("carrier", "delay"), "(`delay` > 60.0)", None),
        ("SELECT count(*) FROM t", (), None, None),
        ("SELECT id FROM t LIMIT 3", ("id",), None, 3),
        ("SELECT id FROM t WHERE id > 3 LIMIT 3 OFFSET 2", ("id",), "(`id` > 3)", 5),
        ("SELECT id FROM t ORDER BY id LIMIT 3", ("id",), None, None),
        ('SELECT id FROM t WHERE "Odd name" = 1', ("id", "Odd name"), "(`Odd name` = 1)", None),
        (
            "SELECT id FROM t WHERE id > 60 UNION ALL SELECT id FROM t WHERE id < 8",
            ("id",),
            "((`id` > 60)) OR ((`id` < 8))",
            None,
        ),
        ("SELECT id FROM t WHERE id > 60 UNION ALL SELECT id FROM t", ("id",), None, None),
    ],
)
def test_only_what_is_needed_is_read(
    table: weir.Table, query: str, columns: tuple[str, ...], condition: str | None, limit: int | None
) -> None:
    needed = table.sql(query).needed
    assert (needed.columns, needed.filter, needed.limit) == (columns, condition, limit)


@pytest.mark.parametrize("tail", ["", " ORDER BY id LIMIT 1000"])
def test_what_is_left_to_chance_is_asked_once(table: weir.Table, tail: str) -> None:
    query = table.sql(f"SELECT id, carrier FROM t WHERE random() < 0.5 AND id > 3{tail}")
    assert (query.needed.filter, query.needed.limit, query.needed.top) == (None, None, None)
    counts = [query.to_table().num_rows for _ in range(50)]
    # Of 64 rows half, in the mean over 3,200 of them: a quarter is as far off as thirty deviations.
    assert 28 < sum(counts) / len(counts) < 36


@pytest.mark.covering
@pytest.mark.parametrize("tail", ["", " ORDER BY id LIMIT 1000", " LIMIT 1000"])
@pytest.mark.parametrize("text", ["'", "''", "'''", "a''b", "''a", "a''", "\\'", "\\''", "x' OR '' = '"])
def test_texts_may_have_quotes_beside_each_other(tmp_path: Path, text: str, tail: str) -> None:
    table = weir.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("s", pa.string())]), primary_key="id")
    texts = ["'", "''", "'''", "a''b", "a'b", "''a", "a''", "\\'", "\\''", "x' OR '' = '", "", None]
    with table.writer() as writer:
        writer.upsert(pa.table({"id": pa.array(range(len(texts))), "s": texts}))
    literal = "'" + text.replace("'", "''") + "'"
    for condition in (f"s = {literal}", f"s IN ({literal}, 'none')", f"id >= 0 AND s = {literal}"):
        found = table.sql(f"SELECT s FROM t WHERE {condition}{tail}").to_table()
        assert found.column("s").to_pylist() == [text]


def test_a_subquery_reads_its_columns_and_no_others(table: weir.Table) -> None:
    query = table.sql('SELECT id FROM t WHERE delay > (SELECT max("Odd name") FROM t)')
    assert query.needed.columns == ("id", "delay", "Odd name")


def test_at_a_token_the_columns_are_those_of_then(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("was", pa.string()), ("n", pa.int32())])
    table = weir.create(tmp_path / "table", schema, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert([{"id": 1, "was": "here", "n": 7}])
    token = table.snapshot()
    table.alter(drop=["was"], rename={"n": "m"})
    then = [{"id": 1, "was": "here", "n": 7}]
    assert table.sql("SELECT * FROM t", at=token).to_pylist() == then
    assert table.sql("SELECT * FROM t WHERE was = 'here' ORDER BY n LIMIT 1", at=token).to_pylist() == then
    assert table.sql("SELECT * FROM t").to_pylist() == [{"id": 1, "m": 7}]
    with pytest.raises(QueryError, match="No field named m"):
        table.sql("SELECT m FROM t", at=token)


def test_of_rows_that_do_not_come_first_only_what_decides_is_read(
    table: weir.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[str, ...]] = []
    plan = ScanPlanner.plan

    def noting(*arguments: Any, columns: list[str], **options: Any) -> ScanPlan:
        read.append(tuple(columns))
        return plan(*arguments, columns=columns, **options)

    monkeypatch.setattr(ScanPlanner, "plan", noting)
    query = table.sql("SELECT * FROM t WHERE carrier = 'AA' ORDER BY delay DESC, id LIMIT 4")
    found = query.to_table()
    assert read == [("id", "carrier", "delay")]
    assert found.column("id").to_pylist() == [36, 56, 8, 28]
    assert "the primary key and id, carrier, delay first, the others of the 4 rows" in query.explain()
    # Nothing is gained where the order needs all that is read.
    assert table.sql("SELECT id, delay FROM t ORDER BY delay, id LIMIT 4").needed.top is None


def test_explain_shows_the_scan(table: weir.Table) -> None:
    text = table.sql("SELECT carrier FROM t WHERE id > 3").explain()
    assert text.startswith("reads id, carrier\nscan of ")
    assert "where (`id` > 3) by BTree(id)" in text
    assert table.sql("SELECT count(*) FROM t").explain().startswith("reads no columns, but how many rows")


def test_another_name_and_a_token(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "table", SCHEMA, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert([row(1)])
        token = table.snapshot()
        writer.upsert([row(2)])
    query = "SELECT count(*) AS n FROM flights"
    assert table.sql(query, name="flights").to_table().to_pylist() == [{"n": 2}]
    assert table.sql(query, name="flights", at=token).to_pandas()["n"].tolist() == [1]
    assert list(table.sql("SELECT id FROM t WHERE id > 5").to_batches()) == []


@pytest.mark.parametrize("name", ["Flights", "my.flights", "my flights", 'my "flights"', "rows of t", "ünï"])
def test_a_name_counts_as_it_is_written(table: weir.Table, name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    query = table.sql(f"SELECT id FROM {quoted} WHERE {quoted}.id > 3 AND carrier = 'ZZ'", name=name)
    assert sorted(query.to_table()["id"].to_pylist()) == [*range(58, 70)]
    assert query.needed.filter is not None
    top = table.sql(f"SELECT * FROM {quoted} WHERE id < 30 ORDER BY id DESC LIMIT 2", name=name)
    assert top.to_table()["id"].to_pylist() == [29, 28]
    assert top.needed.top is not None


@pytest.mark.parametrize("name", ["", None, 5])
def test_what_is_no_name(table: weir.Table, name: Any) -> None:
    with pytest.raises(QueryError, match="is a text"):
        table.sql("SELECT 1", name=name)


@pytest.mark.parametrize(
    "query",
    [
        "SELEC id FROM t",
        "SELECT nothing FROM t",
        "SELECT ID FROM t",
        "SELECT id FROM another",
        "DROP TABLE t",
        "INSERT INTO t VALUES (1)",
        "CREATE TABLE x AS SELECT * FROM t",
        "SET datafusion.execution.batch_size = 1",
        "",
    ],
)
def test_what_is_no_query(table: weir.Table, query: str) -> None:
    with pytest.raises(QueryError, match="cannot be run") as caught:
        table.sql(query)
    assert caught.value.hint is not None


def test_an_unknown_column_is_named_without_advice_nobody_can_follow(table: weir.Table) -> None:
    with pytest.raises(QueryError, match="No field named") as caught:
        table.sql("SELECT ID FROM t")
    assert "enable_ident_normalization" not in str(caught.value)
    assert "Valid fields" not in str(caught.value)


@pytest.mark.parametrize("unknown", ["flights", '"two words"', "a.b"])
def test_an_unknown_table_is_named_with_what_the_query_calls_it(table: weir.Table, unknown: str) -> None:
    with pytest.raises(QueryError, match="there is no table") as caught:
        table.sql(f"SELECT id FROM {unknown}", name="arrivals")
    assert "calls the table 'arrivals'" in str(caught.value)
    assert "datafusion" not in str(caught.value)


def test_an_error_while_it_runs(table: weir.Table) -> None:
    with pytest.raises(QueryError, match="cannot be run"):
        table.sql("SELECT CAST(carrier AS INT) FROM t").to_table()


def test_options_are_those_of_a_scan(table: weir.Table) -> None:
    with pytest.raises(OptionError):
        table.sql("SELECT id FROM t", consistency="eventually").to_table()


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin", "-03:00"])
@pytest.mark.parametrize("order", ["", " ORDER BY at, id LIMIT 10"])
def test_an_instant_is_the_same_in_every_zone(tmp_path: Path, zone: str | None, order: str) -> None:
    begin = datetime(2026, 3, 28, 20, tzinfo=UTC)
    kind = pa.timestamp("us", zone)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("at", kind), ("clock", pa.time64("us"))])
    times = [begin + timedelta(minutes=30 * number) for number in range(48)]
    rows = pa.table(
        [
            pa.array(range(48)),
            pa.array(times, pa.timestamp("us", "UTC")).cast(kind),
            pa.array([time.time() for time in times], pa.time64("us")),
        ],
        schema=schema,
    )
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    table.upsert(rows)
    context = SessionContext()
    context.register_record_batches("t", [rows.to_batches()])
    suffix = "" if zone is None else "+02:00"
    for condition in (
        f"at <= '2026-03-29T05:00:00{suffix}'",
        f"at > '2026-03-29T02:00:00.5{suffix}'",
        f"at IN ('2026-03-29T05:00:00{suffix}', '2026-03-28T22:00:00{suffix}')",
        "at BETWEEN '2026-03-29 01:30:00' AND '2026-03-29 06:00:00'",
        f"at = '2026-03-29T05:00:00{suffix}' OR id = 3",
    ):
        query = f"SELECT id, clock FROM t WHERE {condition}{order}"
        expected = context.sql(query).to_arrow_table()
        found = table.sql(query, name="t").to_table()
        assert sorted(found.to_pylist(), key=str) == sorted(expected.to_pylist(), key=str), query


def test_a_time_of_day_confines_the_first_rows_of_an_order(tmp_path: Path) -> None:
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("n", pa.int64()), ("at", pa.time64("us"))]
    )
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    clocks = pa.array([7_200_000_000, 3_600_000_000], pa.time64("us"))
    table.upsert(pa.table([pa.array([1, 2]), pa.array([5, 4]), clocks], schema=schema))
    # Its own plan compares microseconds with nanoseconds, which a text of its condition does not.
    found = table.sql("SELECT id, n FROM t WHERE at <= '01:30:00' ORDER BY id LIMIT 1", name="t")
    assert found.to_pylist() == [{"id": 2, "n": 4}]

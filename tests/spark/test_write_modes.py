"""What rows of a data frame do to those that are there: patches, inserts, appends, and merge engines."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType
from tests.spark.sink_kit import contents, create, frame, lines, marks, run, save, stream

import weir
from weir.errors import InputError, OptionError, SchemaError
from weir.spark.sink import commit, prepare
from weir.spark.staging import TaskRows
from weir.spark.write_options import WriteOptions

WIDE = pa.schema([pa.field("id", pa.int64(), nullable=False), ("value", pa.string()), ("kept", pa.int64())])


def rows_of(table: weir.Table) -> dict[int, tuple[str | None, int | None]]:
    return {row["id"]: (row["value"], row["kept"]) for row in weir.open(table.uri).scan().to_pylist()}


@pytest.mark.everywhere
def test_a_patch_keeps_the_columns_that_a_frame_does_not_have(spark: SparkSession, tmp_path: Path) -> None:
    table = create(tmp_path, schema=WIDE)
    with table.writer() as writer:
        writer.upsert([{"id": n, "value": "old", "kept": n} for n in range(100)])
    patches = spark.range(50, 150, 1, 4).selectExpr("id", "if(id = 60, null, concat('new', id)) as value")
    for _ in range(2):
        save(patches, table, write_mode="patch", source="j", sequence=1)
    model = {n: ("old", n) for n in range(50)} | {n: (f"new{n}", n) for n in range(50, 100)}
    assert rows_of(table) == model | {60: (None, 60)}
    assert set(marks(table).values()) == {1}


@pytest.mark.everywhere
def test_rows_say_themselves_what_they_do(spark: SparkSession, tmp_path: Path) -> None:
    """In their order, also of one key; where they do not say, the mode does."""
    table = create(tmp_path)
    save(frame(spark, [(n, "old") for n in range(6)], "id long, value string"), table)
    rows: list[tuple[object, ...]] = [
        (0, None, "delete"),
        (0, "again", "insert"),
        (0, "patched", "patch"),
        (1, "ignored", "insert"),
        (2, "upserted", "upsert"),
        (3, "patched", None),
        (7, "nobody", None),
        (8, "made", "insert"),
        (8, None, "delete"),
        (9, "made", "insert"),
    ]
    save(frame(spark, rows, "id long, value string, _op string"), table, write_mode="patch")
    assert contents(table) == {
        0: "patched",
        1: "old",
        2: "upserted",
        3: "patched",
        4: "old",
        5: "old",
        9: "made",
    }


def test_rows_that_are_there_are_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    table = create(tmp_path)
    data = spark.range(0, 200, 1, 4).selectExpr("id", "'first' as value")
    save(data.where("id < 100"), table, write_mode="insert-if-absent")
    save(data.selectExpr("id", "'second' as value"), table, write_mode="insert-if-absent")
    assert contents(table) == {n: "first" if n < 100 else "second" for n in range(200)}


def test_a_stream_patches_each_batch_once(spark: SparkSession, tmp_path: Path) -> None:
    table = create(tmp_path, schema=WIDE)
    with table.writer() as writer:
        writer.upsert([{"id": n, "value": "old", "kept": n} for n in range(4)])
    inbox = tmp_path / "inbox"
    lines(inbox, 0, "0,a,", "1,b,patch", "9,c,")
    lines(inbox, 1, "0,d,", "2,,delete", "9,e,upsert")
    for number in range(2, 4):
        run(stream(spark, inbox, table, tmp_path / "checkpoint", write_mode="patch"))
        assert rows_of(table) == {0: ("d", 0), 1: ("b", 1), 3: ("old", 3), 9: ("e", None)}
        lines(inbox, number, "9,e,")


def test_an_append_adds_rows_to_a_table_without_a_key(spark: SparkSession, tmp_path: Path) -> None:
    table = weir.create(tmp_path / "log", WIDE, primary_key=None)
    data = frame(spark, [(1, "a", 1)], "id long, value string, kept long")
    save(data, table, write_mode="append")
    save(data, table)
    assert table.scan().count() == 2


def test_a_load_is_in_the_base_table_when_it_is_written(spark: SparkSession, tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", WIDE, primary_key="id", shard_by=weir.bucket("id", 2), fsync=False)
    table.upsert([{"id": n, "value": "unmerged", "kept": n} for n in range(100, 300)])
    table.delete([250])
    frame_of = spark.range(0, 20_000, 1, 4).repartition(4, "id")
    rows = frame_of.where("id <> 260").selectExpr(
        "id", "repeat(concat('loaded', id), 30) as value", "id as kept"
    )
    for _ in range(2):
        save(rows, table, write_mode="load", source="nightly", sequence=1)
    loaded = {n: (f"loaded{n}" * 30, n) for n in range(20_000) if n != 260} | {260: ("unmerged", 260)}
    assert rows_of(table) == loaded
    stored = lance.dataset(table.uri).to_table().to_pylist()
    assert {row["id"]: (row["value"], row["kept"]) for row in stored} == loaded
    assert len(stored) == len(loaded)
    assert table.status().unmerged_rows == 0
    changed = [row["id"] for batch in table.changes() for row in batch.rows.to_pylist()]
    assert sorted(changed) == sorted([*range(100, 300), 250, *(n for n in range(20_000) if n != 260)])


def test_a_stream_does_not_load(tmp_path: Path) -> None:
    table = create(tmp_path)
    options = WriteOptions.parse({"path": table.uri, "write_mode": "load"})
    with pytest.raises(OptionError, match="does not load"):
        options.check_stream()


@pytest.mark.parametrize(
    ("options", "mode", "says"),
    [
        ({}, "replace", "must be one of upsert, patch, insert-if-absent, append"),
        ({}, "append", "have a key, by which they replace others"),
        ({"primary_key": None}, "upsert", "no key by which .upsert. finds a row"),
        ({"primary_key": None}, "patch", "no key by which .patch. finds a row"),
        ({"merge_engine": "partial_update"}, "patch", "its merge engine is"),
        ({"merge_engine": "first_row"}, "insert-if-absent", "its merge engine is"),
    ],
)
def test_modes_that_do_not_fit_are_refused(
    tmp_path: Path, options: dict[str, object], mode: str, says: str
) -> None:
    table = weir.create(tmp_path / "t", WIDE, **{"primary_key": "id", **options})  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=says):
        prepared(table, "id long, value string", write_mode=mode)


def test_rows_that_do_not_fit_the_mode_are_refused(tmp_path: Path) -> None:
    table = create(tmp_path)
    with pytest.raises(InputError, match="sets no column"):
        prepared(table, "id long", write_mode="patch")
    with pytest.raises(SchemaError, match="no column 'colour'"):
        prepared(table, "id long, colour string", write_mode="insert-if-absent")
    rows = prepared(table, "id long, value string, _op string")
    asked = pa.record_batch({"id": [1, 2], "value": ["a", "b"], "_op": [None, "patch"]})
    with pytest.raises(InputError, match="'patch' in row 1 depends on the present row"):
        rows.result([asked])


@pytest.mark.parametrize("mode", ["patch", "upsert"])
@pytest.mark.parametrize("how", ["renamed", "dropped and added again"])
def test_rows_never_set_a_column_that_is_another_one_by_the_commit(
    tmp_path: Path, how: str, mode: str
) -> None:
    """Plain Lance gives the column that is added again the id of the one that was dropped."""
    table = create(tmp_path)
    rows = prepared(table, "id long, value string", write_mode=mode)
    done = rows.result([pa.record_batch({"id": [1, 2], "value": ["a", "b"]})])
    dataset = lance.dataset(table.uri)
    if how == "renamed":
        dataset.alter_columns({"path": "value", "name": "old"})  # type: ignore[dict-item]
        dataset.add_columns(pa.field("value", pa.string()))
    else:
        dataset.drop_columns(["value"])
        dataset.add_columns(pa.field("value", pa.string()))
        assert [one.id() for one in lance.dataset(table.uri).lance_schema.fields()] == [0, 1]
    options = WriteOptions.parse({"path": table.uri, "write_mode": mode})
    if mode == "upsert":
        # As rows that came before: the new column is not the one that they set.
        commit(table, [done], None, options, holder=None, flush=False)
        assert contents(table) == {1: None, 2: None}
    else:
        with pytest.raises(SchemaError, match="'value' was renamed or dropped while its rows were on their"):
            commit(table, [done], None, options, holder=None, flush=False)
        assert contents(table) == {}


def prepared(table: weir.Table, schema: str, **options: str) -> TaskRows:
    """Do what the driver does before any task runs."""
    fields = [field.split() for field in schema.split(", ")]
    types = {"long": LongType(), "string": StringType()}
    given = StructType([StructField(name, types[kind]) for name, kind in fields])
    return prepare(table, WriteOptions.parse({"path": table.uri, **options}), given, overwrite=False)


def test_merge_engines_hold_for_rows_in_the_log_and_staged(spark: SparkSession, tmp_path: Path) -> None:
    """Sums are exact: over one frame, over frames, over one that is repeated, and once all is merged."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64()), ("text", pa.string())])
    engine = weir.MergeEngine.aggregation(n="sum")
    table = weir.create(
        tmp_path / "t", schema, primary_key="id", merge_engine=engine, shard_by=weir.bucket("id", 2)
    )
    few = spark.range(0, 40, 1, 3).selectExpr("id % 10 as id", "1L as n", "'few' as text")
    # Above what a task hands to the driver: it is staged.
    many = spark.range(0, 30_000, 1, 3).selectExpr("id % 10 as id", "1L as n", "repeat('x', 1000) as text")
    for data in (few, many, many, few):
        save(data, table)
    for _ in range(2):
        save(few, table, source="job", sequence=1)
    expected = dict.fromkeys(range(10), 3 * 4 + 2 * 3_000)

    def sums() -> dict[int, int]:
        return {row["id"]: row["n"] for row in weir.open(table.uri).scan(columns=["id", "n"]).to_pylist()}

    assert sums() == expected
    table.maintenance.merge()
    assert sums() == expected

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.spark.sink_kit import SCHEMA, contents, create, frame, marks, save

import weir
from weir.spark.options import TableLocation


@pytest.mark.everywhere
def test_a_batch_upserts_and_deletes_in_the_order_of_its_rows(spark: SparkSession, tmp_path: Path) -> None:
    table = create(tmp_path)
    save(spark.range(0, 500, 1, 4).selectExpr("id", "cast(id as string) as value"), table)
    assert contents(table) == {n: str(n) for n in range(500)}
    rows = [(0, "x", "delete"), (1, "one", None), (1, "uno", "upsert"), (2, "two", None), (2, None, "delete")]
    save(frame(spark, [*rows, (900, None, "upsert")], "id long, value string, _op string"), table)
    expected = {n: str(n) for n in range(500)} | {1: "uno", 900: None}
    del expected[0], expected[2]
    assert contents(table) == expected
    # Everything is in generations, and nobody holds a lease.
    assert all(shard.lease == "released" and not shard.unflushed_rows for shard in table.status().shards)


@pytest.mark.everywhere
def test_the_last_row_of_a_key_wins_across_partitions(spark: SparkSession, tmp_path: Path) -> None:
    table = create(tmp_path)
    data = spark.range(0, 4000, 1, 4).selectExpr("id % 100 as id", "cast(id as string) as value")
    save(data, table)
    assert contents(table) == {n % 100: str(n) for n in range(3900, 4000)}


@pytest.mark.everywhere
def test_a_batch_with_a_mark_is_written_once(spark: SparkSession, tmp_path: Path) -> None:
    table = create(tmp_path)
    for value in ("first", "repeated"):
        save(
            frame(spark, [(n, value) for n in range(9)], "id long, value string"),
            table,
            source="j",
            sequence=1,
        )
    assert set(contents(table).values()) == {"first"}
    save(frame(spark, [(0, "next")], "id long, value string"), table, source="j", sequence=2)
    assert contents(table)[0] == "next"
    assert set(marks(table).values()) == {1}


def test_an_empty_frame_writes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    table = create(tmp_path)
    save(spark.range(0).selectExpr("id", "cast(id as string) as value"), table)
    assert not table.status().shards


def untouched(table: weir.Table) -> bool:
    return not table.status().shards


BAD: dict[str, tuple[Callable[[SparkSession], DataFrame], dict[str, str], str]] = {
    "an unknown column": (
        lambda spark: spark.range(3).selectExpr("id", "'a' as value", "1 as colour"),
        {},
        "the table has no column 'colour'",
    ),
    "a type that does not fit": (
        lambda spark: spark.range(3).selectExpr("id", "true as value"),
        {},
        "column 'value' is of type bool where the table has string",
    ),
    "no key": (
        lambda spark: spark.range(3).selectExpr("'a' as value"),
        {},
        "primary-key column 'id' is missing",
    ),
    "an unknown option": (
        lambda spark: spark.range(3).selectExpr("id", "'a' as value"),
        {"takeovr": "true"},
        "no option 'takeovr'",
    ),
    "half a mark": (
        lambda spark: spark.range(3).selectExpr("id", "'a' as value"),
        {"source": "x"},
        "'sequence' is missing",
    ),
    "a null key": (
        lambda spark: spark.range(3).selectExpr("nullif(id, 1) as id", "'a' as value"),
        {},
        "primary-key column 'id' is null in row",
    ),
    "an unknown operation": (
        lambda spark: spark.range(3).selectExpr("id", "'merge' as _op"),
        {},
        "the operation 'merge' in row 0 is unknown",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named_and_writes_nothing(spark: SparkSession, tmp_path: Path, name: str) -> None:
    table = create(tmp_path)
    make, options, message = BAD[name]
    with pytest.raises(PySparkException) as caught:
        save(make(spark), table, **options)
    assert message in str(caught.value)
    assert untouched(table)


@pytest.mark.everywhere
def test_overwrite_and_a_table_that_does_not_exist_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = create(tmp_path)
    rows = frame(spark, [(1, "a")], "id long, value string")
    save(rows, table)
    with pytest.raises(PySparkException, match="is not overwritten: a write upserts rows"):
        rows.write.format("weir").mode("overwrite").save(table.uri)
    with pytest.raises(PySparkException, match="TableNotFoundError"):
        rows.write.format("weir").mode("append").save(str(tmp_path / "nowhere"))
    assert contents(table) == {1: "a"}


def test_a_lease_that_somebody_holds_is_respected(spark: SparkSession, tmp_path: Path) -> None:
    table = create(tmp_path, shards=1)
    rows = frame(spark, [(1, "b")], "id long, value string")
    with table.writer() as other:
        other.upsert([{"id": 1, "value": "a"}])
        with pytest.raises(PySparkException, match="LeaseHeldError"):
            save(rows, table, lease_wait=0)
        other.upsert([{"id": 2, "value": "still there"}])
        save(rows, table, takeover="true")
        with pytest.raises(weir.errors.FencedError):
            other.upsert([{"id": 2, "value": "too late"}])
    assert contents(table) == {1: "b", 2: "still there"}


def test_every_type_that_spark_can_express(spark: SparkSession, tmp_path: Path) -> None:
    expressions = {
        "int8": (pa.int8(), "cast(-7 as byte)"),
        "uint8": (pa.uint8(), "cast(200 as short)"),
        "uint16": (pa.uint16(), "cast(60000 as int)"),
        "uint32": (pa.uint32(), "cast(4000000000 as long)"),
        "uint64": (pa.uint64(), "cast(18446744073709551615 as decimal(20, 0))"),
        "float16": (pa.float16(), "cast(0.5 as float)"),
        "float32": (pa.float32(), "cast(1.5 as double)"),
        "float64": (pa.float64(), "cast(1.5 as double)"),
        "bool": (pa.bool_(), "true"),
        "text": (pa.large_string(), "'text'"),
        "bytes": (pa.large_binary(), "cast('bytes' as binary)"),
        "fixed": (pa.binary(3), "cast('abc' as binary)"),
        "date": (pa.date32(), "date'2020-02-03'"),
        "seconds": (pa.timestamp("s", "UTC"), "timestamp'2020-02-03 04:05:06Z'"),
        "nanos": (pa.timestamp("ns", "Europe/Berlin"), "timestamp'2020-02-03 04:05:06.000007Z'"),
        "local": (pa.timestamp("us"), "timestamp_ntz'2020-02-03 04:05:06.000007'"),
        "number": (pa.decimal128(20, 4), "cast(12.5 as decimal(10, 2))"),
        "vector": (pa.list_(pa.float32(), 3), "array(cast(1 as float), cast(2 as float), cast(3 as float))"),
        "doubles": (pa.list_(pa.float32(), 2), "array(1.5D, 2.5D)"),
        "list": (pa.large_list(pa.int16()), "array(cast(1 as int), null)"),
        "struct": (
            pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))]),
            "named_struct('a', 1L, 'b', named_struct('c', 'x'))",
        ),
        "structs": (pa.list_(pa.struct([("a", pa.uint8())])), "array(named_struct('a', 7))"),
        "word": (pa.dictionary(pa.int32(), pa.string()), "'word'"),
    }
    schema = pa.schema([SCHEMA.field("id"), *((name, kind) for name, (kind, _) in expressions.items())])
    table = create(tmp_path, schema=schema)
    columns = [f"{text} as {name}" for name, (_, text) in expressions.items()]
    nothing = [f"cast(null as {'string' if n == 'word' else 'void'}) as {n}" for n in expressions]
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        save(spark.range(1, 3).selectExpr("id", *columns), table)
        save(spark.range(3, 4).selectExpr("id", *nothing), table)
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    found = table.scan().to_table().sort_by("id").to_pylist()
    assert found[0] | {"id": 2} == found[1]
    assert found[2] == {"id": 3} | dict.fromkeys(expressions)
    row = found[0]
    assert (row["uint64"], row["uint32"], row["uint8"], row["int8"]) == (2**64 - 1, 4_000_000_000, 200, -7)
    assert str(row["seconds"]) == "2020-02-03 04:05:06+00:00"
    assert row["nanos"].timestamp() == 1_580_702_706.000007
    assert str(row["local"]) == "2020-02-03 04:05:06.000007"
    assert (row["vector"], row["doubles"], row["list"]) == ([1, 2, 3], [1.5, 2.5], [1, None])
    assert (row["text"], row["bytes"], row["fixed"], row["word"]) == ("text", b"bytes", b"abc", "word")
    assert row["struct"] == {"a": 1, "b": {"c": "x"}}
    assert (row["structs"], str(row["number"]), row["float16"]) == ([{"a": 7}], "12.5000", 0.5)


def test_what_would_lose_something_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    cases = {
        "uint8": (pa.uint8(), "300"),
        "seconds": (pa.timestamp("s", "UTC"), "timestamp'2020-02-03 04:05:06.5Z'"),
        "vector": (pa.list_(pa.float32(), 3), "array(cast(1 as float))"),
        "local": (pa.timestamp("us"), "timestamp'2020-02-03 04:05:06Z'"),
        "whole": (pa.int32(), "1.5D"),
    }
    for name, (kind, text) in cases.items():
        schema = pa.schema([SCHEMA.field("id"), pa.field(name, kind)])
        table = create(tmp_path / name, schema=schema)
        with pytest.raises(PySparkException, match=f"column '{name}'"):
            save(spark.range(1).selectExpr("id", f"{text} as {name}"), table)
        assert untouched(table)


def test_what_is_handed_to_executors_means_the_same_there(tmp_path: Path) -> None:
    table = create(tmp_path)
    assert TableLocation(table.uri).open().schema == table.schema

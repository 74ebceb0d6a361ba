"""Batch reads: through Spark come the rows that a scan of the table has."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from tests.spark.tables import SCHEMA, as_rows, build
from tests.storage.s3 import S3Endpoint, s3_endpoint

import weir

__all__ = ["s3_endpoint"]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> weir.Table:
    return build(tmp_path_factory.mktemp("read") / "t", weir.bucket("id", 3), fsync=False)


@pytest.mark.everywhere
def test_the_rows_are_those_of_a_scan(spark: SparkSession, table: weir.Table) -> None:
    expected = as_rows(table.scan().to_table().to_pylist())
    frame = spark.read.format("weir").option("rowsPerPartition", 300).load(table.uri)
    assert frame.schema.simpleString() == (
        "struct<id:bigint,carrier:string,delay:double,day:date,vector:array<float>>"
    )
    assert as_rows(frame.collect()) == expected


@pytest.fixture
def pushdown(spark: SparkSession) -> Iterator[None]:
    """Let Spark push filters into Python sources."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.everywhere
@pytest.mark.usefixtures("pushdown")
def test_filters_are_pushed_down_and_the_rest_is_left_to_spark(
    spark: SparkSession, table: weir.Table
) -> None:
    reader = spark.read.format("weir").option("columns", "id, carrier, delay, day")
    content = reader.load(table.uri)
    everything = spark.createDataFrame(content.collect(), content.schema)
    conditions = [
        (f.col("carrier") == "two 3") & (f.col("delay") > 0),
        (f.col("id") % 7 == 0) & ~f.col("carrier").startswith("two") & (f.col("id") < 500),
        f.col("day").between(dt.date(1970, 2, 1), dt.date(1970, 3, 1)) & f.col("carrier").isNotNull(),
        ~f.col("carrier").isin("base 1", "tail 2", None),
        f.expr("carrier <=> null") | (f.col("delay") < -30),
    ]
    for condition in conditions:
        frame = reader.option("pushFilters", "true").load(table.uri)
        assert as_rows(frame.filter(condition).collect()) == as_rows(everything.filter(condition).collect())


@pytest.mark.usefixtures("pushdown")
def test_a_data_frame_can_be_used_again_and_could_not_if_filters_were_pushed(
    spark: SparkSession, table: weir.Table
) -> None:
    count = table.scan().count()
    frame = spark.read.format("weir").load(table.uri)
    assert frame.filter("id < 5").count() < 5
    assert frame.count() == count
    assert frame.alias("a").join(frame.filter("id < 5").alias("b"), "id", "left").count() == count
    # When this fails, Spark does not keep filters any more, and they can be pushed down by default.
    pushed = spark.read.format("weir").option("pushFilters", "true").load(table.uri)
    assert pushed.filter("id < 5").count() < 5
    assert pushed.count() < 5


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
def test_instants_are_the_same_in_every_session_time_zone(
    spark: SparkSession, tmp_path: Path, zone: str
) -> None:
    instants = [dt.datetime(2020, 3, 29, hour, 30, 0, 5, tzinfo=dt.UTC) for hour in range(6)]
    schema = pa.schema(
        [
            ("id", pa.int32()),
            ("at", pa.timestamp("us", "Europe/Berlin")),
            ("coarse", pa.timestamp("s", "UTC")),
            ("local", pa.timestamp("ms")),
        ]
    )
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    with table.writer(flush_on_close=False) as writer:
        writer.upsert(
            [
                {
                    "id": n,
                    "at": at,
                    "coarse": at.replace(microsecond=0),
                    "local": dt.datetime(2020, 3, 29, n, 30),
                }
                for n, at in enumerate(instants)
            ]
        )
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = spark.read.format("weir").load(table.uri)
        shown = frame.select(
            "id", f.unix_micros("at"), f.unix_micros("coarse"), f.col("local").cast("string")
        )
        micros = [round(at.timestamp()) * 1_000_000 for at in instants]
        assert as_rows(shown.collect()) == [
            (n, at + 5, at, f"2020-03-29 {n:02}:30:00") for n, at in enumerate(micros)
        ]
        third = f.expr(f"timestamp_micros({micros[2] + 5})")
        assert [row.id for row in frame.filter(f.col("at") == third).select("id").collect()] == [2]
        after = frame.filter(
            (f.col("coarse") > third) & (f.col("local") <= f.expr("timestamp_ntz'2020-03-29 04:30:00'"))
        )
        assert sorted(row.id for row in after.select("id").collect()) == [3, 4]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")


def test_all_types_come_through(spark: SparkSession, tmp_path: Path) -> None:
    kinds = {
        "u64": (pa.uint64(), 2**64 - 1, Decimal(2**64 - 1)),
        "half": (pa.float16(), 0.5, 0.5),
        "price": (pa.decimal128(20, 3), Decimal("1.500"), Decimal("1.500")),
        "raw": (pa.binary(2), b"ab", bytearray(b"ab")),
        "time": (pa.time32("ms"), dt.time(1, 2, 3, 4000), dt.time(1, 2, 3, 4000)),
        "span": (pa.duration("ns"), dt.timedelta(seconds=5), dt.timedelta(seconds=5)),
        "kind": (pa.dictionary(pa.int32(), pa.string()), "x", "x"),
        "nothing": (pa.null(), None, None),
        "tags": (pa.large_list(pa.large_string()), ["a", None], ["a", None]),
        "map": (pa.map_(pa.string(), pa.uint8()), [("a", 200)], {"a": 200}),
        "deep": (
            pa.struct([("v", pa.list_(pa.float16(), 2)), ("k", pa.string())]),
            {"v": [1, 2], "k": None},
            ([1.0, 2.0], None),
        ),
    }
    schema = pa.schema([("id", pa.int16()), *((name, kind) for name, (kind, _, _) in kinds.items())])
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert([{"id": 1, **{name: value for name, (_, value, _) in kinds.items()}}, {"id": 2}])
    found = as_rows(spark.read.format("weir").load(table.uri).collect())
    assert found[0] == (1, *(value for _, _, value in kinds.values()))
    assert found[1] == (2, *(None for _ in kinds))


def test_every_read_sees_one_state_while_a_writer_and_merges_run(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("version", pa.int64())])
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    stop = threading.Event()
    acknowledged = 0

    def write() -> None:
        nonlocal acknowledged
        with table.writer(max_memtable_rows=500) as writer:
            while not stop.is_set():
                writer.upsert({"id": list(range(200)), "version": [acknowledged + 1] * 200})
                acknowledged += 1
                if acknowledged % 5 == 0:
                    table.maintenance.run()
                stop.wait(0.05)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        while not acknowledged:
            stop.wait(0.05)
        for _ in range(4):
            least = acknowledged
            frame = spark.read.format("weir").option("rowsPerPartition", 50).load(table.uri)
            (row,) = frame.agg(f.count("id"), f.min("version"), f.max("version")).collect()
            assert row[0] == 200
            assert row[1] == row[2] >= least
    finally:
        stop.set()
        thread.join()
    assert acknowledged > 5


def test_on_an_object_store(spark: SparkSession, s3_endpoint: S3Endpoint) -> None:
    uri, options = s3_endpoint.new_uri(), s3_endpoint.options
    table = build(uri, weir.bucket("id", 2), storage_options=options)
    reader = spark.read.format("weir").option("columns", "id,carrier")
    for name, value in options.items():
        reader = reader.option(f"storage.{name}", value)
    expected = as_rows(table.scan(["id", "carrier"], filter="id < 200").to_table().to_pylist())
    assert as_rows(reader.load(uri).filter("id < 200").collect()) == expected


def test_bad_input_is_an_error_on_the_driver(spark: SparkSession, table: weir.Table, tmp_path: Path) -> None:
    for options, path, message in [
        ({"colums": "id"}, table.uri, "Did you mean 'columns'"),
        ({"columns": "nothing"}, table.uri, "no column 'nothing'"),
        ({"filter": "nothing = 1"}, table.uri, "nothing"),
        ({}, str(tmp_path / "nowhere"), "TableNotFoundError"),
    ]:
        with pytest.raises(PySparkException, match=message):
            spark.read.format("weir").options(**options).load(path)


def test_two_reads_of_a_token_are_of_one_state(spark: SparkSession, tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert([{"id": 1, "delay": 1.0}])
        token = table.snapshot()
        frame = spark.read.format("weir").option("at", str(token)).load(table.uri)
        newest = spark.read.format("weir").load(table.uri)
        writer.upsert([{"id": 1, "delay": 2.0}, {"id": 2, "delay": 2.0}])
        joined = frame.alias("then").join(newest.alias("now"), "id").select("then.delay", "now.delay")
        assert [tuple(row) for row in joined.collect()] == [(1.0, 2.0)]
        assert frame.count() == 1

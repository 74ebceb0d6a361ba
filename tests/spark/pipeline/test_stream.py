"""Sources, transforms and what micro-batches report, on a real Spark."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from weir.errors import MissingDependencyError, OptionError, SchemaError
from weir.schema.text import parse_schema
from weir.spark.pipeline import CallableSource, FormatSource, Metrics, Pipeline, TargetTable
from weir.spark.pipeline.freshness import arrival_of, observed
from weir.spark.pipeline.micro_batch import MicroBatch
from weir.spark.pipeline.stream import SOURCE_VIEW, MicroBatches, read_source, transformed

pytestmark = pytest.mark.everywhere

RATE = FormatSource("rate", {"rowsPerSecond": "10"})


def ticks(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate").load()


def no_stream(spark: SparkSession) -> DataFrame:
    return spark.range(3)


def landing(tmp_path: Path, files: int, age: float) -> FormatSource:
    """Lay down files of 100 rows, each a second younger than the one before."""
    directory = tmp_path / "landing"
    directory.mkdir()
    now = time.time()
    for number in range(files):
        path = directory / f"{number}.json"
        path.write_text("".join(json.dumps({"id": number * 100 + n}) + "\n" for n in range(100)))
        os.utime(path, (now, now - age + number))
    return FormatSource("json", {"maxFilesPerTrigger": "1"}, str(directory), "id BIGINT")


def batches_of(rows: DataFrame, tmp_path: Path) -> tuple[MicroBatch, ...]:
    query = (
        rows.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    batches = MicroBatches(query)
    found = batches.ended()
    assert batches.ended() == ()
    return found


def test_sources_are_streams(spark: SparkSession, tmp_path: Path) -> None:
    assert read_source(spark, RATE).columns == ["timestamp", "value"]
    assert read_source(spark, CallableSource(ticks)).columns == ["timestamp", "value"]
    assert read_source(spark, CallableSource(f"{__name__}:ticks")).isStreaming
    assert read_source(spark, landing(tmp_path, 1, 0)).columns == ["id"]


@pytest.mark.parametrize(
    ("source", "kind", "says"),
    [
        (
            FormatSource("kafka", {"subscribe": "t"}),
            MissingDependencyError,
            "--packages org.apache.spark:spark-sql-kafka-0-10_2.13:",
        ),
        (FormatSource("no-such-format"), MissingDependencyError, "no format 'no-such-format'"),
        (FormatSource("json"), OptionError, "cannot be read"),
        (FormatSource("rate", schema="id BIGNT"), OptionError, "cannot be read"),
        (CallableSource(no_stream), OptionError, "the source is no stream"),
        (CallableSource("no_such_package.module:f"), MissingDependencyError, "cannot be imported"),
        (CallableSource("json:no_such_function"), OptionError, "no function 'no_such_function'"),
    ],
)
def test_a_source_that_cannot_be(
    spark: SparkSession, source: FormatSource | CallableSource, kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        read_source(spark, source)


def test_a_transform_is_sql_over_the_source(spark: SparkSession) -> None:
    source = read_source(spark, RATE)
    with transformed(spark, source, "SELECT value AS id, value % 7 AS v FROM source WHERE value > 3") as rows:
        assert rows.isStreaming
        assert rows.columns == ["id", "v"]
        # Of several pipelines in a session, one starts at a time; nothing of the view stays.
        assert [one.name for one in spark.catalog.listTables()] == [SOURCE_VIEW]
    assert spark.catalog.listTables() == []
    with transformed(spark, source, None) as rows:
        assert rows is source


@pytest.mark.parametrize(
    ("sql", "kind", "says"),
    [
        ("SELECT nothing FROM source", SchemaError, "nothing"),
        ("SELEKT 1", OptionError, "SELEKT"),
        ("SELECT * FROM sauce", OptionError, "sauce"),
        ("SELECT 1 AS id", OptionError, "does not read the stream"),
    ],
)
def test_a_transform_that_fails(spark: SparkSession, sql: str, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says), transformed(spark, read_source(spark, RATE), sql):
        pass
    assert spark.catalog.listTables() == []


def test_a_view_of_that_name_is_not_replaced(spark: SparkSession) -> None:
    spark.range(3).createTempView(SOURCE_VIEW)
    try:
        with (
            pytest.raises(OptionError, match="temporary view 'source'"),
            transformed(spark, read_source(spark, RATE), "SELECT value FROM source"),
        ):
            pass
        assert spark.table(SOURCE_VIEW).count() == 3
    finally:
        spark.catalog.dropTempView(SOURCE_VIEW)


def test_micro_batches_say_when_their_rows_arrived(spark: SparkSession, tmp_path: Path) -> None:
    source = landing(tmp_path, files=3, age=60.0)
    stream = read_source(spark, source)
    arrival = arrival_of(source, stream.schema, None)
    assert arrival == "_metadata.file_modification_time"
    landed = [file.stat().st_mtime for file in sorted((tmp_path / "landing").iterdir())]
    # The transform drops what the arrival is read from, and rows too.
    with transformed(
        spark, observed(stream, arrival), "SELECT id + 1 AS id FROM source WHERE id % 2 = 0"
    ) as rows:
        batches = batches_of(rows, tmp_path)
    assert [batch.number for batch in batches] == [0, 1, 2]
    assert [batch.rows for batch in batches] == [100, 100, 100]
    for batch, modified in zip(batches, landed, strict=True):
        assert batch.arrivals == pytest.approx([modified] * 100, abs=0.002)
        assert batch.began < batch.ended <= time.time() + 0.002
        assert min(batch.waits) > 55


def test_the_arrival_may_be_chosen_or_unknown(spark: SparkSession, tmp_path: Path) -> None:
    source = landing(tmp_path, files=1, age=0.0)
    stream = read_source(spark, source)
    chosen = arrival_of(source, stream.schema, "timestamp_millis(id * 1000)")
    (batch,) = batches_of(observed(stream, chosen), tmp_path)
    assert batch.arrivals == tuple(float(n) for n in range(100))
    assert arrival_of(RATE, read_source(spark, RATE).schema, None) == "timestamp"
    assert arrival_of(CallableSource(ticks), stream.schema, None) is None
    (without,) = batches_of(observed(stream, None), tmp_path / "other")
    assert without.arrivals == (without.began,)


def test_a_check_looks_at_everything_and_writes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    described = TargetTable(str(tmp_path / "t"), {}, parse_schema("id: int64!"), ("id",))
    with pytest.raises(OptionError, match="instant of arrival"):
        Pipeline(source=RATE, table=described, checkpoint="c", metrics=Metrics(arrival="nowhere")).check(
            spark
        )
    found = Pipeline(
        source=RATE, table=described, checkpoint="c", transform="SELECT value AS id FROM source"
    ).check(spark)
    assert (found.exists, found.columns) == (False, {"id": "bigint"})
    assert found.source_columns == {"timestamp": "timestamp", "value": "bigint"}
    assert list(tmp_path.iterdir()) == []

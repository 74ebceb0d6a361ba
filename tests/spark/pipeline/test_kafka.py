"""Messages as a source: what Spark's source for Kafka is told, and how the values of messages are read.

There is no broker here. What stands in for Kafka has the columns of Spark's own source and a name of its own,
since Spark lets nothing else be called kafka.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.types import BinaryType, StructField, StructType, TimestampType

import weir
from weir.errors import InputError, OptionError, PipelineError, SchemaError
from weir.schema.text import parse_schema
from weir.spark.pipeline import (
    AVAILABLE_NOW,
    FormatSource,
    Metrics,
    Pipeline,
    Services,
    TargetTable,
    ValueFormat,
)
from weir.spark.pipeline.freshness import arrival_of
from weir.spark.pipeline.stream import read_source
from weir.spark.pipeline.target import open_or_create

pytestmark = pytest.mark.timeout(1800)

OFF = Services(merge=None, index=None, compact=None, collect=None)
FORMAT = "topic"
ARRIVED = datetime(2013, 1, 1, 10, tzinfo=UTC)


def topic(messages: list[bytes | None]) -> type[DataSource]:
    """Return a source of some messages. A class of its own: Spark sends it to workers by value."""

    class Reader(SimpleDataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:  # noqa: N802
            return {"offset": 0}

        def read(self, start: dict[str, int]) -> Any:
            return self.readBetweenOffsets(start, {"offset": len(messages)}), {"offset": len(messages)}

        def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Any:  # noqa: N802
            return iter(
                [
                    (str(n).encode(), messages[n], "arrivals", 0, n, ARRIVED, 0)
                    for n in range(start["offset"], end["offset"])
                ]
            )

    class Topic(DataSource):
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def schema(self) -> str:
            told = {name.lower(): value for name, value in self.options.items()}
            if told != {
                "subscribe": "arrivals",
                "kafka.bootstrap.servers": "kafka:9092",
                "startingoffsets": "earliest",
                "maxoffsetspertrigger": "10000",
            }:
                raise ValueError(f"told {told}")
            return (
                "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
                "timestampType INT"
            )

        def simpleStreamReader(self, schema: object) -> Reader:  # noqa: N802
            return Reader()

    return Topic


def source(**changes: Any) -> FormatSource:
    values: dict[str, Any] = {
        "format": FORMAT,
        "options": {
            "subscribe": "arrivals",
            "kafka.bootstrap.servers": "kafka:9092",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "10000",
        },
        "value": ValueFormat(
            "json",
            "id BIGINT, carrier STRING, at TIMESTAMP, legs ARRAY<STRUCT<to: STRING>>",
            {"timestampFormat": "dd.MM.yyyy HH:mm X"},
        ),
    }
    return FormatSource(**{**values, **changes})


def pipeline(tmp_path: Path, **changes: Any) -> Pipeline:
    values: dict[str, Any] = {
        "source": source(),
        # A message without a value is a delete of its key, as in compacted topics.
        "transform": "SELECT CAST(CAST(key AS STRING) AS BIGINT) AS id, value.carrier, value.at, "
        "value.legs[0].to AS dest, IF(value IS NULL, 'delete', 'upsert') AS _op FROM source",
        "table": TargetTable(
            str(tmp_path / "t"),
            {},
            parse_schema("id: int64!, carrier: string, at: timestamp(us, UTC), dest: string"),
            ("id",),
            (weir.bucket("id", 2),),
            fsync=False,
        ),
        "checkpoint": str(tmp_path / "checkpoint"),
        "trigger": AVAILABLE_NOW,
        "services": OFF,
        "metrics": Metrics(every=timedelta(seconds=1), log=False, arrival="timestamp"),
    }
    return Pipeline(**{**values, **changes})


def message(number: int, **changes: Any) -> bytes:
    at = f"{number + 1:02}.01.2013 10:30 +01"
    return json.dumps({"id": number, "carrier": "ÜA", "at": at, "legs": [{"to": "JFK"}], **changes}).encode()


@pytest.mark.everywhere
def test_messages_become_rows(spark: SparkSession, tmp_path: Path) -> None:
    messages = [message(0), message(1, carrier=None, more="that the schema does not have"), None, message(3)]
    spark.dataSource.register(topic(messages))
    samples: list[Any] = []
    described = pipeline(tmp_path).table
    assert isinstance(described, TargetTable)
    with open_or_create(described).writer() as writer:
        writer.upsert([{"id": 2, "carrier": "deleted", "at": None, "dest": None}])
    summary = pipeline(tmp_path).run(spark, on_sample=samples.append)
    assert summary.rows == 4
    found = weir.open(tmp_path / "t").scan().to_table().sort_by("id").to_pylist()
    assert found == [
        {
            "id": n,
            "carrier": None if n == 1 else "ÜA",
            "at": datetime(2013, 1, n + 1, 9, 30, tzinfo=UTC),
            "dest": "JFK",
        }
        for n in (0, 1, 3)
    ]
    assert {sample.arrival for sample in samples} == {"timestamp"}
    waited = max(sample.freshness_p50 or 0.0 for sample in samples)
    assert waited > (datetime(2026, 1, 1, tzinfo=UTC) - ARRIVED).total_seconds()


def test_a_message_that_cannot_be_read_fails_the_stream(spark: SparkSession, tmp_path: Path) -> None:
    spark.dataSource.register(topic([message(0), b'{"id": "no number"', message(2)]))
    with pytest.raises(PipelineError, match="MALFORMED_RECORD_IN_PARSING"):
        pipeline(tmp_path).run(spark)
    assert weir.open(tmp_path / "t").scan().count() == 0
    lenient = ValueFormat("json", "id BIGINT, carrier STRING", {"mode": "PERMISSIVE"})
    transform = "SELECT value.id, value.carrier FROM source WHERE value.id IS NOT NULL"
    two = TargetTable(str(tmp_path / "two"), {}, parse_schema("id: int64!, carrier: string"), ("id",))
    pipeline(
        tmp_path,
        source=source(value=lenient),
        transform=transform,
        table=two,
        checkpoint=str(tmp_path / "other"),
    ).run(spark)
    assert sorted(weir.open(tmp_path / "two").scan().to_table()["id"].to_pylist()) == [0, 2]


def test_freshness_of_kafka_begins_with_the_time_of_the_message() -> None:
    columns = StructType([StructField("value", BinaryType()), StructField("timestamp", TimestampType())])
    assert arrival_of(FormatSource("kafka"), columns, None) == "timestamp"
    assert arrival_of(FormatSource(FORMAT), columns, None) is None


@pytest.mark.everywhere
def test_values_are_read_of_text_too(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.txt").write_text("1;one\n2;two\n")
    lines = FormatSource(
        "text",
        path=str(tmp_path / "in"),
        value=ValueFormat("csv", "id BIGINT, carrier STRING", {"sep": ";"}),
    )
    table = TargetTable(str(tmp_path / "t"), {}, parse_schema("id: int64!, carrier: string"), ("id",))
    metrics = Metrics(log=False)
    pipeline(
        tmp_path, source=lines, transform="SELECT value.* FROM source", table=table, metrics=metrics
    ).run(spark)
    found = weir.open(tmp_path / "t").scan().to_table().sort_by("id").to_pylist()
    assert found == [{"id": 1, "carrier": "one"}, {"id": 2, "carrier": "two"}]


def test_sql_has_functions_for_the_formats_that_are_not_read_here(spark: SparkSession) -> None:
    for function in ("from_avro", "from_protobuf"):
        described = spark.sql(f"DESCRIBE FUNCTION {function}").collect()
        assert any(row[0].startswith("Usage") for row in described), described


@pytest.mark.everywhere
@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        (FormatSource("rate", value=ValueFormat("json", "id BIGINT")), SchemaError, "is bigint"),
        (FormatSource("text", path="{in}", value=ValueFormat("json", "id BIGNT")), OptionError, "BIGNT"),
        (
            FormatSource("csv", path="{in}", schema="id INT", value=ValueFormat("csv", "id INT")),
            SchemaError,
            "no column 'value'",
        ),
    ],
)
def test_values_that_cannot_be_read(
    spark: SparkSession, tmp_path: Path, given: FormatSource, kind: type[InputError], says: str
) -> None:
    (tmp_path / "in").mkdir()
    path = None if given.path is None else str(tmp_path / "in")
    described = FormatSource(given.format, given.options, path, given.schema, given.value)
    with pytest.raises(kind, match=says) as caught:
        read_source(spark, described)
    assert caught.value.where == "source.value"

"""The format "weir-events", and queries of an event store on Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from tests.events.calendars import check_calendars

import weir
from weir.events.store import EventStore


@pytest.fixture
def store(tmp_path: Path) -> EventStore:
    store = weir.events.create(tmp_path / "store", buckets=2)
    store.define(
        "order", {"amount": "decimal(9,2)", "state": ["new", "paid"], "at": "datetime", "on": "date | null"}
    )
    store.define("click", {"amount": "int", "tags": "list<string> | null"})
    return store


def fill(store: EventStore, start: int, count: int) -> None:
    numbers = range(start, start + count)
    with store.writer(lease_wait=30) as writer:
        writer.ingest(
            "order",
            pa.table(
                {
                    "context_id": [f"c{n % 7}" for n in numbers],
                    "amount": pa.array(numbers, pa.int64()),
                    "state": ["paid" if n % 3 else "new" for n in numbers],
                    "at": pa.array([n * 1_000_000 for n in numbers], pa.timestamp("us", "UTC")),
                }
            ),
        )
        for n in range(3):
            writer.append("click", f"c{n}", {"amount": n, "tags": ["a"]})


def test_events_are_read_in_a_batch_and_as_they_come(
    spark: SparkSession, store: EventStore, tmp_path: Path
) -> None:
    fill(store, 0, 50)
    store.maintain()
    fill(store, 50, 50)
    frame = spark.read.format("weir-events").option("type", "order").load(store.path)
    assert frame.columns == [
        "event_id",
        "context_id",
        "event_type",
        "timestamp",
        "amount",
        "state",
        "at",
        "on",
    ]
    expected = store.execute("QUERY order").to_table()
    found = frame.orderBy("event_id").toArrow()
    assert found.column("event_id").to_pylist() == expected.column("event_id").to_pylist()
    assert found.column("amount").to_pylist() == expected.column("amount").to_pylist()
    every = spark.read.format("weir-events").load(store.path)
    assert {"order.amount", "click.amount", "tags"} <= set(every.columns)
    assert every.count() == store.replay().to_table().num_rows
    one = spark.read.format("weir-events").option("context", "c1").load(store.path)
    assert sorted(row["event_id"] for row in one.collect()) == (
        store.replay("c1").to_table().column("event_id").to_pylist()
    )

    def stream() -> list[int]:
        query = (
            spark.readStream.format("weir-events")
            .option("type", "order")
            .option("maxRowsPerTrigger", "40")
            .load(store.path)
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sorted(row["event_id"] for row in spark.read.parquet(str(tmp_path / "out")).collect())

    assert stream() == expected.column("event_id").to_pylist()


def test_data_frames_and_streams_are_appended_once(
    spark: SparkSession, store: EventStore, tmp_path: Path
) -> None:
    rows = spark.range(40).select(
        f.concat(f.lit("c"), (f.col("id") % 4).cast("string")).alias("context_id"),
        f.col("id").alias("amount"),
        f.timestamp_seconds(f.lit(1_767_225_540) + f.col("id")).alias("timestamp"),
    )
    for _ in range(2):
        options = {"type": "click", "source": "job", "sequence": "1"}
        rows.write.format("weir-events").options(**options).mode("append").save(store.path)
    assert store.execute("QUERY click COUNT, TOTAL amount").to_table().to_pylist() == [
        {"count": 40, "total_amount": sum(range(40))}
    ]
    rows.write.parquet(str(tmp_path / "in"))
    for _ in range(2):
        (
            spark.readStream.schema(rows.schema)
            .parquet(str(tmp_path / "in"))
            .writeStream.format("weir-events")
            .option("type", "click")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(store.path)
            .awaitTermination()
        )
    assert store.execute("QUERY click COUNT").to_table().to_pylist() == [{"count": 80}]
    day = 'SINCE "2025-12-31" UNTIL "2026-01-01"'
    assert store.execute(f"QUERY click {day} COUNT").to_table().to_pylist() == [{"count": 80}]
    check_calendars(store)
    assert list((Path(store.path) / "spark").rglob("*.arrow")) == []


def test_queries_run_on_executors(spark: SparkSession, store: EventStore) -> None:
    fill(store, 0, 300)
    store.maintain()
    fill(store, 300, 100)
    for text in (
        "QUERY order WHERE state != new AND amount > 20 ORDER BY amount DESC LIMIT 5",
        "QUERY order COUNT, TOTAL amount, AVG amount, COUNT UNIQUE context_id PER day BY state",
        "QUERY order FOLLOWED BY click LINKED BY context_id COUNT",
        "QUERY order WHERE amount > 100000 COUNT",
        "REPLAY FOR c1",
        "REPLAY order FOR c1 RETURN [state]",
        "COMPARE QUERY order COUNT WITH QUERY click COUNT",
    ):
        assert store.execute(text, spark=spark).to_table().equals(store.execute(text).to_table()), text


def test_what_is_remembered_is_refreshed_by_jobs(spark: SparkSession, store: EventStore) -> None:
    queries = {
        "daily": "QUERY order COUNT, TOTAL amount, COUNT UNIQUE context_id PER day BY state",
        "largest": "QUERY order ORDER BY amount DESC LIMIT 5",
        "clicked": "QUERY order FOLLOWED BY click LINKED BY context_id COUNT",
    }
    fill(store, 0, 100)
    for name, query in queries.items():
        store.remember(name, query)
    store.maintain()
    fill(store, 100, 60)
    for name, query in queries.items():
        store.refresh(name, spark=spark)
        assert store.materializations()[name].lag == 0
        assert store.show(name).to_table().equals(store.execute(query).to_table()), name
    fill(store, 160, 20)
    for name, query in queries.items():
        shown = store.execute(f"SHOW {name}", spark=spark).to_table()
        assert shown.equals(store.execute(query).to_table()), name

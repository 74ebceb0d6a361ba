"""Streaming reads: changes through Spark, with its own checkpoints, triggers and failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import weir

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("value", pa.string())])
PLACES = ("_shard", "_position", "_epoch")


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    return weir.create(tmp_path / "t", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 2), fsync=False)


def changes(spark: SparkSession, table: weir.Table, **options: Any) -> DataFrame:
    reader = spark.readStream.format("weir").option("readChangeFeed", "true")
    return reader.options(**options).load(table.uri)


def to_files(frame: DataFrame, path: Path) -> None:
    """Write what there is to files, and wait until it is done."""
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(path / "rows"))
    )
    assert query.awaitTermination(300)


def in_files(spark: SparkSession, path: Path) -> list[dict[str, Any]]:
    rows = [row.asDict() for row in spark.read.parquet(str(path / "rows")).collect()]
    return sorted(rows, key=lambda row: (row["_shard"] or "", row["_position"] or 0, row["id"]))


def batches_in(path: Path) -> int:
    """Return how many micro-batches are done, empty ones included."""
    return len(list((path / "checkpoint" / "commits").glob("[0-9]*")))


def written(table: weir.Table) -> list[dict[str, Any]]:
    rows = [row for change in table.changes("earliest") for row in change.rows.to_pylist()]
    return sorted(rows, key=lambda row: (row["_shard"], row["_position"], row["id"]))


@pytest.mark.everywhere
def test_every_change_once_over_restarts(spark: SparkSession, table: weir.Table, tmp_path: Path) -> None:
    with table.writer() as writer:
        for start in range(3):
            writer.upsert([{"id": n, "value": f"v{start}"} for n in range(start * 10, start * 10 + 20)])
        frame = changes(spark, table, startingFrom="earliest", maxRowsPerTrigger=25, consumer="copy")
        assert frame.isStreaming
        to_files(frame, tmp_path)
        assert in_files(spark, tmp_path) == written(table)
        writer.delete([3])
        writer.delete([4])
        writer.flush()
        table.maintenance.merge()
        before = batches_in(tmp_path)
        to_files(
            changes(spark, table, startingFrom="latest", consumer="copy", maxBytesPerTrigger=1), tmp_path
        )
    # Each log entry comes alone.
    assert batches_in(tmp_path) >= before + 2
    assert in_files(spark, tmp_path) == written(table)


@pytest.mark.everywhere
def test_a_table_is_copied_by_a_stream(spark: SparkSession, table: weir.Table, tmp_path: Path) -> None:
    copy = weir.create(
        tmp_path / "copy", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 3), fsync=False
    )

    def follow() -> None:
        query = (
            changes(spark, table)
            .drop(*PLACES)
            .writeStream.format("weir")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(copy.uri)
        )
        assert query.awaitTermination(300)

    def rows(of: weir.Table) -> list[dict[str, Any]]:
        return list(weir.open(of.uri).scan().to_table().sort_by("id").to_pylist())

    with table.writer() as writer:
        writer.upsert([{"id": n, "value": "first"} for n in range(50)])
        writer.delete([7])
        follow()
        assert rows(copy) == rows(table)
        writer.upsert([{"id": n, "value": "second"} for n in range(25, 75)])
        writer.delete([30, 31])
        writer.upsert([{"id": 31, "value": "again"}])
        follow()
    assert rows(copy) == rows(table)
    assert len(rows(copy)) == 73


def test_a_stream_has_to_say_that_it_reads_changes(
    spark: SparkSession, table: weir.Table, tmp_path: Path
) -> None:
    plain = spark.readStream.format("weir").load(table.uri)
    with pytest.raises(PySparkException, match="readChangeFeed"):
        to_files(plain, tmp_path)
    with pytest.raises(PySparkException, match="Did you mean 'startingFrom'"):
        changes(spark, table, startingform="latest")


def test_a_checkpoint_of_another_table_is_refused(
    spark: SparkSession, table: weir.Table, tmp_path: Path
) -> None:
    other = weir.create(tmp_path / "other", SCHEMA, primary_key="id", fsync=False)
    to_files(changes(spark, other), tmp_path)
    with pytest.raises(PySparkException, match="the token belongs to table"):
        to_files(changes(spark, table), tmp_path)

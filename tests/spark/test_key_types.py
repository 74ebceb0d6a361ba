"""Keys of dates, timestamps, decimals and UUIDs on Spark: written, read with filters, and followed."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as st
from tests.spark.sink_kit import save

import weir
from weir.spark.runner import SparkRunner

KINDS: dict[str, tuple[pa.DataType, st.DataType]] = {
    "date": (pa.date32(), st.DateType()),
    "instant": (pa.timestamp("us", "UTC"), st.TimestampType()),
    "clock": (pa.timestamp("ms"), st.TimestampNTZType()),
    "decimal": (pa.decimal128(12, 3), st.DecimalType(12, 3)),
    "uuid": (pa.uuid(), st.BinaryType()),
}


def value(kind: str, number: int) -> Any:
    """Return a key, as Weir has it; in another order than the numbers."""
    mixed = number * 37 % 101 - 50
    if kind == "date":
        return date(1970, 1, 1) + timedelta(days=mixed)
    if kind in ("instant", "clock"):
        return datetime(1970, 1, 1, tzinfo=UTC if kind == "instant" else None) + timedelta(hours=mixed)
    return Decimal(mixed) / 8 if kind == "decimal" else UUID(int=mixed + 50 << 64 | number)


def of_spark(key: Any) -> Any:
    return key.bytes if isinstance(key, UUID) else key


def of_weir(table: weir.Table, columns: list[str]) -> dict[tuple[Any, ...], int]:
    rows = weir.open(table.uri).scan().to_pylist()
    found = {tuple(row[name] for name in columns): row["v"] for row in rows}
    assert len(found) == len(rows)
    return found


def copied(spark: SparkSession, table: weir.Table, copy: weir.Table, checkpoint: Path) -> None:
    changes = spark.readStream.format("weir").option("readChangeFeed", "true").load(table.uri)
    writing = changes.drop("_shard", "_position", "_epoch").writeStream.format("weir")
    started = writing.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    assert started.start(copy.uri).awaitTermination(300)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "kinds", [*(pytest.param([kind], marks=pytest.mark.long) for kind in KINDS), list(KINDS)], ids="-".join
)
def test_rows_are_written_read_and_followed(spark: SparkSession, tmp_path: Path, kinds: list[str]) -> None:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    schema = pa.schema([*((name, KINDS[name][0]) for name in kinds), ("v", pa.int64())])
    tables = [
        weir.create(tmp_path / name, schema, primary_key=kinds, shard_by=weir.bucket(kinds[-1], 2))
        for name in ("one", "copy")
    ]
    table, copy = tables
    in_spark = st.StructType([st.StructField(name, KINDS[name][1]) for name in kinds]).add("v", "long")

    def keys(numbers: range) -> list[tuple[Any, ...]]:
        return [tuple(value(kind, number) for kind in kinds) for number in numbers]

    def frame(numbers: range, v: int, operation: str | None = None) -> DataFrame:
        rows = [(*map(of_spark, key), v) for key in keys(numbers)]
        return spark.createDataFrame(rows, in_spark).withColumn("_op", f.lit(operation).cast("string"))

    save(frame(range(60), 1), table)
    table.maintenance.merge(runner=SparkRunner(spark))
    save(frame(range(40, 70), 2).unionByName(frame(range(5), 0, "delete")), table)
    expected = dict.fromkeys(keys(range(5, 40)), 1) | dict.fromkeys(keys(range(40, 70)), 2)
    assert of_weir(table, kinds) == expected

    content = spark.read.format("weir").load(table.uri)
    assert sorted(row["v"] for row in content.collect()) == sorted(expected.values())
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        reader = spark.read.format("weir").option("pushFilters", "true")
        for at, kind in enumerate(kinds):
            here, there = value(kind, 10), value(kind, 50)
            some = [value(kind, number) for number in (3, 20, 65)]
            column = f.col(kind)
            within = (column >= of_spark(here)) & (column != of_spark(there))
            for condition, wanted in (
                (column.isin(*map(of_spark, some)), [key for key in expected if key[at] in some]),
                (within, [key for key in expected if key[at] >= here and key[at] != there]),
            ):
                # Of its own for each query: Spark keeps what was pushed into one.
                assert reader.load(table.uri).filter(condition).count() == len(wanted) > 0, condition
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")

    copied(spark, table, copy, tmp_path / "checkpoint")
    assert of_weir(copy, kinds) == expected
    save(frame(range(10), 3), table)
    with table.writer() as writer:
        writer.delete(keys(range(20, 25)))
    expected |= dict.fromkeys(keys(range(10)), 3)
    for key in keys(range(20, 25)):
        del expected[key]
    copied(spark, table, copy, tmp_path / "checkpoint")
    assert of_weir(copy, kinds) == of_weir(table, kinds) == expected

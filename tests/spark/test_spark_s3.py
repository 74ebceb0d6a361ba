"""Batch and stream to a table on an object store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.sink_kit import SCHEMA, frame, lines, run, stream
from tests.storage.s3 import S3Endpoint, s3_endpoint

import weir

__all__ = ["s3_endpoint"]


@pytest.mark.everywhere
def test_batch_and_stream(spark: SparkSession, s3_endpoint: S3Endpoint, tmp_path: Path) -> None:
    table = weir.create(
        s3_endpoint.new_uri(),
        SCHEMA,
        primary_key="id",
        shard_by=weir.bucket("id", 2),
        storage_options=s3_endpoint.options,
    )
    options: dict[str, Any] = {
        name if name.startswith("aws_") else f"storage.{name}": value
        for name, value in s3_endpoint.options.items()
    }
    rows = frame(spark, [(n, "batch") for n in range(20)], "id long, value string")
    rows.write.format("weir").mode("append").options(**options).save(table.uri)
    # Long enough to be staged.
    long = spark.range(20, 1020).selectExpr("id", "repeat('x', 20000) as value")
    long.write.format("weir").mode("append").options(**options).save(table.uri)
    for number in range(2):
        lines(tmp_path / "inbox", number, f"{number},stream,", f"{number + 5},,delete")
    run(stream(spark, tmp_path / "inbox", table, tmp_path / "checkpoint", **options))
    expected = dict.fromkeys(range(20), "batch") | dict.fromkeys(range(20, 1020), "x" * 20000)
    expected |= {0: "stream", 1: "stream"}
    del expected[5], expected[6]
    found = table.scan().to_table()
    assert dict(zip(found["id"].to_pylist(), found["value"].to_pylist(), strict=True)) == expected
    assert not table.maintenance.verify().findings

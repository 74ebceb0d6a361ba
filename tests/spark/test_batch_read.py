"""Batch reads: through Spark come the rows that a scan of the table has."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import weir
from tests.spark.tables import SCHEMA, as_rows, build, rows
from tests.storage.s3 import S3Endpoint, s3_endpoint
from weir.sharding.shard_by import ShardBy

__all__ = ["s3_endpoint"]

SHARDINGS = [None, weir.bucket("id", 3), weir.truncate("id", 250)]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> weir.Table:
    return build(tmp_path_factory.mktemp("read") / "t", weir.bucket("id", 3), fsync=False)


@pytest.mark.everywhere
@pytest.mark.parametrize("shard_by", SHARDINGS, ids=str)
def test_the_rows_are_those_of_a_scan(spark: SparkSession, tmp_path: Path, shard_by: ShardBy | None) -> None:
    table = build(tmp_path / "t", shard_by, fsync=False)
    expected = as_rows(table.scan().to_table().to_pylist())
    frame = spark.read.format("weir").option("rowsPerPartition", 300).load(table.uri)
    assert frame.schema.simpleString() == (
        "struct<id:bigint,carrier:string,delay:double,day:date,vector:array<float>>"
    )
    assert as_rows(frame.collect()) == expected
    assert frame.count() == len(expected) == len({row[0] for row in expected})

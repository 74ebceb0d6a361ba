from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import spark_partition_id

import weir
from weir.errors import KeyValueError
from weir.format.wal_entry import wal_schema
from weir.rows import change_table
from weir.sharding.shard_by import ShardBy
from weir.spark.cluster import cluster_by_shard

SCHEMA = pa.schema(
    [
        pa.field("id", pa.uint32(), nullable=False),
        pa.field("at", pa.timestamp("ms", "UTC"), nullable=False),
        pa.field("name", pa.string()),
    ]
)
RULES: dict[str, ShardBy] = {
    "bucket": weir.bucket("id", 5),
    "multi_bucket": weir.multi_bucket(["id", "at"], 4, immutable=True),
    "day": weir.day("at", immutable=True),
    "truncate": weir.truncate("id", 100),
    "identity": weir.identity("at", immutable=True),
    "expression": weir.expression("CAST(col0 AS BIGINT) % 3", ["id"], result_type="int64"),
    "unsharded": weir.unsharded(),
}


@pytest.mark.everywhere
@pytest.mark.parametrize("rule", ["bucket", "day"])
def test_each_shard_is_in_one_partition(spark: SparkSession, tmp_path: Path, rule: str) -> None:
    check(spark, tmp_path, rule)


@pytest.mark.parametrize("rule", sorted(set(RULES) - {"bucket", "day"}))
def test_each_shard_is_in_one_partition_by_every_rule(spark: SparkSession, tmp_path: Path, rule: str) -> None:
    check(spark, tmp_path, rule)


def check(spark: SparkSession, tmp_path: Path, rule: str) -> None:
    table = weir.create(tmp_path / "table", SCHEMA, primary_key="id", shard_by=RULES[rule], fsync=False)
    data = spark.range(0, 400, 1, 4).selectExpr(
        "id", "timestamp_seconds(1600000000 + (id % 7) * 86400) as at", "cast(id as string) as name"
    )
    placed = cluster_by_shard(data, table, partitions=3).withColumn("partition", spark_partition_id())
    rows = placed.toArrow()
    assert rows.num_rows == 400
    changes = change_table(
        rows.drop_columns(["partition"]), SCHEMA, wal_schema(SCHEMA), ("id",), also=("at",)
    )
    shards = table.internals.router.partition(changes)
    places: dict[str, set[int]] = {}
    for shard, place in zip(shards.shards.tolist(), rows["partition"].to_pylist(), strict=True):
        places.setdefault(str(shards.values[shard]), set()).add(place)
    assert all(len(place) == 1 for place in places.values())


@pytest.mark.parametrize(("rule", "shards"), [("bucket", 5), ("multi_bucket", 4), ("unsharded", 1)])
def test_partitions_are_as_many_as_shards_that_tasks_can_be_busy_with(
    spark: SparkSession, tmp_path: Path, rule: str, shards: int
) -> None:
    table = weir.create(tmp_path / "table", SCHEMA, primary_key="id", shard_by=RULES[rule], fsync=False)
    data = spark.range(0, 400, 1, 4).selectExpr(
        "id", "timestamp_seconds(1600000000) as at", "cast(id as string) as name"
    )
    placed = cluster_by_shard(data, table).select(spark_partition_id().alias("partition")).distinct()
    assert placed.count() == min(shards, 2 * spark.sparkContext.defaultParallelism)


def test_rows_with_nothing_that_tells_their_shard_are_in_one_partition(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.int64())])
    rule = weir.multi_bucket(["a", "b"], 4, immutable=True)
    table = weir.create(tmp_path / "log", schema, primary_key=None, shard_by=rule, fsync=False)
    data = spark.sql("SELECT if(id % 2 = 0, id, NULL) AS a, if(id % 2 = 0, id, NULL) AS b FROM range(40)")
    placed = cluster_by_shard(data, table, partitions=3).withColumn("partition", spark_partition_id())
    rows = placed.where("a IS NULL").toArrow()
    assert rows.num_rows == 20
    assert len(rows["partition"].unique()) == 1


def test_a_column_that_tells_the_shard_is_named(spark: SparkSession, tmp_path: Path) -> None:
    rule = weir.day("at", immutable=True)
    table = weir.create(tmp_path / "table", SCHEMA, primary_key="id", shard_by=rule, fsync=False)
    with pytest.raises(KeyValueError, match="'at' is missing"):
        cluster_by_shard(spark.range(3), table)

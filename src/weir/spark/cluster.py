"""Clustering of rows by shard before they are written: fewer, larger pieces, with the same result."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import arrow_udf, struct  # type: ignore[attr-defined]

from weir.errors import KeyValueError
from weir.rows import as_key_table
from weir.sharding.router import Router
from weir.sharding.shard_ids import own_shard_id
from weir.sharding.shard_values import ShardValues
from weir.sharding.transforms import Bucket, MultiBucket, Unsharded
from weir.table.table import Table

__all__ = ["cluster_by_shard"]

_PLACE = "__weir_partition"
_PARTITIONS_PER_SLOT = 2
"""More partitions even out differences between shards, but each costs a task."""


def cluster_by_shard(data: DataFrame, table: Table, *, partitions: int | None = None) -> DataFrame:
    """Repartition a data frame so that all rows of a shard are in one partition.

    Any distribution of rows is written correctly. But if every task has rows of every shard, every task
    writes a generation for each shard; after this call, a single task does. It costs a shuffle, in which rows
    lose their order: of several rows with one key, any may win.

    If the rule fixes the number of shards, as ``bucket`` does, all partitions get equally many; otherwise
    Spark distributes them by hash.

    Parameters
    ----------
    data : DataFrame
        Rows to be written to the table, of a classic session or of Spark Connect.
    table : Table
        The table.
    partitions : int, optional
        Number of partitions. Default: one for each shard, but at most twice the number of concurrent tasks;
        if the rule does not fix the number of shards, Spark's default (``spark.sql.shuffle.partitions``).

    Returns
    -------
    DataFrame
        The same rows and columns.

    Raises
    ------
    KeyValueError
        If a column that decides the shard is missing.
    """
    decisive = {*table.primary_key, *table.internals.router.source_columns}
    names = [name for name in table.schema.names if name in decisive]
    for name in names:
        if name not in data.columns:
            raise KeyValueError(
                f"column {name!r} is missing from the data, and decides the shard of a row", where=name
            )
    router = table.internals.router
    buckets = _buckets(router)
    number = _hashed if buckets is None else partial(_placed, buckets)
    shard = arrow_udf(_numbering(table.schema, table.primary_key, router, number), "long")(struct(*names))
    if buckets is None:
        return data.repartition(shard) if partitions is None else data.repartition(partitions, shard)
    if partitions is None:
        partitions = min(prod(buckets), _fit(data.sparkSession))
    placed = data.withColumn(_PLACE, (shard % partitions).cast("int"))
    return placed.repartitionById(partitions, _PLACE).drop(_PLACE)


def _buckets(router: Router) -> tuple[int, ...] | None:
    """Return the number of values of each field of the rule; None if it is not fixed."""
    counts: list[int] = []
    for field in router.fields:
        rule = field.transform
        if isinstance(rule, (Bucket, MultiBucket)):
            counts.append(rule.num_buckets)
        elif isinstance(rule, Unsharded):
            counts.append(1)
        else:
            return None
    return tuple(counts)


def _fit(spark: SparkSession) -> int:
    """Return a sufficient number of partitions, from the number of concurrent tasks."""
    try:
        return _PARTITIONS_PER_SLOT * spark.sparkContext.defaultParallelism
    except PySparkException:
        # The client of a Spark Connect server does not know.
        return int(str(spark.conf.get("spark.sql.shuffle.partitions")))


def _numbering(
    schema: pa.Schema, primary_key: tuple[str, ...], router: Router, number_of: Callable[[ShardValues], int]
) -> Callable[[pa.Array], pa.Array]:
    """Return the expression for a number that identifies the shard of a row, the same in every process."""

    def number(rows: pa.Array) -> pa.Array:
        keys = as_key_table(rows, schema, primary_key, also=router.source_columns)
        partition = router.partition(keys)
        numbers = np.array([number_of(values) for values in partition.values], dtype=np.int64)
        return pa.array(numbers[partition.shards])

    # Spark looks at what the annotations mean, and they are text here.
    number.__annotations__ = {"rows": pa.Array, "return": pa.Array}
    return number


def _hashed(values: ShardValues) -> int:
    return own_shard_id("", 0, values).int >> 65


def _placed(buckets: tuple[int, ...], values: ShardValues) -> int:
    """Return the position of a shard among all shards of a bucket rule."""
    place = 0
    for count, value in zip(buckets, values.values, strict=True):
        number = None if count == 1 else value.scalar.as_py()
        # A shard of several buckets together is of none where all of its columns are null.
        place = place * count + (0 if number is None else int(number))
    return place

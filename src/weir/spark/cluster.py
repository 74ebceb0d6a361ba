"""Bringing rows of one shard together before they are written: fewer, larger pieces, and the same table."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import arrow_udf, struct  # type: ignore[attr-defined]

from weir.errors import KeyValueError
from weir.rows import as_key_table
from weir.sharding.router import Router
from weir.sharding.shard_ids import own_shard_id
from weir.sharding.shard_values import ShardValues
from weir.table.table import Table

__all__ = ["cluster_by_shard"]


def cluster_by_shard(data: DataFrame, table: Table, *, partitions: int | None = None) -> DataFrame:
    """Return the rows of a data frame, all that go to one shard in one partition.

    Any distribution of rows is written correctly. But where every task has rows of every shard, every task
    writes a generation for each; after this, one task does. It costs a shuffle, in which rows lose their
    order: of several rows with one key, any may count then.

    Parameters
    ----------
    data : DataFrame
        Rows that are about to be written to the table, of a classic session or of Spark Connect.
    table : Table
        The table.
    partitions : int, optional
        How many partitions to make. Default: what Spark finds fit (``spark.sql.shuffle.partitions``).

    Returns
    -------
    DataFrame
        The same rows and columns.

    Raises
    ------
    KeyValueError
        If a column is missing that tells the shard.
    """
    decisive = {*table.primary_key, *table.internals.router.source_columns}
    names = [name for name in table.schema.names if name in decisive]
    for name in names:
        if name not in data.columns:
            raise KeyValueError(
                f"column {name!r} is missing from the data, and tells the shard of a row", where=name
            )
    number = arrow_udf(_numbering(table.schema, table.primary_key, table.internals.router), "long")
    shard = number(struct(*names))
    return data.repartition(shard) if partitions is None else data.repartition(partitions, shard)


def _numbering(
    schema: pa.Schema, primary_key: tuple[str, ...], router: Router
) -> Callable[[pa.Array], pa.Array]:
    """Return what tells the shard of rows by a number, the same in every process."""

    def number(rows: pa.Array) -> pa.Array:
        keys = as_key_table(rows, schema, primary_key, also=router.source_columns)
        partition = router.partition(keys)
        numbers = np.array([_number(values) for values in partition.values], dtype=np.int64)
        return pa.array(numbers[partition.shards])

    # Spark looks at what the annotations mean, and they are text here.
    number.__annotations__ = {"rows": pa.Array, "return": pa.Array}
    return number


def _number(values: ShardValues) -> int:
    return own_shard_id("", 0, values).int >> 65

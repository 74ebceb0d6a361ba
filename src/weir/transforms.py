"""The rules by which a table's rows are split into shards, for ``weir.create(..., shard_by=...)``.

The same functions as :func:`weir.bucket` and its kin, under a name that a module can import from.

Examples
--------
>>> from weir.transforms import bucket
>>> bucket("id", 8)
ShardBy(...)
"""

from weir.sharding.shard_by import (
    ShardBy,
    bucket,
    day,
    expression,
    hour,
    identity,
    month,
    multi_bucket,
    truncate,
    unsharded,
    year,
)

__all__ = [
    "ShardBy",
    "bucket",
    "day",
    "expression",
    "hour",
    "identity",
    "month",
    "multi_bucket",
    "truncate",
    "unsharded",
    "year",
]

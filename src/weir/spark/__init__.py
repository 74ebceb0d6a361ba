"""Weir on Apache Spark: the formats ``"weir"`` and ``"weir-events"``, pipelines, and services as Spark jobs.

Needs the extra ``weir-lance[spark]`` and Java 17 or newer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weir.errors import MissingDependencyError

try:
    import pyspark
except ModuleNotFoundError as error:
    raise MissingDependencyError(
        "weir.spark needs PySpark", hint="Install it with: pip install 'weir-lance[spark]'"
    ) from error

from weir.spark.cluster import cluster_by_shard
from weir.spark.lookup_join import lookup_join
from weir.spark.runner import SparkRunner
from weir.spark.session import register

__all__ = ["SparkRunner", "cluster_by_shard", "lookup_join", "register", "sql"]

if TYPE_CHECKING:
    from weir.spark.statements.run import sql

del pyspark


def __getattr__(name: str) -> object:
    """Import the statement parser on demand: Spark's workers import this module and never need it."""
    if name != "sql":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from weir.spark.statements.run import sql

    globals()[name] = sql
    return sql

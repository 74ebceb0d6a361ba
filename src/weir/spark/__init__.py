"""The pipeline on Apache Spark: the format ``"weir"``, and services as Spark jobs.

Needs the extra ``weir-lance[spark]`` and Java 17 or newer.
"""

from __future__ import annotations

from weir.errors import MissingDependencyError

try:
    import pyspark
except ModuleNotFoundError as error:
    raise MissingDependencyError(
        "weir.spark needs PySpark", hint="Install it with: pip install 'weir-lance[spark]'"
    ) from error

from weir.spark.cluster import cluster_by_shard
from weir.spark.runner import SparkRunner
from weir.spark.session import register

__all__ = ["SparkRunner", "cluster_by_shard", "register"]

del pyspark

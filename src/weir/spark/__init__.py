"""The pipeline on Apache Spark: the format ``"weir"``, and services as Spark jobs.

Needs the extra ``weir[spark]`` and Java 17 or newer.
"""

from __future__ import annotations

from weir.errors import WeirError

try:
    import pyspark
except ModuleNotFoundError as error:
    raise WeirError("weir.spark needs PySpark", hint="pip install 'weir[spark]'") from error

from weir.spark.cluster import cluster_by_shard
from weir.spark.runner import SparkRunner
from weir.spark.session import register

__all__ = ["SparkRunner", "cluster_by_shard", "register"]

del pyspark

"""Making the format ``"weir"`` known to a Spark session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from weir.spark.data_source import WeirDataSource

__all__ = ["register"]

# Spark refuses a reader that takes filters unless this is on, and it is off by default.
_FILTER_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Make the format ``"weir"`` known to a Spark session, classic or Connect.

    Turns the pushdown of filters into Python data sources on for this session.

    Parameters
    ----------
    spark : SparkSession
        The session.
    """
    spark.conf.set(_FILTER_PUSHDOWN, "true")
    spark.dataSource.register(WeirDataSource)

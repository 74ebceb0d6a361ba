"""Making the format ``"weir"`` known to a Spark session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from weir.spark.data_source import WeirDataSource

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make the format ``"weir"`` known to a Spark session, classic or Connect.

    Parameters
    ----------
    spark : SparkSession
        The session.
    """
    spark.dataSource.register(WeirDataSource)

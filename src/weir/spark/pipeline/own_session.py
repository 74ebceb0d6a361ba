"""The Spark session that a command starts for a pipeline."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark.sql import SparkSession

from weir.spark.java import check_java
from weir.spark.pipeline.pipeline_file import SessionSettings
from weir.spark.session import start_session
from weir.spark.silence import on_thread

__all__ = ["own_session"]

# Services get their share of the executors, and ingestion its own.
_FAIR = {"spark.scheduler.mode": "FAIR"}


_STOP_SECONDS = 10.0
"""How long to wait for a server at the end."""


@contextmanager
def own_session(settings: SessionSettings, name: str) -> Iterator[SparkSession]:
    """Start a session with fair scheduling, and stop it at the end.

    Parameters
    ----------
    settings : SessionSettings
        Where and how Spark runs.
    name : str
        Name of the application.

    Raises
    ------
    MissingDependencyError
        If there is no Java that Spark can use.
    RunnerError
        If Spark does not start or is not installed.
    """
    is_remote = settings.master is not None and settings.master.startswith("sc://")
    if not is_remote:
        check_java()
    # Weir's tables are in no catalog of Spark, which else leaves a spark-warehouse where it is started.
    warehouse = (
        None if is_remote else tempfile.TemporaryDirectory(prefix="weir-spark-", ignore_cleanup_errors=True)
    )
    usual = {} if warehouse is None else {**_FAIR, "spark.sql.warehouse.dir": Path(warehouse.name).as_uri()}
    spark = start_session(settings.master, name, {**usual, **settings.settings})
    try:
        yield spark
    finally:
        if is_remote:
            # A server that is gone would be asked for ten minutes more, one that stands still for ever.
            wait([on_thread(lambda: _stop(spark))], _STOP_SECONDS)
        else:
            _stop(spark)


def _stop(spark: SparkSession) -> None:
    # Where Spark has died, what it has made of the pipeline is what the caller is to be told.
    with suppress(Exception):
        spark.stop()

"""The Spark session of a program that runs a pipeline, where there is none yet."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from weir.errors import MissingDependencyError, OptionError
from weir.spark.java import check_java
from weir.spark.pipeline.pipeline_file import SessionSettings

__all__ = ["own_session"]

_USUAL = {
    # Services get their share of the executors, and ingestion its own.
    "spark.scheduler.mode": "FAIR",
    # It would be drawn into what the program shows.
    "spark.ui.showConsoleProgress": "false",
}


@contextmanager
def own_session(settings: SessionSettings, name: str) -> Iterator[SparkSession]:
    """Start a session, and stop it in the end.

    Parameters
    ----------
    settings : SessionSettings
        Where Spark runs, and how. Settings that are given win over those that are usual here: fair
        scheduling, and no progress bar of Spark's own.
    name : str
        Name of the application.

    Raises
    ------
    MissingDependencyError
        If there is no Java that Spark can start.
    OptionError
        If Spark refuses the settings.
    """
    builder = SparkSession.builder.appName(name)
    if settings.remote is not None:
        builder = builder.remote(settings.remote)
    elif settings.master is not None:
        builder = builder.master(settings.master)
    if settings.remote is None or settings.remote.startswith("local"):
        check_java()
        if (settings.master or settings.remote or "local").startswith("local"):
            # On this machine tasks run in the same Python; executors elsewhere have one of their own.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = builder.config(map=dict(_USUAL))
    try:
        spark = builder.config(map=dict(settings.settings)).getOrCreate()
    except PySparkException as error:
        text = str(error)
        kind = MissingDependencyError if "JAVA_GATEWAY_EXITED" in text else OptionError
        raise kind(f"Spark does not start: {text.partition(chr(10))[0]}", where="spark") from error
    try:
        yield spark
    finally:
        spark.stop()

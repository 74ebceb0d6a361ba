"""Starting a Spark session, and making the format ``"weir"`` known to one."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from weir.errors import RunnerError
from weir.spark.data_source import WeirDataSource

__all__ = ["register", "start_session"]


def register(spark: SparkSession) -> None:
    """Make the format ``"weir"`` known to a Spark session, classic or Connect.

    Parameters
    ----------
    spark : SparkSession
        The session.
    """
    spark.dataSource.register(WeirDataSource)


def start_session(master: str, name: str) -> SparkSession:
    """Start a Spark session, for a program that has none; or take the one that is active.

    What Spark says of its own progress and of warnings is switched off. Settings come from where Spark
    looks for them: ``spark-defaults.conf``, ``PYSPARK_SUBMIT_ARGS``.

    Parameters
    ----------
    master : str
        A master, such as ``local[4]`` or ``spark://host:7077``; or the location of a Spark Connect server,
        such as ``sc://host:15002``.
    name : str
        The name that Spark shows.

    Raises
    ------
    RunnerError
        If it cannot be started.
    """
    builder = SparkSession.builder.appName(name)
    if master.startswith("sc://"):
        builder = builder.remote(master)
    else:
        if master.startswith("local"):
            # On this machine the workers are to be what we are, not whatever is called python3.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = builder.master(master).config("spark.ui.showConsoleProgress", "false")
        builder = builder.config("spark.log.level", "ERROR")
    try:
        return builder.getOrCreate()
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise RunnerError(
            f"no Spark session on {master}: {said}",
            where="spark",
            hint="A master is local[N], spark://HOST:PORT, yarn or k8s://...; a Spark Connect server is "
            "sc://HOST:PORT. Spark needs Java 17 or newer",
        ) from error

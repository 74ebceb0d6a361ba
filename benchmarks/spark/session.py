"""The Spark session that all contenders of a subject share."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

import weir.spark
from weir.spark.session import start_session

__all__ = ["MASTER", "describe", "started"]

MASTER = "local[2]"
"""Two tasks at a time, as many as the targets are meant for."""

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "2g",
    "spark.driver.maxResultSize": "2g",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.session.timeZone": "UTC",
    # Loopback alone, whatever the name of the machine resolves to.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


@contextmanager
def started(directory: Path) -> Iterator[SparkSession]:
    """Yield a session that knows the format ``"weir"``, and stop it.

    Parameters
    ----------
    directory : Path
        Where it keeps its own files.
    """
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = _SETTINGS | {
        "spark.local.dir": str(directory / "spark"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    given = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*given, "pyspark-shell"])
    spark = start_session(MASTER, "weir benchmarks")
    weir.spark.register(spark)
    try:
        yield spark
    finally:
        spark.stop()


def describe() -> str:
    """Return what a figure depends on, for people."""
    load = os.getloadavg()[0]
    return f"PySpark {pyspark.__version__}, master {MASTER}, load {load:.1f} at the end of the subject"

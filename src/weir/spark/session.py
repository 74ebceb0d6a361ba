"""Starts Spark sessions, and registers the formats with them."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from weir.errors import RunnerError
from weir.spark.data_source import WeirDataSource
from weir.spark.event_source import EventDataSource
from weir.spark.silence import SILENCE_SECONDS, on_thread
from weir.spark.worker_python import check_workers, use_own_python

__all__ = ["register", "start_session"]

_ARROW_BATCHES = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.execution.arrow.maxBytesPerBatch": "8m",
}
"""How much Spark hands to Python at once. With its own 10,000 rows, a fifth of the processor time of a bulk
write in Python is of the batches and not of their rows; the bytes bound the memory of wide ones.
"""


def register(spark: SparkSession, *, check: bool = True) -> None:
    """Register the formats ``"weir"`` and ``"weir-events"`` with a Spark session, classic or Connect.

    Spark's Python workers need Weir too. On this machine they use the interpreter of this program, unless the
    environment variable ``PYSPARK_PYTHON`` names another; if they use another one, a small job checks what it
    has.

    Parameters
    ----------
    spark : SparkSession
        The session.
    check : bool
        Whether to run that check. Default True.

    Raises
    ------
    RunnerError
        If the workers have no Weir, or another version of it or of Python.
    """
    if not use_own_python(spark) and check:
        check_workers(spark)
    spark.dataSource.register(WeirDataSource)
    spark.dataSource.register(EventDataSource)


def start_session(master: str | None, name: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Start a Spark session, or return the active one.

    Spark's own progress output and warnings are switched off. A session that is started here hands rows to
    Python in larger batches than by default. On a local master, Spark and its Python workers use Unix domain
    sockets. Settings come from Spark's usual places: ``spark-defaults.conf``, ``PYSPARK_SUBMIT_ARGS``.

    Parameters
    ----------
    master : str or None
        A master, such as ``local[4]`` or ``spark://host:7077``; or the location of a Spark Connect server,
        such as ``sc://host:15002``. None: as configured in Spark, or else ``local[*]``.
    name : str
        The application name that Spark shows.
    settings : mapping of str to str, optional
        Further settings, which override those above.

    Raises
    ------
    RunnerError
        If it cannot be started, or a Spark Connect server does not answer for a minute.
    """
    builder = SparkSession.builder.appName(name)
    is_remote = master is not None and master.startswith("sc://")
    if master is not None and is_remote:
        builder = builder.remote(master)
    else:
        if master is None or master.startswith("local"):
            # On this machine the workers are to be what we are, not whatever is called python3.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if master is not None:
            builder = builder.master(master)
            if master.startswith("local") and hasattr(socket, "AF_UNIX"):
                # Over TCP every task waits 40 ms for its rows: the kernel sends what Spark writes second only
                # when what it wrote first is acknowledged. Not on a cluster, where temporary directories,
                # which the sockets are in, may have longer paths than a socket can.
                builder = builder.config("spark.python.unix.domain.socket.enabled", "true")
        builder = builder.config("spark.ui.showConsoleProgress", "false")
        builder = builder.config("spark.log.level", "ERROR")
    for setting, value in (settings or {}).items():
        builder = builder.config(setting, value)
    is_there = SparkSession.getActiveSession() is not None
    try:
        if is_remote:
            # A server is there already, or would be asked for ten minutes and more.
            return on_thread(builder.getOrCreate).result(SILENCE_SECONDS)
        spark = builder.getOrCreate()
        if not is_there:
            _enlarge_batches(spark)
        return spark
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, TimeoutError):
            said = f"its server does not answer, or not within {SILENCE_SECONDS:.0f} s"
        raise RunnerError(
            f"no Spark session on {master or 'the master that Spark is set up with'}: {said}",
            where="spark",
            hint="A master is local[N], spark://HOST:PORT, yarn or k8s://...; a Spark Connect server is "
            "sc://HOST:PORT. Spark needs Java 17 or newer",
        ) from error


def _enlarge_batches(spark: SparkSession) -> None:
    """Hand more rows to Python at once, where nobody has said how many."""
    said = spark.sparkContext.getConf()
    for setting, value in _ARROW_BATCHES.items():
        if not said.contains(setting):
            spark.conf.set(setting, value)

"""Checks which Python Spark's workers run, and whether it has Weir.

Spark starts them by name, ``python3`` unless the environment variable ``PYSPARK_PYTHON`` of the program names
another, and so uses whatever comes first in ``PATH``. A program started by the interpreter of a virtual
environment that is not activated gets workers outside it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession, is_remote

from weir import __version__
from weir.engine.logs import get_logger
from weir.errors import RunnerError

__all__ = ["check_workers", "use_own_python"]

_log = get_logger(__name__)
_CHOSEN = "PYSPARK_PYTHON"
_MISSING = re.compile(r"No module named '(\w+)|PACKAGE_NOT_INSTALLED\] (\w+)")
_INSTALL = (
    f"Set {_CHOSEN}, before the session starts, to a Python that has Weir on every machine; or ship it with "
    "spark.archives or spark.submit.pyFiles"
)


def use_own_python(spark: SparkSession) -> bool:
    """Make workers on this machine use the current interpreter, unless the program has chosen another.

    Parameters
    ----------
    spark : SparkSession
        The session, classic or Connect.

    Returns
    -------
    bool
        Whether the workers use this interpreter, which has Weir.
    """
    if is_remote():
        return False
    context = spark.sparkContext
    if not str(context.master).startswith("local"):
        return False
    if not os.environ.get(_CHOSEN):
        if context.pythonExec != sys.executable:
            _log.info("spark.python", python=sys.executable, instead_of=context.pythonExec)
        # It is asked for whenever Spark is handed something to run in a worker.
        context.pythonExec = sys.executable
    return bool(context.pythonExec == sys.executable)


def check_workers(spark: SparkSession) -> None:
    """Check with one small job whether a worker has Weir.

    Parameters
    ----------
    spark : SparkSession
        The session.

    Raises
    ------
    RunnerError
        If it lacks Weir, or has another version of Weir or of Python; the message says which Python it is.
    """
    try:
        (found,) = spark.range(1).mapInArrow(_look(), "python string, version string").collect()
    except Exception as error:
        said = str(error)
        if "PYTHON_VERSION_MISMATCH" in said:
            own = f"{sys.version_info.major}.{sys.version_info.minor}"
            problem = f"are another version of Python than this program, which is {own}"
        elif missing := _MISSING.search(said):
            problem = f"have no {missing[1] or missing[2]}, which Weir needs"
        else:
            # Of what keeps jobs from running the job that is wanted tells more.
            _log.warning("spark.not_checked", error=type(error).__name__)
            return
        raise RunnerError(f"Spark's workers {problem}", where="spark", hint=_INSTALL) from error
    python, version = found["python"], found["version"]
    if version is None:
        raise RunnerError(f"Spark's workers have no Weir: they are {python}", where="spark", hint=_INSTALL)
    if version != __version__:
        raise RunnerError(
            f"Spark's workers have Weir {version}, and this program has {__version__}: they are {python}",
            where="spark",
            hint="Install the same version on driver and executors",
        )


def _look() -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a nested function, which is pickled by value: it must run without Weir."""

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sys

        import pyarrow as pa

        try:
            import weir

            version = weir.__version__
        except ImportError:
            version = None
        for _ in batches:
            columns = [pa.array([sys.executable], pa.string()), pa.array([version], pa.string())]
            yield pa.RecordBatch.from_arrays(columns, names=["python", "version"])

    return look

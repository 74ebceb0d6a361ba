"""Tuning of the Python workers that Spark starts."""

from __future__ import annotations

import functools
import gc
import os

__all__ = ["keep_imports", "keep_imports_of"]

_REUSED = "SPARK_REUSE_WORKER"
"""Set by Spark, undocumented, in workers that are reused (``spark.python.worker.reuse``)."""


def keep_imports() -> None:
    """Exclude everything imported so far from Python's garbage collection, in a Spark worker.

    Spark makes such a process collect garbage after every call. Scanning everything that Weir and its
    dependencies have imported would take about 60 ms of processor time, three times for every micro-batch of
    a streaming write. In other processes nothing changes; that is the program's decision.
    """
    if os.environ.get(_REUSED):
        gc.freeze()


@functools.cache
def keep_imports_of(function: str) -> None:
    """Do so again for what tasks of a kind have imported: once, since garbage of later tasks has to go.

    Parameters
    ----------
    function : str
        What runs these tasks.
    """
    keep_imports()

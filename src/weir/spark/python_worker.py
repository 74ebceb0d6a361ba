"""Tuning of the Python workers that Spark starts."""

from __future__ import annotations

import gc
import os

__all__ = ["keep_imports"]

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

"""The Python workers that Spark starts, and how long it keeps them waiting."""

from __future__ import annotations

import gc
import os

__all__ = ["keep_imports"]

_REUSED = "SPARK_REUSE_WORKER"
"""Set by Spark, not documented, in workers that take call after call (``spark.python.worker.reuse``)."""


def keep_imports() -> None:
    """Take what has been imported so far out of garbage collection, in a Python worker of Spark.

    Spark makes such a process collect its garbage after every call. Going through all that Weir and what
    it needs have imported would take some 60 ms of processor time, three times for every micro-batch of a
    streaming write. In every other process nothing changes: it is the program's to decide.
    """
    if os.environ.get(_REUSED):
        gc.freeze()

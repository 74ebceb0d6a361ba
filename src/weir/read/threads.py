"""The threads of this process that read sources; starting some per read can cost as much as it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache

__all__ = ["reading_threads"]

_MAX_PARALLEL_TASKS = 8


@cache
def reading_threads() -> ThreadPoolExecutor:
    """Return the threads."""
    return ThreadPoolExecutor(_MAX_PARALLEL_TASKS, "weir-scan")


# A forked process has none of its parent's threads.
os.register_at_fork(after_in_child=reading_threads.cache_clear)

"""Returning freed memory to the system."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache

import pyarrow as pa

__all__ = ["give_back_freed_memory"]


def give_back_freed_memory() -> None:
    """Make the process's allocators return freed memory; takes some milliseconds.

    After work that takes much memory for a short time. Arrow's pool and glibc keep what a thread has freed
    for that thread, and merges use many.

    Examples
    --------
    >>> give_back_freed_memory()
    """
    pa.default_memory_pool().release_unused()
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    """Return glibc's function; other C allocators have none, and return memory on their own."""
    if sys.platform != "linux":
        return None
    found = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if found is not None:
        found.argtypes = [ctypes.c_size_t]
    return found

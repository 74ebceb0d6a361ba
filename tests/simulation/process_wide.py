"""What Weir keeps once per process: every simulated process has its own.

A module-level cache, thread pool or throttle would carry something from one simulated process to another,
and from one seed to the next, so that a seed would no longer say all that happens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tests.simulation.primitives import SimulatedExecutor
from tests.simulation.scheduler import current_scheduler

from weir.engine.cache import ByteBudgetCache

__all__ = ["OfProcess", "process_cache", "reading_threads"]

T = TypeVar("T")
_CACHE_BYTES = 8 * 1024 * 1024
_SCAN_THREADS = 8


class OfProcess:
    """Passes on to an object that every simulated process has of its own.

    Parameters
    ----------
    make : callable
        Makes it, when a process first asks for it.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __getattr__(self, name: str) -> Any:
        return getattr(_own(self, self._make), name)


def process_cache() -> ByteBudgetCache:
    """Stand in for :func:`weir.engine.cache.process_cache`."""
    return _own(process_cache, lambda: ByteBudgetCache(_CACHE_BYTES))


def reading_threads() -> SimulatedExecutor:
    """Stand in for the threads that :mod:`weir.read.scan` reads with."""
    return _own(reading_threads, lambda: SimulatedExecutor(_SCAN_THREADS, "scan"))


def _own(key: object, make: Callable[[], T]) -> T:
    task = current_scheduler().task
    assert task is not None
    memory = task.process.memory
    if key not in memory:
        memory[key] = make()
    found: T = memory[key]
    return found

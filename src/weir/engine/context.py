"""The shared state of the tables of one process, as one value: caches, threads, limits, metrics.

A store carries it (:attr:`weir.storage.interface.ObjectStore.engine`), since whatever is read or written
goes through one: so each table counts against the engine it was opened with. Tables that were opened
without one share the engine of the process. Pickled, an engine is the one of the process that unpickles it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

from weir.engine.cache import ByteBudgetCache
from weir.engine.executors import Executors
from weir.engine.metrics import Metrics
from weir.engine.throttle import Throttle

__all__ = ["DEFAULT_READ_CACHE_BYTES", "DEFAULT_UNFLUSHED_BYTES", "EngineContext", "default_context"]

DEFAULT_READ_CACHE_BYTES = 1024 * 1024 * 1024
DEFAULT_UNFLUSHED_BYTES = 1024 * 1024 * 1024

Part = TypeVar("Part")


class EngineContext:
    """The shared parts of one engine. Safe to use from many threads.

    Parameters
    ----------
    read_cache_bytes : int
        Bytes that the read cache takes at most. Default 1 GiB.
    unflushed_bytes : int
        Bytes that rows of all writers may take before they are flushed. Default 1 GiB.
    executors : Executors, optional
        The threads. Default: as many as pay.
    metrics : Metrics, optional
        Where the layers report. Default: new metrics.

    Attributes
    ----------
    cache : ByteBudgetCache
        Immutable things that were read.
    throttle : Throttle
        Makes background work give way to reads and writes.
    metrics : Metrics
        What the layers report.
    """

    def __init__(
        self,
        *,
        read_cache_bytes: int = DEFAULT_READ_CACHE_BYTES,
        unflushed_bytes: int = DEFAULT_UNFLUSHED_BYTES,
        executors: Executors | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.metrics = metrics or Metrics()
        self.cache = ByteBudgetCache(read_cache_bytes, self.metrics)
        self.throttle = Throttle()
        self.executors = executors or Executors()
        self.unflushed_bytes = unflushed_bytes
        self._parts: dict[type[Any], Any] = {}
        self._lock = threading.Lock()
        for name in self.executors.queued():
            self.metrics.queued.observe(lambda name=name: self.executors.queued()[name], name)  # type: ignore[misc]

    def part(self, kind: type[Part], make: Callable[[], Part] | None = None) -> Part:
        """Return the one instance of a class that the engine has; it is made when it is first asked for.

        For shared objects of packages above this one.

        Examples
        --------
        >>> engine = EngineContext()
        >>> engine.part(Throttle) is engine.part(Throttle)
        True
        """
        found = self._parts.get(kind)
        if found is None:
            with self._lock:
                found = self._parts.setdefault(kind, (make or kind)())
        return cast("Part", found)

    def __reduce__(self) -> tuple[object, ...]:
        """Be the engine of whichever process this is unpickled in."""
        return default_context, ()


@cache
def default_context() -> EngineContext:
    """Return the engine of this process, which tables are opened with where none is named."""
    return EngineContext()


def _begin_anew() -> None:
    default_context.cache_clear()
    default_context()


# Before any thread can use it; and a forked process has none of its parent's threads and leases.
default_context()
os.register_at_fork(after_in_child=_begin_anew)

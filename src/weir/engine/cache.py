"""A cache for immutable things, with a budget in bytes.

What is cached never changes under its key: decoded WAL entries, key indexes of generations, bloom
filters, which rows of an older source a newer one supersedes. So an entry is never invalid, only
evicted, least recently used first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar, cast

from cachetools import LRUCache

from weir.engine.metrics import Metrics

__all__ = ["ByteBudgetCache"]

T = TypeVar("T")


class ByteBudgetCache:
    """A thread-safe least-recently-used cache whose entries count by their size in bytes.

    Parameters
    ----------
    budget : int
        Bytes the cached values may take together. A value larger than the budget is not kept.
    metrics : Metrics, optional
        Told of hits, misses and evictions.
    """

    def __init__(self, budget: int, metrics: Metrics | None = None) -> None:
        self._entries = _entries(budget)
        self._lock = threading.Lock()
        self._metrics = metrics
        if metrics is not None:
            metrics.cache_bytes.observe(lambda: self.nbytes)

    @property
    def budget(self) -> int:
        """Bytes that the cached values may take together."""
        return int(self._entries.maxsize)

    @property
    def nbytes(self) -> int:
        """Bytes the cached values take together."""
        return int(self._entries.currsize)

    def get(self, key: Hashable) -> Any | None:
        """Return the value under ``key``, or None."""
        with self._lock:
            pair = self._entries.get(key)
        if self._metrics is not None:
            (self._metrics.cache_misses if pair is None else self._metrics.cache_hits).add()
        return None if pair is None else pair[0]

    def put(self, key: Hashable, value: object, nbytes: int) -> None:
        """Keep ``value``, which takes ``nbytes``, under ``key``."""
        # A floor per entry bounds how many tiny values the bookkeeping has to carry.
        size = max(nbytes, 256)
        with self._lock:
            if size <= self._entries.maxsize:
                before = len(self._entries) + (key not in self._entries)
                try:
                    self._entries[key] = (value, size)
                except BaseException:
                    # Interrupted between values and sizes, which from then on would not agree.
                    self._entries = _entries(int(self._entries.maxsize))
                    raise
                if self._metrics is not None and (evicted := before - len(self._entries)):
                    self._metrics.cache_evictions.add(evicted)

    def get_or_load(self, key: Hashable, load: Callable[[], T], size: Callable[[T], int]) -> T:
        """Return the value under ``key``, loading and keeping it if it is absent.

        Two threads that miss at once may both load; they load the same immutable thing.
        """
        found = self.get(key)
        if found is not None:
            return cast("T", found)
        value = load()
        self.put(key, value, size(value))
        return value

    def discard(self, keys: Iterable[Hashable]) -> None:
        """Drop what is under ``keys``; those that are absent are passed over."""
        with self._lock:
            for key in keys:
                self._entries.pop(key, None)

    def clear(self) -> None:
        """Drop every entry."""
        with self._lock:
            self._entries.clear()


def _entries(budget: int) -> LRUCache[Hashable, tuple[Any, int]]:
    return LRUCache(budget, getsizeof=lambda pair: pair[1])

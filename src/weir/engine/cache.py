"""A cache for immutable things, with a budget in bytes.

Cached values never change under their key: decoded WAL entries, key indexes of generations, bloom filters,
which rows of an older source a newer one supersedes. So an entry is never invalid, only evicted, least
recently used first. Entries of something temporary, such as a table version or an index segment, are evicted
with its :class:`Lifetime`, and not only when the budget is spent.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar, cast
from weakref import WeakValueDictionary

from weir.engine.metrics import Metrics

__all__ = ["ByteBudgetCache", "Lifetime"]

T = TypeVar("T")


class Lifetime:
    """The lifetime of entries: they leave the cache once it is no longer referenced.

    Made by :meth:`ByteBudgetCache.lifetime`, and held by whatever the entries are read for.

    Parameters
    ----------
    ended : deque of set
        Where the keys go in the end.
    """

    __slots__ = ("__weakref__", "_ended", "keys")

    def __init__(self, ended: deque[set[Hashable]]) -> None:
        self._ended = ended
        self.keys: set[Hashable] = set()

    def __del__(self) -> None:
        # Called at any point of any thread, which may hold the lock of the cache: the next entry drops them.
        self._ended.append(self.keys)


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
        self._entries = _Entries(budget)
        self._lifetimes: WeakValueDictionary[Hashable, Lifetime] = WeakValueDictionary()
        self._ended: deque[set[Hashable]] = deque()
        self._lock = threading.Lock()
        self._metrics = metrics
        if metrics is not None:
            metrics.cache_bytes.observe(lambda: self.nbytes)

    @property
    def budget(self) -> int:
        """Bytes that the cached values may take together."""
        return self._entries.budget

    @property
    def nbytes(self) -> int:
        """Bytes the cached values take together."""
        with self._lock:
            self._drop_ended()
            return self._entries.nbytes

    def lifetime(self, name: Hashable) -> Lifetime:
        """Return the lifetime of a name: the same one as long as it is referenced."""
        with self._lock:
            found = self._lifetimes.get(name)
            if found is None:
                found = self._lifetimes[name] = Lifetime(self._ended)
            return found

    def get(self, key: Hashable) -> Any | None:
        """Return the value under ``key``, or None."""
        with self._lock:
            pair = self._entries.used(key)
        if self._metrics is not None:
            (self._metrics.cache_misses if pair is None else self._metrics.cache_hits).add()
        return None if pair is None else pair[0]

    def put(self, key: Hashable, value: object, nbytes: int, lifetime: Lifetime | None = None) -> None:
        """Keep ``value``, which takes ``nbytes``, under ``key``, until it is evicted or its lifetime ends."""
        # A floor per entry bounds how many tiny values the bookkeeping has to carry.
        size = max(nbytes, 256)
        with self._lock:
            self._drop_ended()
            if size <= self._entries.budget:
                try:
                    keys = None if lifetime is None else lifetime.keys
                    evicted = self._entries.keep(key, (value, size), keys)
                except BaseException:
                    # Interrupted between values and sizes, which from then on would not agree.
                    self._entries = _Entries(self._entries.budget)
                    raise
                if self._metrics is not None and evicted:
                    self._metrics.cache_evictions.add(evicted)

    def get_or_load(
        self,
        key: Hashable,
        load: Callable[[], T],
        size: Callable[[T], int],
        lifetime: Lifetime | None = None,
    ) -> T:
        """Return the value under ``key``, loading and keeping it if it is absent.

        Two threads that miss at once may both load; they load the same immutable thing.
        """
        found = self.get(key)
        if found is not None:
            return cast("T", found)
        value = load()
        self.put(key, value, size(value), lifetime)
        return value

    def held(self) -> list[Any]:
        """Return the keys of all entries."""
        with self._lock:
            self._drop_ended()
            return list(self._entries)

    def discard(self, keys: Iterable[Hashable]) -> None:
        """Drop the entries of ``keys``; absent ones are ignored."""
        with self._lock:
            for key in keys:
                self._entries.leave(key)

    def clear(self) -> None:
        """Drop every entry."""
        with self._lock:
            for key in list(self._entries):
                self._entries.leave(key)

    def _drop_ended(self) -> None:
        while self._ended:
            for key in list(self._ended.popleft()):
                self._entries.leave(key)


class _Entries(OrderedDict[Hashable, tuple[Any, int]]):
    """Values with their sizes, least recently used first, each in the keys of its lifetime while it is here.

    Every read of a table asks for several of them, so what is asked for takes as few steps as can be.
    """

    def __init__(self, budget: int) -> None:
        super().__init__()
        self.budget = budget
        self.nbytes = 0
        # The keys and not the lifetime itself, which its own entries would keep alive.
        self._keys: dict[Hashable, set[Hashable]] = {}

    def used(self, key: Hashable) -> tuple[Any, int] | None:
        """Return the value of a key with its size, which is the most recently used from then on."""
        pair = self.get(key)
        if pair is not None:
            self.move_to_end(key)
        return pair

    def keep(self, key: Hashable, pair: tuple[Any, int], keys: set[Hashable] | None) -> int:
        """Keep a value, whose lifetime has some keys; return how many others had to leave for it."""
        self.leave(key)
        self[key] = pair
        self.nbytes += pair[1]
        if keys is not None:
            self._keys[key] = keys
            keys.add(key)
        left = 0
        while self.nbytes > self.budget:
            self.leave(next(iter(self)))
            left += 1
        return left

    def leave(self, key: Hashable) -> None:
        """Drop a value; an absent one is ignored."""
        pair = self.pop(key, None)
        if pair is not None:
            self.nbytes -= pair[1]
        keys = self._keys.pop(key, None)
        if keys is not None:
            keys.discard(key)

"""Counting the operations on a store."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable
from typing import TypeVar, TypeVarTuple

from weir.storage.interface import ObjectStore
from weir.storage.metered import MeteredStore

__all__ = ["CountingStore"]

Asked = TypeVarTuple("Asked")
Result = TypeVar("Result")


class CountingStore(MeteredStore):
    """A store that counts the operations asked of another, by name, failed ones too.

    On an object store each is a round trip (a listing one per 1,000 objects). Counts are taken before the
    operation starts, are safe to read concurrently, and restart at zero when the store is unpickled.

    Parameters
    ----------
    store : ObjectStore
        The store that does the work.

    Examples
    --------
    >>> from weir.storage.open import open_store
    >>> store = CountingStore(open_store("memory://counted"))
    >>> store.put("a", b"1")
    >>> store.head("a").size, store.head("b")
    (1, None)
    >>> store.counts
    Counter({'head': 2, 'put': 1})
    >>> store.reset()
    >>> store.counts.total()
    0
    """

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store, store.engine)
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[object, ...]:
        """Wrap the same store again, with zero counts."""
        return (CountingStore, (self._store,))

    def __repr__(self) -> str:
        """Say which store is counted."""
        return f"CountingStore({self._store!r})"

    @property
    def counts(self) -> Counter[str]:
        """How often each operation was asked for since the last reset; a copy."""
        with self._lock:
            return Counter(self._counts)

    def reset(self) -> None:
        """Start counting at zero."""
        with self._lock:
            self._counts.clear()

    @property
    def sharing_key(self) -> Hashable:
        """The store itself: operations on others are not counted here."""
        return self

    def _measured(self, operation: str, ask: Callable[[*Asked], Result], *asked: *Asked) -> Result:
        with self._lock:
            self._counts[operation] += 1
        return ask(*asked)

"""How many operations something asks of a store."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from weir.engine.context import EngineContext
from weir.storage.interface import Bytes, ObjectMeta, ObjectStore

__all__ = ["CountingStore"]


class CountingStore(ObjectStore):
    """A store that counts the operations asked of another, by name, failed ones too.

    On an object store each is a round trip (a listing one per 1,000 objects). Counts are taken
    before the operation starts, are safe to read while others go on, and start at zero again where
    the store is unpickled.

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
        self._store = store
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[object, ...]:
        """Wrap the same store anew, with no counts."""
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

    def _count(self, operation: str) -> None:
        with self._lock:
            self._counts[operation] += 1

    @property
    def uri(self) -> str:
        """Location of the root, as Lance spells it."""
        return self._store.uri

    @property
    def storage_options(self) -> Mapping[str, str]:
        """The storage options the store was opened with."""
        return self._store.storage_options

    @property
    def endpoint(self) -> str:
        """That of the store."""
        return self._store.endpoint

    @property
    def is_local(self) -> bool:
        """Whether the root is a directory of this machine."""
        return self._store.is_local

    @property
    def engine(self) -> EngineContext:
        """What is shared with other tables."""
        return self._store.engine

    def get(self, path: str) -> Bytes:
        """Return the whole object."""
        self._count("get")
        return self._store.get(path)

    def get_range(self, path: str, start: int, length: int) -> Bytes:
        """Return ``length`` bytes from ``start``; fewer, or none, at the end of the object."""
        self._count("get_range")
        return self._store.get_range(path, start, length)

    def head(self, path: str) -> ObjectMeta | None:
        """Return what is known of the object, or None if there is none."""
        self._count("head")
        return self._store.head(path)

    def list(self, prefix: str) -> Sequence[ObjectMeta]:
        """Return every object below the directory ``prefix``, at any depth, in path order."""
        self._count("list")
        return self._store.list(prefix)

    def list_directories(self, prefix: str) -> Sequence[str]:
        """Return the names (not paths) directly below the directory ``prefix`` that hold objects."""
        self._count("list_directories")
        return self._store.list_directories(prefix)

    def put(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
        """Write or replace the object atomically."""
        self._count("put")
        self._store.put(path, data)

    def put_if_absent(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
        """Write the object atomically if there is none."""
        self._count("put_if_absent")
        self._store.put_if_absent(path, data)

    def compare_and_swap(self, path: str, data: Bytes | Sequence[Bytes], expected: str) -> str:
        """Replace the object if its version is still ``expected``; return the new version."""
        self._count("compare_and_swap")
        return self._store.compare_and_swap(path, data, expected)

    def copy(self, source: str, target: str) -> None:
        """Write an object that has the content of another."""
        self._count("copy")
        self._store.copy(source, target)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects; those that do not exist are passed over."""
        self._count("delete")
        self._store.delete(paths)

    def sync(self, prefix: str) -> None:
        """Make everything below ``prefix`` durable that another library has written there."""
        self._count("sync")
        self._store.sync(prefix)

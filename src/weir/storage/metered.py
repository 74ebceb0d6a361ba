"""A store that belongs to an engine: counts its operations and provides the engine's parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar, TypeVarTuple

from weir.engine import tracing
from weir.engine.context import EngineContext
from weir.errors import ObjectExistsError, ObjectNotFoundError, PreconditionError
from weir.storage.interface import Bytes, ObjectMeta, ObjectStore

__all__ = ["MeteredStore"]

Asked = TypeVarTuple("Asked")
Result = TypeVar("Result")

_ANSWERS = (ObjectExistsError, ObjectNotFoundError, PreconditionError)
"""Errors that are regular answers of a store."""


class MeteredStore(ObjectStore):
    """A store whose operations are measured.

    Parameters
    ----------
    store : ObjectStore
        The store that does the work.
    engine : EngineContext
        The shared engine. In another process it is the default engine there.

    Examples
    --------
    >>> from weir.engine.context import EngineContext
    >>> from weir.storage.open import open_store
    >>> store = MeteredStore(open_store("memory://metered"), EngineContext())
    >>> store.put("a", b"1")
    >>> store.engine.metrics.storage_requests.value("put")
    1.0
    """

    def __init__(self, store: ObjectStore, engine: EngineContext) -> None:
        self._store = store
        self._engine = engine
        self._requests = engine.metrics.storage_requests
        self._errors = engine.metrics.storage_errors
        self._seconds = engine.metrics.storage_seconds

    def __reduce__(self) -> tuple[object, ...]:
        """Wrap the same store again, with the engine of the unpickling process."""
        return (MeteredStore, (self._store, self._engine))

    def __repr__(self) -> str:
        """Show the store."""
        return repr(self._store)

    def _measured(self, operation: str, ask: Callable[[*Asked], Result], *asked: *Asked) -> Result:
        self._requests.add(1.0, operation)
        began = time.perf_counter()
        try:
            begin = tracing.begin
            if begin is None:
                return ask(*asked)
            with begin(f"storage.{operation}"):
                return ask(*asked)
        except _ANSWERS:
            raise
        except BaseException:
            self._errors.add(1.0, operation)
            raise
        finally:
            self._seconds.record(time.perf_counter() - began, operation)

    @property
    def uri(self) -> str:
        """Location of the root, as Lance spells it."""
        return self._store.uri

    @property
    def storage_options(self) -> Mapping[str, str]:
        """The storage options the store was opened with."""
        return self._store.storage_options

    @property
    def sharing_key(self) -> Hashable:
        """That of the store."""
        return self._store.sharing_key

    @property
    def endpoint(self) -> str:
        """That of the store."""
        return self._store.endpoint

    @property
    def is_local(self) -> bool:
        """Whether the root is a directory of this machine."""
        return self._store.is_local

    @property
    def waits_for_disk(self) -> bool:
        """That of the store."""
        return self._store.waits_for_disk

    @property
    def engine(self) -> EngineContext:
        """The shared engine."""
        return self._engine

    def location_of(self, path: str) -> str:
        """Return that of the store."""
        return self._store.location_of(path)

    def get(self, path: str) -> Bytes:
        """Return the whole object."""
        return self._measured("get", self._store.get, path)

    def get_range(self, path: str, start: int, length: int) -> Bytes:
        """Return ``length`` bytes from ``start``; fewer, or none, at the end of the object."""
        return self._measured("get_range", self._store.get_range, path, start, length)

    def head(self, path: str) -> ObjectMeta | None:
        """Return the metadata of the object, or None if it does not exist."""
        return self._measured("head", self._store.head, path)

    def stamp(self, *paths: str) -> Hashable | None:
        """Return that of the store: it takes no request."""
        return self._store.stamp(*paths)

    def list(self, prefix: str) -> Sequence[ObjectMeta]:
        """Return every object below the directory ``prefix``, at any depth, in path order."""
        return self._measured("list", self._store.list, prefix)

    def list_first(self, prefix: str) -> Sequence[ObjectMeta]:
        """Return the objects below a directory that are first in path order: as many as come at once."""
        return self._measured("list", self._store.list_first, prefix)

    def list_directories(self, prefix: str) -> Sequence[str]:
        """Return the names (not paths) directly below the directory ``prefix`` that hold objects."""
        return self._measured("list_directories", self._store.list_directories, prefix)

    def put(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
        """Write or replace the object atomically."""
        self._measured("put", self._store.put, path, data)

    def put_if_absent(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
        """Write the object atomically if it does not exist."""
        self._measured("put_if_absent", self._store.put_if_absent, path, data)

    def compare_and_swap(self, path: str, data: Bytes | Sequence[Bytes], expected: str) -> str:
        """Replace the object if its version is still ``expected``; return the new version."""
        return self._measured("compare_and_swap", self._store.compare_and_swap, path, data, expected)

    def copy(self, source: str, target: str) -> None:
        """Write an object that has the content of another."""
        self._measured("copy", self._store.copy, source, target)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects; missing ones are ignored."""
        self._measured("delete", self._store.delete, paths)

    def sync(self, prefix: str) -> None:
        """Make everything below ``prefix`` durable that another library has written there."""
        self._measured("sync", self._store.sync, prefix)

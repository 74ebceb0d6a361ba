"""Storage of the catalog: one object, replaced by compare-and-swap."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from weir.errors import (
    ConflictError,
    CorruptionError,
    ObjectExistsError,
    ObjectNotFoundError,
    PreconditionError,
    TableExistsError,
    TableNotFoundError,
)
from weir.events.catalog import Catalog
from weir.events.event_table import EVENTS
from weir.storage.interface import ObjectStore

__all__ = ["CATALOG", "StoredCatalog"]

CATALOG = "catalog.json"
_ATTEMPTS = 50


class StoredCatalog:
    """The stored catalog of an event store. Thread-safe.

    Parameters
    ----------
    store : ObjectStore
        The store of the event store.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._last: tuple[bytes, Catalog] | None = None

    @property
    def where(self) -> str:
        """The location of the object."""
        return f"{self._store.uri}/{CATALOG}"

    def create(self, catalog: Catalog) -> None:
        """Store the first catalog.

        Raises
        ------
        TableExistsError
            If there is one.
        """
        mark = secrets.token_hex(8)
        try:
            self._store.put_if_absent(CATALOG, catalog.encode(mark))
        except ObjectExistsError:
            if self._read()[1] != mark:
                raise TableExistsError("there is an event store already", where=self._store.uri) from None

    def read(self) -> Catalog:
        """Return the current catalog.

        Raises
        ------
        TableNotFoundError
            If there is no event store.
        """
        return self._read()[0]

    def refuse_if_there(self) -> None:
        """Raise an error if a catalog exists.

        Raises
        ------
        TableExistsError
            So.
        StorageError
            The server has an object of every name, so it is not an object store.
        """
        if self._store.head(CATALOG) is not None:
            self._store.list_directories("")
            raise TableExistsError("there is an event store already", where=self._store.uri)

    def refuse_if_lost(self) -> None:
        """Raise an error if there are remains of events, which means that a catalog existed and is missing.

        Raises
        ------
        CorruptionError
            So.
        """
        if self._store.list_directories(f"{EVENTS}/_mem_wal"):
            raise CorruptionError(
                "the catalog of the event store is gone, but events are there",
                where=self.where,
                hint=f"Restore the file from a backup, or delete {EVENTS} beside it, "
                "which gives up the events",
            )

    def _read(self) -> tuple[Catalog, str]:
        try:
            data = bytes(self._store.get(CATALOG))
        except ObjectNotFoundError:
            self.refuse_if_lost()
            raise TableNotFoundError(
                "there is no event store", where=self._store.uri, hint="Create one with weir.events.create()"
            ) from None
        last = self._last
        if last is not None and last[0] == data:
            return last[1], ""
        try:
            with self._store.naming(CATALOG) as where:
                catalog, mark = Catalog.decode(data, where)
        except CorruptionError:
            # The page of a portal is no catalog either: of that, a listing tells by an error of its own.
            self._store.list_directories("")
            raise
        self._last = data, catalog
        return catalog, mark

    def change(self, changed: Callable[[Catalog], Catalog]) -> Catalog:
        """Replace the catalog by the result of a function, which may be called more than once.

        Returns
        -------
        Catalog
            The new one. If the function returns its argument, nothing is written.

        Raises
        ------
        ConflictError
            If other processes won every attempt.
        """
        for _ in range(_ATTEMPTS):
            meta = self._store.head(CATALOG)
            present = self.read()
            wanted = changed(present)
            if wanted is present:
                return present
            assert meta is not None
            mark = secrets.token_hex(8)
            try:
                self._store.compare_and_swap(CATALOG, wanted.encode(mark), meta.version)
            except PreconditionError:
                # Somebody else was faster; or it was this very swap, and its answer was lost.
                if self._read()[1] != mark:
                    continue
            return wanted
        raise ConflictError("the catalog was changed by others during every attempt", where=self.where)

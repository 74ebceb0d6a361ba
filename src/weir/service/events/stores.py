"""The event stores below a root, opened once by a process."""

from __future__ import annotations

import threading
from contextlib import suppress

import weir.events
from weir.errors import TableExistsError, TableNotFoundError
from weir.service.options import ServiceOptions
from weir.service.refusals import Refusal
from weir.storage.interface import ObjectStore

__all__ = ["EventStores"]

_DIRECTORY = "events"
_SECONDS_FOR_A_TURN = 5.0


class EventStores:
    """Event stores by name: at ``events/{name}`` below the root, or at ``{name}`` if created there.

    Parameters
    ----------
    root : str
        The root.
    store : ObjectStore
        The same root, for listings.
    options : ServiceOptions
        The options of the service.
    address : str, optional
        The address of the service, included in the error that other writers get for its shards.
    """

    def __init__(
        self, root: str, store: ObjectStore, options: ServiceOptions, address: str | None = None
    ) -> None:
        self._root = root.rstrip("/")
        self._store = store
        self._options = options
        self._address = address
        self._open: dict[str, weir.events.EventStore] = {}
        self._writers: dict[str, weir.events.EventWriter] = {}
        self._lock = threading.Lock()

    def get(self, name: str, *, create: bool = False) -> weir.events.EventStore:
        """Return an event store.

        Parameters
        ----------
        name : str
            Its name, checked.
        create : bool
            Whether to create it if it does not exist. Default False.

        Raises
        ------
        Refusal
            404 if it does not exist.
        """
        known = self._open.get(name)
        if known is not None:  # whoever looks for another one may take long
            return known
        with self._lock:
            known = self._open.get(name)
            if known is None:
                known = self._open[name] = self._opened(name) or self._created(name, create=create)
            return known

    def writer(self, name: str) -> weir.events.EventWriter:
        """Return a writer of an event store, which takes turns with those of other processes."""
        store = self.get(name)
        with self._lock:
            known = self._writers.get(name)
            if known is None:
                known = self._writers[name] = store.writer(
                    hold=False, lease_wait=_SECONDS_FOR_A_TURN, address=self._address
                )
            return known

    def _opened(self, name: str) -> weir.events.EventStore | None:
        for place in (f"{self._root}/{_DIRECTORY}/{name}", f"{self._root}/{name}"):
            with suppress(TableNotFoundError):
                return weir.events.open(
                    place, fsync=self._options.fsync, storage_options=self._options.storage_options
                )
        return None

    def _created(self, name: str, *, create: bool) -> weir.events.EventStore:
        if not create:
            raise Refusal(404, "event_store_not_found", f"there is no event store {name!r}")
        place = f"{self._root}/{_DIRECTORY}/{name}"
        try:
            return weir.events.create(
                place, fsync=self._options.fsync, storage_options=self._options.storage_options
            )
        except TableExistsError:  # another process was faster
            return weir.events.open(
                place, fsync=self._options.fsync, storage_options=self._options.storage_options
            )

    def names(self) -> list[str]:
        """Return the names of the event stores below ``events``, in order."""
        return sorted(self._store.list_directories(_DIRECTORY))

    def close(self) -> None:
        """Close every store."""
        with self._lock:
            for one in self._open.values():
                one.close()
            self._open.clear()
            self._writers.clear()

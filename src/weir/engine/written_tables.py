"""The tables that this process writes, announced to the upkeep, so that idle tables cost nothing."""

from __future__ import annotations

import threading
from typing import Generic, Protocol, TypeVar

__all__ = ["WrittenTables"]

Store = TypeVar("Store")
Listened = TypeVar("Listened", contravariant=True)


class Listener(Protocol[Listened]):
    """A listener that maintains tables."""

    def opened(self, store: Listened) -> None:
        """Take note that the table in a store is going to be written here."""
        ...

    def changed(self, store: Listened) -> None:
        """Take note that there is something new to merge."""
        ...


class WrittenTables(Generic[Store]):
    """Tells a listener which tables are written. Safe to use from many threads."""

    def __init__(self) -> None:
        self._listener: Listener[Store] | None = None
        self._lock = threading.Lock()

    def listen(self, listener: Listener[Store] | None) -> None:
        """Notify ``listener`` from now on; None for no one."""
        with self._lock:
            self._listener = listener

    def opened(self, store: Store) -> None:
        """Say that a writer was opened."""
        listener = self._listener
        if listener is not None:
            listener.opened(store)

    def changed(self, store: Store) -> None:
        """Say that a generation was flushed."""
        listener = self._listener
        if listener is not None:
            listener.changed(store)

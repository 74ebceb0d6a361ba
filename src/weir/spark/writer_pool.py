"""A pool of writers by the name of their user, which keeps the most recently used."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from weir.errors import WeirError

__all__ = ["MOST_KEPT", "WriterPool", "close_quietly"]

MOST_KEPT = 8


class Closes(Protocol):
    """Something that can be closed."""

    def close(self) -> None:
        """Release everything."""
        ...


Kept = TypeVar("Kept", bound=Closes)


class WriterPool(Generic[Kept]):
    """Keeps writers that are not in use. Thread-safe.

    Parameters
    ----------
    most : int
        How many to keep: the most recently used ones.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[str, Kept] = {}
        self._lock = threading.Lock()

    def take(self, name: str, serves: Callable[[Kept], bool]) -> Kept | None:
        """Take the writer of a name out of the pool, or return None if there is no suitable one.

        Parameters
        ----------
        name : str
            The name.
        serves : callable
            Whether a writer is suitable; one that is not is closed.
        """
        with self._lock:
            kept = self._kept.pop(name, None)
        if kept is None or serves(kept):
            return kept
        close_quietly(kept)
        return None

    def keep(self, name: str, kept: Kept) -> None:
        """Keep the writer of a name, and close the excess ones."""
        with self._lock:
            self._kept[name] = kept
            surplus = [self._kept.pop(name) for name in list(self._kept)[: -self._most]]
        for one in surplus:
            close_quietly(one)


def close_quietly(writer: Closes) -> None:
    """Close a writer and ignore failures: its rows are durable, and other processes flush what is left."""
    with suppress(WeirError):
        writer.close()

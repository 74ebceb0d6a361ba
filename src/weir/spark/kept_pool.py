"""A pool of what is kept open between the micro-batches of streaming queries: the most recently used ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from weir.errors import WeirError

__all__ = ["MOST_KEPT", "KeptPool", "close_quietly"]

MOST_KEPT = 8


class Closes(Protocol):
    """Something that can be closed."""

    def close(self) -> None:
        """Release everything."""
        ...


Kept = TypeVar("Kept")


class KeptPool(Generic[Kept]):
    """Keeps tables or writers by name. Thread-safe.

    Parameters
    ----------
    most : int
        How many to keep: the most recently used ones.
    close : callable, optional
        What becomes of one that is kept no more. Default: nothing.
    """

    def __init__(self, most: int, close: Callable[[Kept], object] = lambda _: None) -> None:
        self._most = most
        self._close = close
        self._kept: dict[Hashable, Kept] = {}
        self._lock = threading.Lock()

    def take(self, name: Hashable, serves: Callable[[Kept], bool]) -> Kept | None:
        """Take what has a name out of the pool, or return None if there is nothing suitable.

        Parameters
        ----------
        name : hashable
            The name.
        serves : callable
            Whether it is suitable; what is not is closed.
        """
        with self._lock:
            kept = self._kept.pop(name, None)
        if kept is None or serves(kept):
            return kept
        self._close(kept)
        return None

    def keep(self, name: Hashable, kept: Kept) -> None:
        """Keep something under a name, and close the excess ones."""
        with self._lock:
            self._kept[name] = kept
            surplus = [self._kept.pop(name) for name in list(self._kept)[: -self._most]]
        for one in surplus:
            self._close(one)

    def forget(self, kept: Kept) -> None:
        """Keep something no more, without closing it."""
        with self._lock:
            self._kept = {name: one for name, one in self._kept.items() if one is not kept}


def close_quietly(writer: Closes) -> None:
    """Close a writer and ignore failures: its rows are durable, and other processes flush what is left."""
    with suppress(WeirError):
        writer.close()

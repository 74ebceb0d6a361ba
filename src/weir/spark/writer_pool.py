"""Writers by the name of who uses them: those used last are kept, whatever they write to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from weir.errors import WeirError

__all__ = ["MOST_KEPT", "WriterPool", "close_quietly"]

MOST_KEPT = 8


class Closes(Protocol):
    """What can be closed."""

    def close(self) -> None:
        """Let go of everything."""
        ...


Kept = TypeVar("Kept", bound=Closes)


class WriterPool(Generic[Kept]):
    """Keeps writers that nobody uses at the moment. Safe to use from many threads.

    Parameters
    ----------
    most : int
        How many are kept: those that were used last.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[str, Kept] = {}
        self._lock = threading.Lock()

    def take(self, name: str, serves: Callable[[Kept], bool]) -> Kept | None:
        """Take the writer of a name out, or return None if there is none that serves.

        Parameters
        ----------
        name : str
            The name.
        serves : callable
            Whether a writer does what it is wanted for; one that does not is closed.
        """
        with self._lock:
            kept = self._kept.pop(name, None)
        if kept is None or serves(kept):
            return kept
        close_quietly(kept)
        return None

    def keep(self, name: str, kept: Kept) -> None:
        """Keep the writer of a name, and close those that are too many by now."""
        with self._lock:
            self._kept[name] = kept
            surplus = [self._kept.pop(name) for name in list(self._kept)[: -self._most]]
        for one in surplus:
            close_quietly(one)


def close_quietly(writer: Closes) -> None:
    """Close a writer, and say nothing of what fails: all of it is durable, and others flush what is left."""
    with suppress(WeirError):
        writer.close()

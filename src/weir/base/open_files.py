"""Files that the library reads repeatedly, kept open within limits of number and time.

What is kept in memory of a file says little of what it costs to have it open: a process that merges all day
would have the files of every index open that it has ever read, until it may open no more. Most of them are of
indexes that others have replaced since: nobody will read them again.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from lance.file import LanceFileReader

__all__ = ["OpenFile"]

_MOST = 256
"""Of a process. Those that were read last stay open."""

_IDLE_SECONDS = 15.0
"""After which a local file that nobody has read is closed, once any other is read."""

_lock = Lock()
_recent: OrderedDict[OpenFile, float] = OrderedDict()
"""When each was read last, oldest first."""


class OpenFile:
    """A file to be read by many threads in turn, since the library's reader refuses two at once.

    Parameters
    ----------
    open : callable
        Opens it again, should it have been closed meanwhile.
    reader : LanceFileReader
        Of the file. Nobody else's.
    is_local : bool
        Whether it costs a descriptor, and no round trips to open it again.
    """

    def __init__(
        self, open: Callable[[], LanceFileReader], reader: LanceFileReader, *, is_local: bool
    ) -> None:
        self._open = open
        self._is_local = is_local
        self._reader: LanceFileReader | None = reader
        self._turn = Lock()
        self._is_used()

    @contextmanager
    def reader(self) -> Iterator[LanceFileReader]:
        """Have the file to oneself."""
        with self._turn:
            reader = self._reader
            if reader is None:
                reader = self._reader = self._open()
            self._is_used()
            yield reader

    def _is_used(self) -> None:
        now = time.monotonic()
        with _lock:
            _recent[self] = now
            _recent.move_to_end(self)
            while len(_recent) > 1:
                oldest, read_at = next(iter(_recent.items()))
                is_idle = oldest._is_local and now - read_at > _IDLE_SECONDS
                if len(_recent) <= _MOST and not is_idle:
                    break
                del _recent[oldest]
                # Closed once nobody reads it any more.
                oldest._reader = None

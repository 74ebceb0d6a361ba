"""Files that the library reads repeatedly, kept open within limits of number and time.

The memory used for a file says little about the cost of keeping it open: a process that merges all day would
keep the files of every index it has ever read open, until it reaches the limit of open files. Most of them
belong to replaced indexes and will never be read again.
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
"""Most open files of a process. The most recently read ones stay open."""

_IDLE_SECONDS = 15.0
"""Idle time after which a local file is closed when any other is read."""

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
        The reader of the file, not shared.
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
                # Closed once nothing reads it any more.
                oldest._reader = None

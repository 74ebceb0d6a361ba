"""Throttling of background work in favour of reads and writes.

Flushes and merges work in pieces. After each piece they pause as long as the piece took, if a read is running
or a write has just begun: so they use about half of the time, and leave gaps for foreground work. They do not
pause if there are no reads or writes, nor if writes would soon have to wait for them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TypeVar

__all__ = ["Throttle"]

T = TypeVar("T")

_RECENT_SECONDS = 0.1
_MAX_REST_SECONDS = 0.25


class Throttle:
    """Tracks running reads and writes, and makes background work pause meanwhile.

    Attributes
    ----------
    last_foreground : float
        When the last write began, or the last read ended, by :func:`time.monotonic`; set by who begins a
        write. How long that takes does not count: it may be waiting for us.
    """

    def __init__(self) -> None:
        self.last_foreground = float("-inf")
        self._going_on = 0
        self._counting = threading.Lock()
        self.rested = 0.0

    def reading(self) -> AbstractContextManager[None]:
        """Register a running read, for the length of a ``with`` block."""
        return self

    def __enter__(self) -> None:
        with self._counting:
            self._going_on += 1

    def __exit__(self, *raised: object) -> None:
        self.last_foreground = time.monotonic()
        with self._counting:
            self._going_on -= 1

    def rest(self, worked: float, urgency: float = 0.0) -> None:
        """Rest after a piece of background work.

        Parameters
        ----------
        worked : float
            Seconds that the piece took.
        urgency : float
            From 0, which rests as long as it worked, to 1, which does not rest. No rest is longer
            than a quarter of a second.
        """
        if not self._going_on and not 0 <= time.monotonic() - self.last_foreground <= _RECENT_SECONDS:
            return
        seconds = min(worked, _MAX_REST_SECONDS) * (1.0 - urgency)
        if seconds > 0:
            self.rested += seconds
            time.sleep(seconds)

    def paced(self, pieces: Iterable[T], urgency: Callable[[], float] = lambda: 0.0) -> Iterator[T]:
        """Yield ``pieces``, resting after each for the work that it caused where it was taken."""
        before = time.monotonic()
        for piece in pieces:
            yield piece
            now = time.monotonic()
            self.rest(now - before, urgency())
            before = time.monotonic()

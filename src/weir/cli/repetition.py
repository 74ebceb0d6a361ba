"""Doing something again and again until somebody asks to stop."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType

__all__ = ["repeat"]

_STOPS = (signal.SIGINT, signal.SIGTERM)


def repeat(action: Callable[[], None], every: timedelta) -> None:
    """Do something, wait, and do it again, until SIGINT or SIGTERM arrives.

    What has begun is finished: a signal ends the waiting, or makes the round that is under way the last
    one. A second signal does what it did before.

    Parameters
    ----------
    action : callable
        What to do; an exception ends the repetition.
    every : timedelta
        Time from the beginning of one round to that of the next, which begins at once if a round took
        longer.
    """
    with _stop_when_asked() as stop:
        while not stop.is_set():
            began = time.monotonic()
            action()
            stop.wait(max(began + every.total_seconds() - time.monotonic(), 0.0))


@contextmanager
def _stop_when_asked() -> Iterator[threading.Event]:
    """Give an event that the first signal sets; only the main thread of a process gets signals."""
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in _STOPS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def ask(_number: int, _frame: FrameType | None) -> None:
        stop.set()
        restore()

    for number in _STOPS:
        signal.signal(number, ask)
    try:
        yield stop
    finally:
        restore()

"""No seed hangs in silence: one that takes far too long is ended, and says where it stood."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["SEED_SECONDS", "TookTooLongError", "time_limit"]

SEED_SECONDS = 120.0
"""Real seconds after which a seed counts as hanging: a thousand times what one takes."""
_AGAIN_SECONDS = 1.0


class TookTooLongError(BaseException):
    """Raised wherever the code is when the time is over. Nothing in Weir catches it."""


@contextmanager
def time_limit(seconds: float, on_timeout: Callable[[], object]) -> Iterator[None]:
    """End what runs in a ``with`` block after some real seconds.

    Does nothing outside the main thread, where no signal arrives.

    Parameters
    ----------
    seconds : float
        How long it may take.
    on_timeout : callable
        Called before the error is raised in whatever runs; and again every second, with another error,
        for as long as the block goes on.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        on_timeout()
        raise TookTooLongError(f"this went on for more than {seconds:g} seconds of real time")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)

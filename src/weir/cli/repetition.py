"""Repeating an action until a stop is requested."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

from weir.engine.stop_signals import stop_when_asked

__all__ = ["repeat"]


def repeat(action: Callable[[], None], every: timedelta) -> None:
    """Do something, wait, and do it again, until SIGINT or SIGTERM arrives.

    A running round is finished: a signal ends the waiting, or makes the running round the last one. A second
    signal has its previous effect.

    Parameters
    ----------
    action : callable
        What to do; an exception ends the repetition.
    every : timedelta
        Time from the beginning of one round to that of the next, which begins at once if a round took
        longer.
    """
    with stop_when_asked() as stop:
        while not stop.is_set():
            began = time.monotonic()
            action()
            stop.wait(max(began + every.total_seconds() - time.monotonic(), 0.0))

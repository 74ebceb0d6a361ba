"""Turning the signals that ask a process to end into a wish it can follow when it suits."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["STOP_SIGNALS", "stop_when_asked"]

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_when_asked(on_second: Callable[[int], None] | None = None) -> Iterator[threading.Event]:
    """Yield an event that the first SIGINT or SIGTERM sets.

    Only the main thread of a process gets signals, and only it may call this.

    Parameters
    ----------
    on_second : callable, optional
        Called with the number of the second signal. Default: it does what it did before.
    """
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def second(number: int, _frame: FrameType | None) -> None:
        assert on_second is not None
        on_second(number)

    def first(_number: int, _frame: FrameType | None) -> None:
        stop.set()
        if on_second is None:
            restore()
            return
        for number in STOP_SIGNALS:
            signal.signal(number, second)

    for number in STOP_SIGNALS:
        signal.signal(number, first)
    try:
        yield stop
    finally:
        restore()

"""Termination signals, turned into a flag to check when convenient, or into a call."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["STOP_SIGNALS", "handle_stop_signals", "stop_when_asked"]

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_Handler = Callable[[int, FrameType | None], object]


@contextmanager
def handle_stop_signals(handle: Callable[[int], None]) -> Iterator[None]:
    """Call a function with the number of every SIGINT and SIGTERM, inside the ``with`` block.

    Only the main thread of a process gets signals, and only it may call this.

    Parameters
    ----------
    handle : callable
        Takes the number of the signal.
    """
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    for number in STOP_SIGNALS:
        signal.signal(number, lambda number, _frame: handle(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stop_when_asked(on_second: Callable[[int], None] | None = None) -> Iterator[threading.Event]:
    """Yield an event that the first SIGINT or SIGTERM sets.

    Only the main thread of a process gets signals, and only it may call this.

    Parameters
    ----------
    on_second : callable, optional
        Called with the number of the second signal. Default: the signal has its previous effect.
    """
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}

    def first(_number: int) -> None:
        stop.set()
        for number, handler in before.items():
            signal.signal(number, handler if second is None else second)

    second: _Handler | None = None if on_second is None else (lambda number, _frame: on_second(number))
    with handle_stop_signals(first):
        yield stop

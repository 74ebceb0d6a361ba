"""Saves shown materialisations in the background, so that the caller does not wait for the disk."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from weir.engine.logs import get_logger

__all__ = ["Saving"]

_log = get_logger(__name__)


class Saving:
    """Running saves, at most one for each location, on their own thread. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._under_way: dict[str, Future[None]] = {}

    def begin(self, place: str, save: Callable[[], object]) -> bool:
        """Save something and return True, unless a save of its location runs: a later one saves it too."""
        with self._lock:
            known = self._under_way.get(place)
            if known is not None and not known.done():
                return False
            if self._threads is None:
                self._threads = ThreadPoolExecutor(1, thread_name_prefix="weir-events-save")
            self._under_way[place] = self._threads.submit(_saved, place, save)
            return True

    def settle(self) -> None:
        """Wait for running saves."""
        with self._lock:
            waiting = dict(self._under_way)
        for one in waiting.values():
            one.result()
        with self._lock:
            for name, one in waiting.items():
                if self._under_way.get(name) is one:
                    del self._under_way[name]

    def close(self) -> None:
        """Wait for running saves, and end the thread."""
        self.settle()
        with self._lock:
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown()


def _saved(place: str, save: Callable[[], object]) -> None:
    try:
        save()
    except Exception as error:
        # The answer was given; the next one is made of what is stored, and of all that has come since.
        _log.warning("events.save_failed", place=place, error=str(error) or type(error).__name__)

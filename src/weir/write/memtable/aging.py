"""Flushing MemTables by age, so that slowly arriving rows also reach a generation and a merge.

One thread for all writers of an engine, which exists while something waits. It starts flushes and does not
wait for them.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
import weakref
from typing import Protocol

from weir.engine.logs import get_logger

__all__ = ["FlushByAge", "WithAges"]

_log = get_logger(__name__)

_LOOK_AGAIN_SECONDS = 1.0


class WithAges(Protocol):
    """A shard's writer, as its old rows are seen from here."""

    def flush_aged(self, position: int) -> bool:
        """Have what stands up to a position flushed; return whether it is, or need not be any more."""
        ...


class FlushByAge:
    """Has MemTables flushed some time after their first row. Safe to use from many threads.

    A writer that is dropped without being closed is forgotten: its rows are in the log.
    """

    def __init__(self) -> None:
        # Entered by itself: see GroupCommit.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._due: list[tuple[float, int, weakref.ref[WithAges], int]] = []
        self._numbers = itertools.count()
        self._is_running = False

    def watch(self, writer: WithAges, position: int, seconds: float) -> None:
        """Have what stands up to a position of its log flushed when ``seconds`` have passed."""
        with self._lock:
            self._add(time.monotonic() + seconds, weakref.ref(writer), position)

    def _add(self, due: float, writer: weakref.ref[WithAges], position: int) -> None:
        heapq.heappush(self._due, (due, next(self._numbers), writer, position))
        if not self._is_running:
            self._is_running = True
            threading.Thread(target=self._run, name="weir-age", daemon=True).start()
        elif self._due[0][0] == due:
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._due:
                    self._is_running = False
                    return
                remaining = self._due[0][0] - time.monotonic()
                if remaining > 0:
                    self._changed.wait(remaining)
                    continue
                _, _, reference, position = heapq.heappop(self._due)
            writer = reference()
            if writer is None:
                continue
            try:
                is_done = writer.flush_aged(position)
            except Exception as error:
                # Whatever it was, the next attempt may go better.
                _log.warning("shard.aged_flush_failed", position=position, error=str(error))
                is_done = False
            del writer
            if not is_done:
                with self._lock:
                    self._add(time.monotonic() + _LOOK_AGAIN_SECONDS, reference, position)

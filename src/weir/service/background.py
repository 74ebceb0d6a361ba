"""Background work that continues after its request was answered."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from weir.service.refusals import Refusal

__all__ = ["Background"]

_THREADS = 2
_MOST_WAITING = 1_000

_Task = tuple[Callable[..., object], tuple[Any, ...]]


class Background:
    """Runs background work with bounded concurrency. Thread-safe."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="weir-later")
        self._waiting: set[_Task] = set()
        self._unfinished: set[Future[None]] = set()
        self._lock = threading.Lock()

    def begin(self, work: Callable[..., object], *arguments: Any) -> None:
        """Run something soon, and only once however often it is requested before it begins.

        Raises
        ------
        Refusal
            429 if too much is waiting already.
        """
        task = (work, arguments)
        with self._lock:
            if task in self._waiting:
                return
            if len(self._waiting) >= _MOST_WAITING:
                raise Refusal(429, "too_many_requests", "too much work is waiting already", 1)
            self._waiting.add(task)
            done = self._pool.submit(self._run, task)
            self._unfinished.add(done)
        done.add_done_callback(self._unfinished.discard)

    def _run(self, task: _Task) -> None:
        with self._lock:
            self._waiting.discard(task)
        work, arguments = task
        work(*arguments)

    def close(self, seconds: float) -> bool:
        """Start nothing more; return whether running work ended within the given seconds."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        return not wait(self._unfinished.copy(), None if seconds == math.inf else seconds).not_done

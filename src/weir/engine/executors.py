"""The threads of an engine: pools that all its tables share, each for one kind of work.

Work of one kind may wait for work of another, and never for its own: so no pool can wait for itself,
however many tables share it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor

__all__ = ["Executors", "SharedThreads"]

_MAX_SCANS = 8
_MAX_FLUSHES = 2
_MAX_WRITES = 12
_MAX_REQUESTS = 24


class SharedThreads(Executor):
    """Threads that many use and nobody shuts down but their engine. They start when they are needed.

    A forked process has none of its parent's threads: it starts its own.

    Parameters
    ----------
    name : str
        What the threads are called.
    threads : int
        How many there are at most.
    """

    def __init__(self, name: str, threads: int) -> None:
        self.name = name
        self.threads = threads
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._process_id = os.getpid()

    @property
    def queued(self) -> int:
        """How many tasks wait for a thread."""
        pool = self._pool
        return 0 if pool is None else pool._work_queue.qsize()

    def submit(self, function, /, *arguments, **named):  # type: ignore[no-untyped-def]
        """Run a function on a thread. Raises RuntimeError when the process is ending."""
        return self._started().submit(function, *arguments, **named)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads; they start again if they are needed."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None and self._process_id == os.getpid():
            pool.shutdown(wait, cancel_futures=cancel_futures)

    def _started(self) -> ThreadPoolExecutor:
        pool = self._pool
        if pool is not None and self._process_id == os.getpid():
            return pool
        with self._lock:
            if self._pool is None or self._process_id != os.getpid():
                self._pool = ThreadPoolExecutor(self.threads, self.name)
                self._process_id = os.getpid()
            return self._pool


class Executors:
    """The threads of one engine.

    Parameters
    ----------
    threads : int, optional
        How many there are at most for each kind of work. Default: as many as pay, 46 in all.
    make : callable
        Makes the threads of a kind; takes a name and how many.

    Attributes
    ----------
    requests : Executor
        Ask the store for several things at once.
    scans : Executor
        Read the sources of scans and look-ups.
    writes : Executor
        Wait for the storage of one shard beside others.
    flushes : Executor
        Flush MemTables.
    """

    def __init__(
        self, threads: int | None = None, make: Callable[[str, int], Executor] = SharedThreads
    ) -> None:
        def count(most: int) -> int:
            return most if threads is None else min(most, threads)

        self.requests = make("weir-ask", count(_MAX_REQUESTS))
        self.scans = make("weir-scan", count(_MAX_SCANS))
        self.writes = make("weir-write", count(_MAX_WRITES))
        self.flushes = make("weir-flush", count(min(_MAX_FLUSHES, os.cpu_count() or 1)))

    @property
    def all(self) -> tuple[Executor, ...]:
        """Every pool."""
        return (self.requests, self.scans, self.writes, self.flushes)

    def shutdown(self) -> None:
        """End all threads, when what they do is done."""
        for one in self.all:
            one.shutdown()

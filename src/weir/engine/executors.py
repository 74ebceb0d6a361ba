"""The threads of an engine: one pool for each kind of work, shared by all its tables.

Work of one kind may wait for work of another, and never for its own: so no pool can wait for itself,
however many tables share it.
"""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

from weir.engine import tracing
from weir.engine.cancellation import is_cancellable

__all__ = ["EndpointExecutors", "Executors", "SharedThreads"]

_MAX_SCANS = 8
_MAX_FLUSHES = 2
_MAX_WRITES = 12
_MAX_REQUESTS = 24


class SharedThreads(Executor):
    """Shared threads that only their engine shuts down. They start when needed.

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
    def started(self) -> int:
        """How many threads there are."""
        pool = self._pool
        return 0 if pool is None or self._process_id != os.getpid() else len(pool._threads)

    @property
    def queued(self) -> int:
        """How many tasks wait for a thread."""
        pool = self._pool
        return 0 if pool is None else pool._work_queue.qsize()

    def submit(self, function, /, *arguments, **named):  # type: ignore[no-untyped-def]
        """Run a function on a thread. Raises RuntimeError when the process is ending."""
        return self._started().submit(_carried(function), *arguments, **named)

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


class EndpointExecutors:
    """The threads that wait for one endpoint of storage, or for the disks of this machine.

    Parameters
    ----------
    make : callable
        Makes the threads of a kind; takes a name and how many pay.

    Attributes
    ----------
    scans : Executor
        Read the sources of scans and look-ups.
    writes : Executor
        Wait for the storage of one shard beside others.
    flushes : Executor
        Flush MemTables.
    """

    def __init__(self, make: Callable[[str, int], Executor]) -> None:
        self.scans = make("weir-scan", _MAX_SCANS)
        self.writes = make("weir-write", _MAX_WRITES)
        self.flushes = make("weir-flush", min(_MAX_FLUSHES, os.cpu_count() or 1))

    @property
    def all(self) -> tuple[Executor, ...]:
        """Every pool."""
        return (self.scans, self.writes, self.flushes)


class Executors:
    """The threads of one engine.

    Each endpoint has its own threads: while one does not answer, tables elsewhere are read, written and
    flushed as before.

    Parameters
    ----------
    threads : int, optional
        How many there are at most for each kind of work. Default: as many as pay, 46 in all where all
        tables are at one endpoint.
    make : callable
        Makes the threads of a kind; takes a name and how many.

    Attributes
    ----------
    requests : Executor
        For concurrent requests to the store. Callers do not wait for a free thread.
    """

    def __init__(
        self, threads: int | None = None, make: Callable[[str, int], Executor] = SharedThreads
    ) -> None:
        self._threads = threads
        self._make_one = make
        self._lock = threading.Lock()
        self._endpoints: dict[str, EndpointExecutors] = {}
        self.requests = self._make("weir-ask", _MAX_REQUESTS)

    def _make(self, name: str, pays: int) -> Executor:
        return self._make_one(name, pays if self._threads is None else min(pays, self._threads))

    def at(self, endpoint: str) -> EndpointExecutors:
        """Return the threads that wait for an endpoint, which stores name."""
        found = self._endpoints.get(endpoint)
        if found is None:
            with self._lock:
                found = self._endpoints.setdefault(endpoint, EndpointExecutors(self._make))
        return found

    @property
    def all(self) -> tuple[Executor, ...]:
        """Every pool there is by now."""
        return (self.requests, *(one for at in list(self._endpoints.values()) for one in at.all))

    def queued(self) -> dict[str, int]:
        """Return how many tasks wait for a thread, by the name of the threads."""
        waiting = dict.fromkeys(("weir-ask", "weir-scan", "weir-write", "weir-flush"), 0)
        for one in self.all:
            if isinstance(one, SharedThreads):
                waiting[one.name] += one.queued
        return waiting

    def shutdown(self) -> None:
        """End all threads once their work is done."""
        for one in self.all:
            one.shutdown()


def _carried(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs inside the span of the caller, on whichever thread, and ends with it."""
    if tracing.begin is None and not is_cancellable():
        return function
    context = contextvars.copy_context()
    return lambda *arguments, **named: context.run(function, *arguments, **named)

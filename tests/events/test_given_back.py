"""Memory that the threads of an engine have freed is returned from each of them."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Executor

import pytest

from weir.engine.context import EngineContext
from weir.engine.executors import SharedThreads
from weir.events import given_back


def test_every_thread_that_has_started_gives_back_and_no_other_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Another engine of the process has threads of the same names.
    engine, other = EngineContext(), EngineContext()
    executors = engine.executors
    pools = executors.at("here").scans, executors.requests
    # One thread that did the work of two would wait here for ever.
    gave = threading.Barrier(6)
    try:
        _start(other.executors.requests, 4)
        for number, pool in enumerate(pools, 2):
            _start(pool, number)
        monkeypatch.setattr(given_back, "_give_back", lambda: gave.wait(60))
        given_back.give_back_memory(engine)
        gave.wait(60)
        started = {pool: pool.started for pool in executors.all if isinstance(pool, SharedThreads)}
        assert started == {**dict.fromkeys(executors.all, 0), pools[0]: 2, pools[1]: 3}
    finally:
        gave.abort()
        executors.shutdown()
        other.executors.shutdown()


def _start(pool: Executor, threads: int) -> None:
    assert isinstance(pool, SharedThreads)
    together = threading.Barrier(threads + 1)
    for _ in range(threads):
        pool.submit(together.wait)  # type: ignore[no-untyped-call]
    together.wait(60)
    assert pool._pool is not None
    # A pool that has no idle thread yet would start another one.
    until = time.monotonic() + 60
    while pool._pool._idle_semaphore._value < threads and time.monotonic() < until:
        time.sleep(0.001)

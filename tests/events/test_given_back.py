"""Memory that the threads of an engine have freed is returned from each of them."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest

from weir.engine.context import EngineContext
from weir.engine.executors import SharedThreads
from weir.events import given_back


def test_every_thread_that_has_started_gives_back_and_no_other_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = EngineContext()
    executors = engine.executors
    pools = executors.at("here").scans, executors.requests
    for pool in executors.all:
        assert isinstance(pool, SharedThreads)
        # Others in this process have threads of these names too.
        pool.name = f"test-{pool.name}"
    try:
        for number, pool in enumerate(pools, 2):
            together = threading.Barrier(number + 1)
            for _ in range(number):
                pool.submit(together.wait)
            together.wait()
        asked: list[str] = []
        done: Future[None] = Future()

        def give() -> None:
            asked.append(threading.current_thread().name.rsplit("_", 1)[0])
            if len(asked) == 5:
                done.set_result(None)

        monkeypatch.setattr(given_back, "_give_back", give)
        given_back.give_back_memory(engine)
        done.result(timeout=60)
        wanted = ["test-weir-ask"] * 3 + ["test-weir-scan"] * 2
        assert sorted(asked) == wanted
        there = [thread.name.rsplit("_", 1)[0] for thread in threading.enumerate()]
        assert sorted(name for name in there if name.startswith("test-")) == wanted
    finally:
        executors.shutdown()

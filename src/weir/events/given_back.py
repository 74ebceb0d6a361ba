"""Returning freed memory to the system, that of an engine's threads too."""

from __future__ import annotations

import time

import pyarrow as pa

from weir.engine.context import EngineContext
from weir.engine.executors import SharedThreads
from weir.engine.freed_memory import give_back_freed_memory

__all__ = ["give_back_memory"]


def give_back_memory(engine: EngineContext) -> None:
    """Make the allocators return freed memory, and the engine's threads, once they are idle, theirs.

    Arrow's pool keeps what a thread has freed for that thread, and returns it only from there.
    """
    give_back_freed_memory()
    for pool in engine.executors.all:
        if isinstance(pool, SharedThreads):
            for _ in range(pool.started):
                pool.submit(_give_back)  # type: ignore[no-untyped-call]


def _give_back() -> None:
    pa.default_memory_pool().release_unused()
    # Long enough that another thread takes the next of these.
    time.sleep(0.001)

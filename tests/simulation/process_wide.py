"""What Weir keeps once per process: every simulated process has its own.

What is kept at the level of a module, or by an engine, would be carried from one simulated process to
another, and from one seed to the next, so that a seed would no longer say all that happens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tests.simulation.primitives import SimulatedExecutor
from tests.simulation.scheduler import current_scheduler

from weir.engine.context import EngineContext
from weir.engine.executors import Executors
from weir.engine.metrics import Metrics

__all__ = ["OfProcess", "own_engine"]

T = TypeVar("T")
_CACHE_BYTES = 8 * 1024 * 1024
_METRICS = Metrics()
"""Of all processes: nothing that Weir does depends on them, and making some two hundred takes long."""


class OfProcess:
    """Passes on to an object that every simulated process has of its own.

    Parameters
    ----------
    make : callable
        Makes it, when a process first asks for it.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __getattr__(self, name: str) -> Any:
        return getattr(_own(self, self._make), name)


def own_engine() -> EngineContext:
    """Return the engine of the simulated process that runs."""
    return _own(own_engine, _engine)


def _engine() -> EngineContext:
    executors = Executors(make=lambda name, threads: SimulatedExecutor(threads, name))
    return EngineContext(read_cache_bytes=_CACHE_BYTES, executors=executors, metrics=_METRICS)


def _own(key: object, make: Callable[[], T]) -> T:
    task = current_scheduler().task
    assert task is not None
    memory = task.process.memory
    if key not in memory:
        memory[key] = make()
    found: T = memory[key]
    return found

"""Running the tasks of a service: in this process, or with another runner.

Heavy work is planned on one machine into small, picklable, stateless tasks; a runner executes them;
the planner commits or reports once. Nothing here knows what the tasks do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Protocol, TypeVar

__all__ = ["Runner", "ThreadRunner", "in_one_go", "is_distributed"]

Task = TypeVar("Task")
Result = TypeVar("Result")


class Runner(Protocol):
    """Executes independent tasks."""

    def run(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """Yield ``function(task)`` for every task, in any order.

        Both the function and the tasks can be pickled. A task that fails raises here.
        """
        ...


class ThreadRunner:
    """Runs tasks on threads of this process.

    Parameters
    ----------
    threads : int
        How many tasks run at once. Default 2: Lance parallelises inside each task.
    """

    def __init__(self, threads: int = 2) -> None:
        self._threads = threads

    def run(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """Yield ``function(task)`` for every task, as they finish."""
        if len(tasks) < 2:
            yield from (function(task) for task in tasks)
            return
        with ThreadPoolExecutor(self._threads, thread_name_prefix="weir-task") as pool:
            futures = [pool.submit(function, task) for task in tasks]
            try:
                for future in as_completed(futures):
                    yield future.result()
            finally:
                for future in futures:
                    future.cancel()


def is_distributed(runner: Runner) -> bool:
    """Whether a runner uses separate machines, as stated by its attribute ``is_distributed``."""
    return bool(getattr(runner, "is_distributed", False))


def in_one_go(runner: Runner) -> Runner:
    """Return a runner for tasks whose results are all needed before anything else can be done.

    One that divides tasks to have the first answers sooner says in its method ``in_one_go`` what does not.
    """
    made: Runner = getattr(runner, "in_one_go", lambda: runner)()
    return made

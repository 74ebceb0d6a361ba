"""Simulated processes and threads: one runs at a time, and a seed decides which and when.

A task stands for a thread. It is a greenlet, so handing over costs less than a microsecond and nothing
but the scheduler ever decides what runs next. Time is simulated: a task that waits for storage or for
a lock is put aside with the time at which it goes on, and the clock moves from one such time to the
next. Everything random is drawn from one generator, so a seed says all that happens.
"""

from __future__ import annotations

import heapq
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import greenlet

__all__ = ["Process", "Scheduler", "StuckError", "Task", "current_scheduler", "is_simulating"]

_HAND_OVER_SECONDS = 0.001
_current: Scheduler | None = None
_thread: int | None = None


class StuckError(Exception):
    """The simulation does not come to an end."""


class Process:
    """A simulated process: what its tasks hold in memory is gone when it dies.

    Parameters
    ----------
    name : str
        Name in the trace.
    skew : float
        Seconds by which its wall clock differs from the true one.
    machine : int
        The machine it runs on: one uptime for all its processes.
    may_crash : bool
        Whether faults may kill it.
    """

    def __init__(self, name: str, *, skew: float = 0.0, machine: int = 0, may_crash: bool = True) -> None:
        self.name = name
        self.skew = skew
        self.machine = machine
        self.may_crash = may_crash
        self.has_wrong_clock = False
        """Whether faults have set its wall clock wrong by more than anybody allows for."""
        self.may_sleep = False
        """Whether faults may make it stand still for hours."""
        self.longest_sleep = 1e5
        """For how many seconds at most."""
        self.is_released = False
        """Whether it is of the released library, which knows nothing of what Weir adds to manifests."""
        self.alive = True
        self.memory: dict[object, Any] = {}
        """What modules keep once per process; see :mod:`tests.simulation.process_wide`."""
        self.tasks: list[Task] = []
        self.faults = 0
        """Faults that have been injected into its operations."""


class Task:
    """A simulated thread."""

    __slots__ = (
        "done",
        "error",
        "greenlet",
        "name",
        "parked",
        "process",
        "result",
        "ticket",
        "waiters",
    )

    def __init__(self, name: str, process: Process) -> None:
        self.name = name
        self.process = process
        self.greenlet: Any = None
        self.ticket = 0
        self.parked = False
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.waiters: list[Task] = []


class Scheduler:
    """Runs tasks until none is left.

    Parameters
    ----------
    seed : int
        Decides everything.
    max_steps : int
        Hand-overs after which the simulation counts as stuck.
    """

    def __init__(self, seed: int, *, max_steps: int = 200_000) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.steps = 0
        self.task: Task | None = None
        self.failures: list[tuple[Task, BaseException]] = []
        self._max_steps = max_steps
        self._sequence = 0
        self._waiting: list[tuple[float, int, Task, int]] = []
        self._hub: Any = greenlet.getcurrent()
        self._dying: list[Process] = []
        self.stopped = False
        """Whether somebody has ended the simulation."""

    # What tasks call

    def spawn(self, process: Process, name: str, function: Callable[[], Any], *, delay: float = 0.0) -> Task:
        """Start a task in a process."""
        if not process.alive:
            raise greenlet.GreenletExit
        task = Task(f"{process.name}/{name}", process)
        task.greenlet = greenlet.greenlet(lambda: self._run(task, function), parent=self._hub)
        process.tasks.append(task)
        self._push(task, delay)
        return task

    def sleep(self, seconds: float) -> None:
        """Let others run for some simulated time."""
        task = self._own_task()
        at, waiting = self.now + seconds, self._waiting
        # Whoever is the next to run need not hand over to come back.
        if (not waiting or at < waiting[0][0]) and not self._is_interrupted():
            self.now = at
            self.steps += 1
            return
        self._push(task, seconds)
        self._switch(task)

    def hand_over(self) -> None:
        """Let others run for a moment."""
        self.sleep(self.random.random() * _HAND_OVER_SECONDS)

    def park(self, timeout: float | None = None) -> bool:
        """Wait for :meth:`wake`; return whether it came before the timeout."""
        task = self._own_task()
        task.ticket += 1
        ticket = task.ticket
        if timeout is not None:
            self._push(task, timeout)
        task.parked = True
        self._switch(task)
        task.parked = False
        # Whoever wakes a task takes a new ticket, so that the timer of its wait is void.
        return task.ticket != ticket

    def wake(self, task: Task) -> None:
        """Let a task go on, soon, if it is parked."""
        if not task.parked:
            return
        task.parked = False
        task.ticket += 1
        self._push(task, self.random.random() * _HAND_OVER_SECONDS)

    def join(self, *tasks: Task) -> None:
        """Wait for tasks to end."""
        own = self._own_task()
        for task in tasks:
            while not task.done:
                task.waiters.append(own)
                self.park()

    def join_within(self, seconds: float, tasks: Sequence[Task]) -> None:
        """Wait for tasks to end, but not for long."""
        own, end = self._own_task(), self.now + seconds
        for task in tasks:
            while not task.done and self.now < end:
                task.waiters.append(own)
                self.park(end - self.now)

    def crash(self, process: Process) -> None:
        """Kill a process: none of its tasks runs on. A task may kill its own."""
        if not process.alive:
            return
        process.alive = False
        self._dying.append(process)
        if self.task is not None and self.task.process is process:
            raise greenlet.GreenletExit

    def stop(self) -> None:
        """End the simulation, whoever is still at work."""
        self.stopped = True

    def jump(self, seconds: float) -> None:
        """Move the clock on. What was under way takes that much longer."""
        self.now += seconds

    # What the simulation calls

    def run(self) -> None:
        """Run until no task can go on."""
        with self._current():
            while not self.stopped and (task := self._next()) is not None:
                if self.steps > self._max_steps:
                    raise StuckError(f"no end after {self.steps} steps; running: {task.name}")
                self._resume(task, task.greenlet.switch)
                while self._dying:
                    self._bury(self._dying.pop())

    def close(self, processes: list[Process]) -> None:
        """End every task that is left."""
        with self._current():
            for process in processes:
                process.alive = False
                self._bury(process)
        # What refers to each other would be left to the collector of cycles.
        for process in processes:
            process.tasks.clear()
            process.memory.clear()
        self._waiting.clear()

    @contextmanager
    def _current(self) -> Iterator[None]:
        """Be what :func:`current_scheduler` returns."""
        global _current, _thread
        before, _current = _current, self
        _thread = threading.get_ident()
        try:
            yield
        finally:
            _current = before
            self.task = None

    def _run(self, task: Task, function: Callable[[], Any]) -> None:
        try:
            task.result = function()
        except greenlet.GreenletExit:
            pass
        except BaseException as error:
            task.error = error
            self.failures.append((task, error))
        finally:
            self._end(task)

    def _end(self, task: Task) -> None:
        task.done = True
        waiters, task.waiters = task.waiters, []
        for waiter in waiters:
            if waiter.process.alive:
                self.wake(waiter)

    def _bury(self, process: Process) -> None:
        for task in process.tasks:
            if not task.done:
                # Its code unwinds; a dead process changes nothing any more.
                self._resume(task, partial(task.greenlet.throw, greenlet.GreenletExit))
                self._end(task)

    def _resume(self, task: Task, resume: Callable[[], Any]) -> None:
        self.task = task
        resume()
        self.task = None

    def _next(self) -> Task | None:
        """Take the task that goes on next, and move the clock to when it does."""
        waiting = self._waiting
        while waiting:
            at, _, task, ticket = heapq.heappop(waiting)
            if task.done or task.ticket != ticket:
                continue
            if at > self.now:
                self.now = at
            self.steps += 1
            return task
        return None

    def _is_interrupted(self) -> bool:
        """Whether the hub has something to do before anybody goes on."""
        return bool(self._dying) or self.stopped or self.steps >= self._max_steps

    def _push(self, task: Task, seconds: float) -> None:
        self._sequence += 1
        heapq.heappush(self._waiting, (self.now + seconds, self._sequence, task, task.ticket))

    def _own_task(self) -> Task:
        if self.task is None:
            raise RuntimeError("only a task can wait")
        if not self.task.process.alive:
            raise greenlet.GreenletExit
        return self.task

    def _switch(self, task: Task) -> None:
        # From one task to the next, by way of the hub only if that has something to do in between.
        following = None if self._is_interrupted() else self._next()
        if following is None:
            self._hub.switch()
        elif following is not task:
            self.task = following
            following.greenlet.switch()
        if not task.process.alive:
            raise greenlet.GreenletExit


def current_scheduler() -> Scheduler:
    """Return the scheduler that runs."""
    if _current is None:
        raise RuntimeError("no simulation is running")
    return _current


def is_simulating() -> bool:
    """Whether a simulation runs on the thread that asks."""
    return _current is not None and threading.get_ident() == _thread

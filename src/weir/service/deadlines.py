"""The deadline of requests: all have the same time, so one timer does for all of them.

A timer and a cancel scope for each request would take the event loop as long as parsing a small one does.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from types import TracebackType

import anyio

__all__ = ["Deadline", "Deadlines", "shielded"]

_RUNNING: dict[asyncio.Task[object], Deadline] = {}


class Deadlines:
    """The deadlines of the requests of a process. Used only from the event loop.

    Parameters
    ----------
    seconds : float
        The time that each request has.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        # In the order in which they are due.
        self._waiting: dict[Deadline, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def one(self) -> Deadline:
        """Return the deadline of a request that begins now, to be entered by its task."""
        return Deadline(self)

    def _begin(self, deadline: Deadline) -> None:
        loop = asyncio.get_running_loop()
        deadline.due = loop.time() + self._seconds
        self._waiting[deadline] = None
        if self._timer is None or self._loop is not loop:
            self._timer, self._loop = loop.call_at(deadline.due, self._look), loop

    def _end(self, deadline: Deadline) -> None:
        del self._waiting[deadline]  # the timer stays, for those that come

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        for deadline in self._waiting:
            if deadline.is_over:
                continue
            if deadline.due > loop.time():
                self._timer = loop.call_at(deadline.due, self._look)
                return
            deadline._pass()


class Deadline:
    """The time in which a request is answered; then what it waits for is cancelled.

    Parameters
    ----------
    among : Deadlines
        Where it is waited for.

    Attributes
    ----------
    is_over : bool
        Whether the time has passed.
    cancelled : bool
        Once it is left: whether the request was cancelled for it.
    """

    due = 0.0
    is_over = False
    cancelled = False
    _shields = 0
    _cancels = False

    def __init__(self, among: Deadlines) -> None:
        self._among = among

    def __enter__(self) -> Deadline:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._requests = task.cancelling()
        self._among._begin(self)
        _RUNNING[task] = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        del _RUNNING[self._task]
        self._among._end(self)
        if self._cancels and self._task.uncancel() <= self._requests and kind is asyncio.CancelledError:
            self.cancelled = True
        return self.cancelled

    def _pass(self) -> None:
        """End what the request waits for, unless that goes on to its end."""
        self.is_over = True
        self._cancel()

    def _cancel(self) -> None:
        if not self._shields and not self._cancels and _RUNNING.get(self._task) is self:
            self._cancels = True
            self._task.cancel()

    def shielded(self) -> _Shield:
        """Return a context in which the request is not cancelled; if it was due, it is right after."""
        return _Shield(self)


class _Shield:
    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline

    def __enter__(self) -> None:
        self._deadline._shields += 1

    def __exit__(self, *_: object) -> None:
        deadline = self._deadline
        deadline._shields -= 1
        if deadline.is_over and not deadline._shields:
            # If it waits for something else: what it has by then is still the answer.
            asyncio.get_running_loop().call_soon(deadline._cancel)


def shielded() -> AbstractContextManager[object]:
    """Return a context that the deadline of the present task does not end, nor any scope around it."""
    task = asyncio.current_task()
    deadline = None if task is None else _RUNNING.get(task)
    return anyio.CancelScope(shield=True) if deadline is None else deadline.shielded()

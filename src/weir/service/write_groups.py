"""Grouping of small writes: those that wait for the same namespace share a thread and a log entry.

Switching to a thread and back costs more than a small write itself, and so does a log entry. If many clients
write one document each, the waiting ones are written together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from weir.namespaces import Namespace, Write, Written
from weir.service.deadlines import shielded
from weir.service.idempotency import KeyedWrite

__all__ = ["WriteGroups"]

_QUIET_STEPS = 3
_MOST_STEPS = 32
_SECONDS_OF_COMPANY = 0.05

_Write = Write | KeyedWrite
_Outcomes = Sequence[Written | Exception]
_Waiting = list[tuple[_Write, "asyncio.Future[Written]"]]


class WriteGroups:
    """The waiting writes, by namespace. Used only from the event loop.

    Parameters
    ----------
    write_many : callable
        Makes several writes to a namespace, in order, on a thread.
    """

    def __init__(self, write_many: Callable[[Namespace, Sequence[_Write]], Awaitable[_Outcomes]]) -> None:
        self._write_many = write_many
        self._waiting: dict[Namespace, _Waiting] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # The namespace that several clients wrote to a moment ago, and until when they are waited for.
        self._company: tuple[Namespace | None, float] = None, 0.0

    async def write(self, namespace: Namespace, write: _Write) -> Written:
        """Make a write to its end, even if the request is abandoned; then its result is dropped.

        Raises
        ------
        Refusal, WeirError
            As :meth:`weir.namespaces.Namespace.write`.
        """
        done = asyncio.get_running_loop().create_future()
        waiting = self._waiting.get(namespace)
        if waiting is None:
            self._waiting[namespace] = [(write, done)]
            task = asyncio.create_task(self._drain(namespace))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            waiting.append((write, done))
        with shielded():
            written: Written = await done
        return written

    async def _drain(self, namespace: Namespace) -> None:
        """Process waiting writes, and those that arrive meanwhile, until there are none."""
        clock = asyncio.get_running_loop().time
        last, until = self._company
        has_company = last is namespace and clock() < until
        while self._waiting[namespace]:
            group: _Waiting = []
            outcomes: _Outcomes
            try:
                if has_company:
                    await self._gathered(namespace)
                group, self._waiting[namespace] = self._waiting[namespace], []
                outcomes = await self._write_many(namespace, [write for write, _ in group])
            except asyncio.CancelledError:
                # The process is ending, and the requests with it.
                for _, done in (*group, *self._waiting.pop(namespace)):
                    done.cancel()
                raise
            except Exception as error:
                outcomes = [error] * len(group)
            has_company = len(group) > 1 or bool(self._waiting[namespace])
            if has_company:
                self._company = namespace, clock() + _SECONDS_OF_COMPANY
            for (_, done), outcome in zip(group, outcomes, strict=True):
                if done.done():
                    continue
                if isinstance(outcome, Written):
                    done.set_result(outcome)
                else:
                    done.set_exception(outcome)
        del self._waiting[namespace]

    async def _gathered(self, namespace: Namespace) -> None:
        """Wait for the writes whose requests have arrived, and were not read yet: they come with the group.

        A request needs two steps of the event loop from its arrival to here. A group costs about as much as
        ten of its writes do, so it is worth a little time to have fewer.
        """
        before, quiet = len(self._waiting[namespace]), 0
        for _ in range(_MOST_STEPS):
            await asyncio.sleep(0)
            now = len(self._waiting[namespace])
            quiet = 0 if now > before else quiet + 1
            if quiet == _QUIET_STEPS:
                return
            before = now

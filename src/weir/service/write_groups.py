"""Grouping of small writes: those that wait for the same namespace share a thread and a log entry.

Switching to a thread and back costs more than a small write itself, and so does a log entry. If many clients
write one document each, the waiting ones are written together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import anyio

from weir.namespaces import Namespace, Write, Written
from weir.service.idempotency import KeyedWrite

__all__ = ["WriteGroups"]

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
        with anyio.CancelScope(shield=True):
            written: Written = await done
        return written

    async def _drain(self, namespace: Namespace) -> None:
        """Process waiting writes, and those that arrive meanwhile, until there are none."""
        while group := self._waiting[namespace]:
            self._waiting[namespace] = []
            outcomes: _Outcomes
            try:
                outcomes = await self._write_many(namespace, [write for write, _ in group])
            except asyncio.CancelledError:
                # The process is ending, and the requests with it.
                for _, done in (*group, *self._waiting.pop(namespace)):
                    done.cancel()
                raise
            except Exception as error:
                outcomes = [error] * len(group)
            for (_, done), outcome in zip(group, outcomes, strict=True):
                if done.done():
                    continue
                if isinstance(outcome, Written):
                    done.set_result(outcome)
                else:
                    done.set_exception(outcome)
        del self._waiting[namespace]

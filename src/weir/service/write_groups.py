"""Small writes that come while another is done: the next ones of a namespace share a thread and a log entry.

To go to a thread and back costs more than a small write itself, and so does the log entry. Of many clients
that write a document each, those that wait are taken together.
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
    """The writes that wait, by namespace. Used from the event loop alone.

    Parameters
    ----------
    write_many : callable
        Does several writes to a namespace, in their order, on a thread.
    """

    def __init__(self, write_many: Callable[[Namespace, Sequence[_Write]], Awaitable[_Outcomes]]) -> None:
        self._write_many = write_many
        self._waiting: dict[Namespace, _Waiting] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def write(self, namespace: Namespace, write: _Write) -> Written:
        """Do a write to its end, also if the request is given up: then nobody is told what came of it.

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
        """Do what waits, and what comes meanwhile, until nothing does."""
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

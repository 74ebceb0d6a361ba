"""The threads on which requests wait: for storage, and for other processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

import anyio

from weir.engine.cancellation import Cancellation

__all__ = ["RequestThreads"]

Result = TypeVar("Result")


class RequestThreads:
    """So many threads, whatever clients ask for: what finds none free waits for one.

    Parameters
    ----------
    name : str
        What the threads are called.
    most : int
        How many there are at most.
    """

    def __init__(self, name: str, most: int) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix=name)

    async def run(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Run something to its end, also if the request is given up: then nobody is told what came of it."""
        with anyio.CancelScope(shield=True):
            done = await self._submitted(work, *arguments)
        return done  # noqa: RET504  # as its type says, the scope might swallow an error

    async def read(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Run a read; if the request is given up, it ends at its next step, or does not begin."""
        cancellation = Cancellation()

        def cancellable() -> Result:
            with cancellation.over():
                return work(*arguments)

        try:
            return await self._submitted(cancellable)
        except asyncio.CancelledError:
            cancellation.cancel()
            raise

    async def _submitted(self, work: Callable[..., Result], *arguments: Any) -> Result:
        # Spans go where the context goes.
        context = copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._pool, context.run, work, *arguments)

    def close(self) -> None:
        """Wait for what is under way."""
        self._pool.shutdown(wait=True, cancel_futures=True)

"""The threads on which requests wait for storage and for other processes."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import Any, TypeVar

from weir.engine.cancellation import Cancellation
from weir.service.deadlines import shielded

__all__ = ["RequestThreads"]

Result = TypeVar("Result")


class RequestThreads:
    """A bounded pool of threads; work waits for a free one.

    Parameters
    ----------
    name : str
        The name of the threads.
    most : int
        The maximum number of threads.
    """

    def __init__(self, name: str, most: int) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix=name)
        self._unfinished: set[Future[Any]] = set()

    async def run(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Run something to its end, even if the request is abandoned; then its result is dropped."""
        with shielded():
            done = await self._submitted(work, *arguments)
        return done  # noqa: RET504  # as its type says, the scope might swallow an error

    async def read(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Run a read; if the request is abandoned, it ends at its next step, or does not begin."""
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
        done = self._pool.submit(copy_context().run, work, *arguments)
        self._unfinished.add(done)
        done.add_done_callback(self._unfinished.discard)
        return await asyncio.wrap_future(done)

    @property
    def is_busy(self) -> bool:
        """Whether something is running or waiting."""
        return bool(self._unfinished)

    def close(self, seconds: float = math.inf) -> bool:
        """Start nothing more; return whether running work ended within the given seconds."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        return not wait(self._unfinished.copy(), None if seconds == math.inf else seconds).not_done

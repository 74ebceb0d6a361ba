"""What keeps one client from taking everything: requests at once in a namespace, and rates of keys."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from weir.service.refusals import Refusal

__all__ = ["Concurrency", "Rates"]

_MOST_KEYS = 10_000


class Concurrency:
    """How many requests of one namespace are answered at once.

    Parameters
    ----------
    most : int
        So many are taken; one more is refused.
    at_once : int
        Of these so many are worked at; the others wait, so that some threads are left to other namespaces.
    """

    def __init__(self, most: int, at_once: int) -> None:
        self._most = most
        self._at_once = at_once
        self._running: dict[str, int] = {}
        self._turns: dict[str, anyio.CapacityLimiter] = {}
        self._lock = threading.Lock()

    @asynccontextmanager
    async def one(self, namespace: str) -> AsyncIterator[None]:
        """Count a request while it is answered, once it is its turn.

        Raises
        ------
        Refusal
            429 if there are as many as may be.
        """
        with self._lock:
            running = self._running.get(namespace, 0)
            if running >= self._most:
                raise Refusal(429, "concurrency", "the namespace has too many requests at once", 1)
            self._running[namespace] = running + 1
            turns = self._turns.get(namespace)
            if turns is None:
                turns = self._turns[namespace] = anyio.CapacityLimiter(self._at_once)
        try:
            async with _turn(turns):
                yield
        finally:
            with self._lock:
                left = self._running[namespace] - 1
                if left:
                    self._running[namespace] = left
                else:
                    del self._running[namespace], self._turns[namespace]


@asynccontextmanager
async def _turn(turns: anyio.CapacityLimiter) -> AsyncIterator[None]:
    request = object()
    try:
        # Where nobody waits, to let others go first would take time for nothing.
        turns.acquire_on_behalf_of_nowait(request)
    except anyio.WouldBlock:
        await turns.acquire_on_behalf_of(request)
    try:
        yield
    finally:
        turns.release_on_behalf_of(request)


class Rates:
    """How many requests a key makes in a second: a bucket for each, which fills evenly.

    Parameters
    ----------
    per_second : float
        So many, and as many at once; 0 for any number.
    """

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._left: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def take(self, key_id: str) -> None:
        """Count a request.

        Raises
        ------
        Refusal
            429 if the key has made as many as it may.
        """
        if not self._per_second:
            return
        most = max(self._per_second, 1.0)
        now = time.monotonic()
        with self._lock:
            if len(self._left) >= _MOST_KEYS:
                self._left.clear()
            left, seen = self._left.get(key_id, (most, now))
            left = min(most, left + (now - seen) * self._per_second)
            if left < 1.0:
                self._left[key_id] = (left, now)
                wait = max(1, int((1.0 - left) / self._per_second + 0.999))
                raise Refusal(429, "too_many_requests", "the key makes more requests than it may", wait)
            self._left[key_id] = (left - 1.0, now)

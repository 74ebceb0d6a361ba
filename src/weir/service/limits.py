"""Limits per client: concurrent requests of one namespace, and request rates of keys."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import AbstractAsyncContextManager

from weir.service.refusals import Refusal

__all__ = ["MOST_ANSWER_BYTES", "Concurrency", "Rates"]

MOST_ANSWER_BYTES = 128 * 1024 * 1024
"""Most bytes of documents in a response; as JSON they take several times as many."""
_MOST_KEYS = 10_000


class Concurrency:
    """Limits concurrent requests of a namespace, an event store, or a key that uses neither.

    Parameters
    ----------
    most : int
        Most requests accepted; further ones are refused.
    at_once : int
        Most of them processed at once; the others wait, which leaves threads for other groups.
    """

    def __init__(self, most: int, at_once: int) -> None:
        self._most = most
        self._at_once = at_once
        self._running: dict[str, int] = {}
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._lock = threading.Lock()

    def one(self, place: str) -> AbstractAsyncContextManager[None]:
        """Wait for a turn, and count a request in its group while it is answered.

        Raises
        ------
        Refusal
            429 if the limit is reached.
        """
        return _Turn(self, place)

    def _begin(self, place: str) -> asyncio.Semaphore:
        with self._lock:
            running = self._running.get(place, 0)
            if running >= self._most:
                raise Refusal(429, "concurrency", "there are too many requests of this kind at once", 1)
            self._running[place] = running + 1
            turns = self._turns.get(place)
            if turns is None:
                turns = self._turns[place] = asyncio.Semaphore(self._at_once)
            return turns

    def _end(self, place: str) -> None:
        with self._lock:
            left = self._running[place] - 1
            if left:
                self._running[place] = left
            else:
                del self._running[place], self._turns[place]


class _Turn:
    """The time in which a request is answered. A generator would take several times as long to begin."""

    def __init__(self, concurrency: Concurrency, place: str) -> None:
        self._concurrency = concurrency
        self._place = place

    async def __aenter__(self) -> None:
        self._turns = turns = self._concurrency._begin(self._place)
        try:
            await turns.acquire()  # where nobody waits, nobody else goes first
        except BaseException:
            self._concurrency._end(self._place)
            raise

    async def __aexit__(self, *_: object) -> None:
        self._turns.release()
        self._concurrency._end(self._place)


class Rates:
    """Limits the request rate of each key with a token bucket.

    Parameters
    ----------
    per_second : float
        The rate and the burst size; 0 for no limit.
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
            429 if the key exceeds its rate.
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

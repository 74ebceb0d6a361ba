"""Concurrent storage requests: parallel where each is a round trip, sequential on local disk."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from weir.engine.context import EngineContext

__all__ = ["Wave", "ask_both", "concurrent_map", "processors"]

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_MOST_AT_ONCE = 24

_WAVE_SECONDS = 1.0
"""Concurrent requests answered within this time are equivalent to sequential ones."""


def concurrent_map(
    ask: Callable[[Item], Answer],
    items: Sequence[Item],
    *,
    is_local: bool,
    engine: EngineContext,
    at_once: int = _MOST_AT_ONCE,
) -> Iterator[Answer]:
    """Yield the result of every item, in order.

    When it ends, however it does, no question is being asked any more. The caller's thread asks too: so a
    question that asks several things itself never waits for a thread, and nothing stands still where all
    threads are taken.

    Parameters
    ----------
    ask : callable
        Takes an item and makes a round trip, or a few.
    items : sequence
        What to ask for.
    is_local : bool
        Whether the store is local: then an answer takes less time than handing a question to a thread, and
        each item is asked for when its answer is.
    engine : EngineContext
        Whose threads help.
    at_once : int, optional
        How many items at most. For work of the processor, more than it has cores take longer.

    Examples
    --------
    >>> from weir.engine.context import default_context
    >>> list(concurrent_map(len, ["a", "bc"], is_local=False, engine=default_context()))
    [1, 2]
    """
    if is_local or len(items) < 2:
        yield from map(ask, items)
        return
    asked = _Asked(ask, items)
    try:
        for _ in range(min(len(items), at_once, _MOST_AT_ONCE) - 1):
            try:
                engine.executors.requests.submit(asked.work)
            except RuntimeError:
                break  # the process is ending, and starts no threads any more
        asked.work()
        for at in range(len(items)):
            yield asked.answer(at)
    finally:
        asked.end()


def ask_both(
    first: Callable[[], Item], second: Callable[[], Answer], *, is_local: bool, engine: EngineContext
) -> tuple[Item, Answer]:
    """Return the answers to two questions of different kinds, asked as :func:`concurrent_map` asks.

    Examples
    --------
    >>> from weir.engine.context import default_context
    >>> ask_both(lambda: 1, lambda: "a", is_local=False, engine=default_context())
    (1, 'a')
    """
    if is_local:
        return first(), second()
    asked: tuple[Callable[[], Item | Answer], ...] = (first, second)
    answers = concurrent_map(_ask, asked, is_local=is_local, engine=engine)
    return cast("tuple[Item, Answer]", tuple(answers))


def _ask(question: Callable[[], Answer]) -> Answer:
    return question()


class Wave:
    """Questions whose answers hold for one moment, though they are asked for in the same wave of requests.

    If one thing must be read after another, because something may have moved from the latter to the former,
    several consecutive changes would be needed in between to make a difference. They take longer than a wave
    of requests, and the clock shows whether the process slept meanwhile.

    Examples
    --------
    >>> wave = Wave()
    >>> wave.was_short()
    True
    """

    def __init__(self) -> None:
        self._began = _uptime()

    def was_short(self) -> bool:
        """Whether all that was asked since it began is as if it had been asked in the order that matters."""
        return _uptime() - self._began < _WAVE_SECONDS


def _uptime() -> float:
    """Return a time that, on Linux, also advances while the system sleeps, when hours may pass for others."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def processors() -> int:
    """Return how many questions to ask at once, at least two, where the processors have to answer them."""
    return max(os.cpu_count() or 1, 2)


@dataclass(frozen=True, slots=True)
class _Answered(Generic[Answer]):
    answer: Answer


class _Asked(Generic[Item, Answer]):
    """A queue of items that several threads take, in order."""

    def __init__(self, ask: Callable[[Item], Answer], items: Sequence[Item]) -> None:
        self._ask = ask
        self._items = items
        self._taken = 0
        self._asking = 0
        self._outcomes: list[_Answered[Answer] | BaseException | None] = [None] * len(items)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)

    def end(self) -> None:
        """Stop taking items, and wait for those already taken."""
        with self._lock:
            self._stop()
            while self._asking:
                self._changed.wait()

    def _stop(self) -> None:
        self._taken = len(self._items)

    def work(self) -> None:
        """Ask for items until none is left, or one has failed."""
        while True:
            with self._lock:
                at = self._taken
                if at >= len(self._items):
                    return
                self._taken = at + 1
                self._asking += 1
            outcome: _Answered[Answer] | BaseException
            try:
                outcome = _Answered(self._ask(self._items[at]))
            except BaseException as error:
                # Earlier items were taken, so a waiting thread gets this one.
                outcome = error
            with self._lock:
                self._asking -= 1
                if isinstance(outcome, BaseException):
                    self._stop()
                self._outcomes[at] = outcome
                self._changed.notify_all()

    def answer(self, at: int) -> Answer:
        """Wait for the answer to an item, and return or raise it."""
        with self._lock:
            while (outcome := self._outcomes[at]) is None:
                self._changed.wait()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome.answer

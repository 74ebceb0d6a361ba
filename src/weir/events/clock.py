"""The hybrid logical clock that generates event ids.

A tick is the wall clock in microseconds, or one more than the last tick if the wall clock has not advanced or
has stepped back. An id has the tick in its high bits and the number of the shard in its low bits: ids of two
shards differ even if two processes use the same tick, and within a process ids rise across all shards.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from weir.errors import InputError
from weir.events.instants import now_micros

__all__ = ["SHARD_BITS", "HybridClock", "process_clock"]

SHARD_BITS = 10
"""Number of low bits of an id that hold the shard number."""

_MAX_TICK = 1 << (63 - SHARD_BITS)


class HybridClock:
    """Returns ticks, each higher than all earlier ones and all observed ones. Thread-safe.

    Parameters
    ----------
    wall : callable
        Returns microseconds since 1970.

    Examples
    --------
    >>> clock = HybridClock(wall=lambda: 1000)
    >>> clock.ticks(2), clock.ticks(1)
    (1000, 1002)
    >>> clock.observe(5000 << SHARD_BITS)
    >>> clock.ticks(1)
    5001
    """

    def __init__(self, wall: Callable[[], int] = now_micros) -> None:
        self._wall = wall
        self._last = 0
        self._lock = threading.Lock()

    def ticks(self, count: int) -> int:
        """Take several consecutive ticks; return the first."""
        with self._lock:
            first = max(self._wall(), self._last + 1)
            if first + count >= _MAX_TICK:
                raise InputError(
                    "there are no higher event ids: an event with an id near the highest has been read"
                )
            self._last = first + count - 1
            return first

    def now(self) -> int:
        """Return an id that is at least every known one and below all later ones."""
        with self._lock:
            tick = max(self._wall(), self._last + 1)
            # Also if the wall clock steps back before the next tick.
            self._last = tick - 1
            # That of shard 0 at the next tick is one of those to come.
            return (tick << SHARD_BITS) - 1

    def observe(self, event_id: int) -> None:
        """Observe an event: all later ids are higher."""
        with self._lock:
            self._last = max(self._last, event_id >> SHARD_BITS)


process_clock = HybridClock()
"""The clock of this process, shared by all its stores."""

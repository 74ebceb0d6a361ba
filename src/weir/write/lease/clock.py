"""The two clocks that leases use.

The wall clock is what machines have in common, more or less; it may be wrong, and be set forward and
back. The uptime of the system does neither, and also counts the time that a laptop sleeps, but means
something on that system only.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["SYSTEM_CLOCK", "Clock"]


class Clock(Protocol):
    """Tells the time in two ways."""

    def now(self) -> datetime:
        """Return the wall-clock time, in UTC."""
        ...

    def uptime(self) -> float:
        """Return the seconds that the system has been up. Never goes back."""
        ...


class _SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def uptime(self) -> float:
        if hasattr(time, "CLOCK_BOOTTIME"):
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        # Elsewhere than on Linux the time asleep may be missing, and the fence entry has to do alone.
        return time.monotonic()


SYSTEM_CLOCK: Clock = _SystemClock()
"""The clocks of this machine."""

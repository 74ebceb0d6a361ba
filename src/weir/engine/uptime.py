"""The uptime of the system: a time that never goes back, and on Linux goes on while the system sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

__all__ = ["system_uptime"]

system_uptime: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)
"""Returns the seconds that the system has been up. Elsewhere than on Linux the time asleep may be missing."""

"""Retries of commits to shards that other processes commit to as well.

A commit holds its shards only briefly, and streams and batches of one table may collide. The later one waits
without holding any shard, so that two commits that need each other's shards do not deadlock.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from weir.engine.logs import get_logger
from weir.errors import FencedError, LeaseHeldError

__all__ = ["in_turn"]

_log = get_logger(__name__)

# Apart, so that those who wait do not come back together.
_LEAST_SECONDS = 0.05
_MOST_SECONDS = 0.5

Result = TypeVar("Result")


def in_turn(
    attempt: Callable[[], Result],
    *,
    seconds: float,
    may_repeat: Callable[[LeaseHeldError | FencedError], bool],
    where: str,
) -> Result:
    """Return the result of an attempt, which is repeated while other writers hold the shards.

    Parameters
    ----------
    attempt : callable
        Claims shards and writes; after an error it has released them.
    seconds : float
        How long after the first attempt another may begin. 0: no second attempt.
    may_repeat : callable
        Takes the error of an attempt, and returns whether another attempt is safe.
    where : str
        The table, for the log.

    Raises
    ------
    LeaseHeldError, FencedError
        If other writers still hold the shards then.
    """
    deadline = time.monotonic() + seconds
    waits = False
    while True:
        try:
            return attempt()
        except (LeaseHeldError, FencedError) as error:
            left = deadline - time.monotonic()
            if left <= 0 or not may_repeat(error):
                raise
            if not waits:
                _log.info("sink.waits", table=where, seconds=seconds, error=error.message)
                waits = True
        time.sleep(min(left, random.uniform(_LEAST_SECONDS, _MOST_SECONDS)))

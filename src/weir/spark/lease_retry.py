"""Waiting for a turn: commits to shards that others commit to as well.

A commit has its shards for a moment, and streams and batches of one table meet in it. Who comes second waits,
with nothing claimed meanwhile, so that two that need each other's shards do not wait for ever.
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
    """Return what an attempt returns, of which there are more while others have the shards.

    Parameters
    ----------
    attempt : callable
        Claims shards and writes; after an error it has let go of them.
    seconds : float
        How long after the first attempt another may begin. 0: none does.
    may_repeat : callable
        Takes the error of an attempt, and returns whether another one does no harm.
    where : str
        The table, for the log.

    Raises
    ------
    LeaseHeldError, FencedError
        If others still have the shards then.
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

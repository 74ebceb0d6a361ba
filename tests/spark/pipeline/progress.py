"""Waiting for a pipeline as long as it gets on, and saying where it stands when it does not."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from weir.demo.patience import Patience
from weir.spark.pipeline import RunningPipeline

__all__ = ["standing", "until"]


def standing(running: RunningPipeline) -> str:
    """Return how far the query of a pipeline is."""
    query = running.query
    if not query.isActive:
        return f"the query has ended: {query.exception()}"
    last = query.lastProgress
    ends = None if last is None else [one["endOffset"] for one in json.loads(last.json)["sources"]]
    return f"{query.status['message']}; micro-batch {None if last is None else last.batchId} ended at {ends}"


def until(condition: Callable[[], bool], stands: RunningPipeline | Callable[[], object]) -> None:
    """Wait until something is so, but for a minute at most in which nothing moves.

    Parameters
    ----------
    condition : callable
        What is waited for.
    stands : RunningPipeline or callable
        What is to move: a pipeline, or what says how far it is.
    """

    def told() -> str:
        return standing(stands) if isinstance(stands, RunningPipeline) else str(stands())

    patience = Patience("test", told)
    while not condition():
        patience.look(told())
        time.sleep(0.1)

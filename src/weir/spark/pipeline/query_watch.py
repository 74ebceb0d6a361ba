"""Waits for the end of a query, on a polling thread, as long as Spark answers."""

from __future__ import annotations

import threading
import time

from pyspark.sql.streaming.query import StreamingQuery

from weir.spark.silence import LOOK_SECONDS, SILENCE_SECONDS, SparkWatch

__all__ = ["QueryWatch"]

_ASK_SECONDS = 0.25


class QueryWatch(SparkWatch):
    """Polls Spark about a query until it is closed.

    Parameters
    ----------
    query : StreamingQuery
        The query.
    silence : float
        Seconds without an answer after which Spark is considered gone.
    """

    def __init__(self, query: StreamingQuery, *, silence: float = SILENCE_SECONDS) -> None:
        self._query = query
        self._changed = threading.Condition()
        self._ended = False
        self._error: Exception | None = None
        super().__init__(self._ask_for_the_end, silence=silence)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the query ends, and return whether it has.

        Raises
        ------
        SparkSilentError
            If Spark no longer answers.
        Exception
            The error with which the query failed.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while not self._ended:
                self.look()
                left = LOOK_SECONDS if deadline is None else min(deadline - time.monotonic(), LOOK_SECONDS)
                if left <= 0:
                    return False
                self._changed.wait(left)
            if self._error is not None:
                raise self._error
            return True

    def _ask_for_the_end(self) -> None:
        if self._ended:
            # What is asked does not matter any more, but that there is an answer does.
            time.sleep(_ASK_SECONDS)
            _ = self._query.isActive
            return
        error: Exception | None = None
        try:
            ended = bool(self._query.awaitTermination(_ASK_SECONDS))  # type: ignore[arg-type]
        except Exception as raised:
            ended, error = True, raised
        if ended:
            with self._changed:
                self._ended, self._error = True, error
                self._changed.notify_all()

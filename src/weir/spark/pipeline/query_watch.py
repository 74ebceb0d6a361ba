"""Watching a query from a thread, so that nobody waits for a Spark that does not answer any more.

A client of Spark Connect asks a server that is gone again and again, for more than ten minutes in every call,
and a Java that stands still never answers. So one thread asks, and everybody else waits for it only as long
as it gets answers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["SILENCE_SECONDS", "QueryWatch", "SparkSilentError"]

SILENCE_SECONDS = 60.0
"""Seconds without an answer after which Spark is taken for gone."""

_ASK_SECONDS = 0.25
_LOOK_SECONDS = 0.5

Result = TypeVar("Result")


class SparkSilentError(Exception):
    """Spark has not answered for so long that nobody waits for it any more."""


class QueryWatch:
    """Asks Spark about a query, over and over, until it is closed.

    Parameters
    ----------
    query : StreamingQuery
        The query.
    silence : float
        Seconds without an answer after which Spark is taken for gone.
    """

    def __init__(self, query: StreamingQuery, *, silence: float = SILENCE_SECONDS) -> None:
        self._query = query
        self._limit = silence
        self._changed = threading.Condition()
        self._ended = False
        self._error: Exception | None = None
        self._silence = 0.0
        self._looked_at = time.monotonic()
        self._closed = threading.Event()
        # A daemon: a call that does not return does not keep the process.
        self._thread = threading.Thread(target=self._ask, name="weir-pipeline-query", daemon=True)
        self._thread.start()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the query ends, and return whether it has.

        Raises
        ------
        SparkSilentError
            If Spark does not answer any more.
        Exception
            What Spark says the query has failed with.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while not self._ended:
                self._look()
                left = _LOOK_SECONDS if deadline is None else min(deadline - time.monotonic(), _LOOK_SECONDS)
                if left <= 0:
                    return False
                self._changed.wait(left)
            if self._error is not None:
                raise self._error
            return True

    def run(self, call: Callable[[], Result]) -> Result:
        """Return what a call returns that may ask Spark, on a thread of its own.

        Raises
        ------
        SparkSilentError
            If Spark does not answer any more. The call may still be under way.
        Exception
            What the call raises.
        """
        answer: _Answer[Result] = _Answer(call)
        while not answer.done.wait(_LOOK_SECONDS):
            with self._changed:
                self._look()
        return answer.get()

    @property
    def is_silent(self) -> bool:
        """Whether Spark has been taken for gone, and has not answered since."""
        return self._silence >= self._limit

    def close(self) -> None:
        """Ask no more."""
        self._closed.set()

    def _look(self) -> None:
        """Count the time since the last look as silence, and refuse to wait when there is enough of it."""
        now = time.monotonic()
        # A process that stood still itself has not listened meanwhile.
        self._silence += min(now - self._looked_at, 2 * _LOOK_SECONDS)
        self._looked_at = now
        if self._silence >= self._limit:
            raise SparkSilentError(f"it has said nothing for {self._limit:.0f} s")

    def _ask(self) -> None:
        while not self._closed.is_set():
            error: Exception | None = None
            ended = True
            try:
                if self._ended:
                    # What is asked does not matter any more, but that there is an answer does.
                    self._closed.wait(_ASK_SECONDS)
                    ended = not self._query.isActive
                else:
                    ended = bool(self._query.awaitTermination(_ASK_SECONDS))  # type: ignore[arg-type]
            except Exception as raised:
                error = raised
            with self._changed:
                self._silence = 0.0
                self._looked_at = time.monotonic()
                if not self._ended and (ended or error is not None):
                    self._ended, self._error = True, error
                    self._changed.notify_all()


class _Answer(Generic[Result]):
    """What a call returns or raises, on a thread of its own."""

    def __init__(self, call: Callable[[], Result]) -> None:
        self.done = threading.Event()
        self._call = call
        self._result: list[Result] = []
        self._error: BaseException | None = None
        threading.Thread(target=self._work, name="weir-pipeline-call", daemon=True).start()

    def get(self) -> Result:
        if self._error is not None:
            raise self._error
        return self._result[0]

    def _work(self) -> None:
        try:
            self._result.append(self._call())
        except BaseException as error:
            self._error = error
        finally:
            self.done.set()

"""Waits for Spark only as long as it answers.

A Spark Connect client retries a server that is gone for more than ten minutes in every call, and a server or
Java process that hangs never answers. So one thread asks, and everyone else waits only as long as it gets
answers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar

from pyspark.sql import SparkSession

from weir.errors import RunnerError

__all__ = [
    "LOOK_SECONDS",
    "SILENCE_SECONDS",
    "SparkSilentError",
    "SparkWatch",
    "on_thread",
    "silent",
    "watch_session",
]

SILENCE_SECONDS = 60.0
"""Seconds without an answer after which Spark is considered gone."""

LOOK_SECONDS = 0.5
"""How often a waiting caller checks whether Spark still answers."""

_ASK_SECONDS = 1.0

Result = TypeVar("Result")


class SparkSilentError(Exception):
    """Spark has not answered for so long that waiting has ended."""


class SparkWatch:
    """Polls Spark until it is closed. A context manager.

    Parameters
    ----------
    ask : callable
        Asks Spark. An exception counts as an answer too.
    silence : float
        Seconds without an answer after which Spark is considered gone.
    """

    def __init__(self, ask: Callable[[], object], *, silence: float = SILENCE_SECONDS) -> None:
        self._ask = ask
        self._limit = silence
        self._lock = threading.Lock()
        self._silence = 0.0
        self._looked_at = time.monotonic()
        self._closed = threading.Event()
        # A daemon: a call that does not return does not keep the process.
        threading.Thread(target=self._listen, name="weir-spark-watch", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def is_silent(self) -> bool:
        """Whether Spark is considered gone and has not answered since."""
        return self._silence >= self._limit

    def run(self, call: Callable[[], Result]) -> Result:
        """Return the result of a call that may ask Spark, made on a separate thread.

        Raises
        ------
        SparkSilentError
            If Spark no longer answers. The call may still be running.
        Exception
            The error that the call raises.
        """
        future = on_thread(call)
        for _ in self.as_completed([future]):
            pass
        return future.result()

    def as_completed(self, futures: Iterable[Future[Result]]) -> Iterator[Future[Result]]:
        """Yield futures as they end.

        Raises
        ------
        SparkSilentError
            If Spark no longer answers.
        """
        pending = set(futures)
        while pending:
            done, pending = wait(pending, LOOK_SECONDS, FIRST_COMPLETED)
            yield from done
            if not done:
                self.look()

    def look(self) -> None:
        """Count the time since the last check as silence, and stop waiting once there is enough of it.

        Raises
        ------
        SparkSilentError
            If there is.
        """
        with self._lock:
            now = time.monotonic()
            # A process that stood still itself has not listened meanwhile.
            self._silence += min(now - self._looked_at, 2 * LOOK_SECONDS)
            self._looked_at = now
            if self._silence >= self._limit:
                raise SparkSilentError(f"it has said nothing for {self._limit:.0f} s")

    def close(self) -> None:
        """Stop polling."""
        self._closed.set()

    def _listen(self) -> None:
        while not self._closed.is_set():
            with suppress(Exception):
                self._ask()
            with self._lock:
                self._silence = 0.0
                self._looked_at = time.monotonic()


def watch_session(spark: SparkSession, *, silence: float = SILENCE_SECONDS) -> SparkWatch:
    """Watch a session, classic or Connect, by reading one of its settings."""

    def ask() -> None:
        spark.conf.get("spark.app.name", None)
        time.sleep(_ASK_SECONDS)

    return SparkWatch(ask, silence=silence)


def silent(error: SparkSilentError) -> RunnerError:
    """Return the message for users whose call needs Spark."""
    return RunnerError(
        f"Spark does not answer any more: {error}",
        where="spark",
        hint="Its process, Java, has ended or was killed, or its server cannot be reached. "
        "Completed work is kept: call it again",
    )


def on_thread(call: Callable[[], Result]) -> Future[Result]:
    """Start a call on a daemon thread, which blocks neither its caller nor the process."""
    future: Future[Result] = Future()
    future.set_running_or_notify_cancel()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, name="weir-spark-call", daemon=True).start()
    return future

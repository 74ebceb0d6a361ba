"""The requests that reach an S3 endpoint, Weir's and Lance's alike, and in how many waves they came."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.storage.s3 import S3Endpoint, serve_s3

__all__ = ["RecordedEndpoint", "RoundTrip", "serve_recorded_s3", "waves"]


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """One request, and when it was under way."""

    method: str
    path: str
    began: float
    ended: float


class _Recorder:
    """Lets every request take a while, as one over a network does, and notes it."""

    def __init__(self, application: Callable[..., Iterable[bytes]], latency: float) -> None:
        self._application = application
        self.latency = latency
        self._lock = threading.Lock()
        self.seen: list[RoundTrip] = []

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        began = time.monotonic()
        time.sleep(self.latency)
        answer = [b"".join(self._application(environ, start_response))]
        path = environ["PATH_INFO"]
        if environ["REQUEST_METHOD"] == "GET" and environ["QUERY_STRING"].startswith("list-type"):
            path += "?" + environ["QUERY_STRING"]
        with self._lock:
            self.seen.append(RoundTrip(environ["REQUEST_METHOD"], path, began, time.monotonic()))
        return answer


@dataclass(frozen=True)
class RecordedEndpoint:
    """An endpoint, and what has been asked of it."""

    endpoint: S3Endpoint
    recorder: _Recorder

    def answers_after(self, latency: float) -> None:
        """Let every request take so many seconds from now on."""
        self.recorder.latency = latency

    @contextmanager
    def recorded(self) -> Iterator[list[RoundTrip]]:
        """Record what is asked for within a block; the list is filled at its end."""
        found: list[RoundTrip] = []
        start = len(self.recorder.seen)
        yield found
        found += self.recorder.seen[start:]


def waves(trips: Iterable[RoundTrip]) -> int:
    """Return how many of some requests came one after the other: each began when the one before had ended."""
    count, end = 0, float("-inf")
    for trip in sorted(trips, key=lambda one: one.ended):
        if trip.began >= end:
            count, end = count + 1, trip.ended
    return count


@contextmanager
def serve_recorded_s3(latency: float) -> Iterator[RecordedEndpoint]:
    """Run an S3 endpoint on which every request takes a while, and is noted, for the length of a block."""
    recorders: list[_Recorder] = []

    def recording(application: Callable[..., Iterable[bytes]]) -> _Recorder:
        recorders.append(_Recorder(application, latency))
        return recorders[-1]

    with serve_s3(recording) as endpoint:
        yield RecordedEndpoint(endpoint, recorders[0])

"""An object store in a process of its own: what it computes takes nothing from who asks it."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from tests.storage.round_trips import RoundTrip, serve_recorded_s3
from tests.storage.s3 import S3Endpoint

__all__ = ["ObjectStore", "serve_object_store"]


class ObjectStore:
    """A simulated store, and what was asked of it.

    Parameters
    ----------
    endpoint : S3Endpoint
        Where it listens.
    process : Connection
        Leads to its process.
    """

    def __init__(self, endpoint: S3Endpoint, process: Connection) -> None:
        self.endpoint = endpoint
        self._process = process

    def answers_after(self, latency: float) -> None:
        """Let every request take so many seconds from now on."""
        self._ask(latency)

    @contextmanager
    def recorded(self) -> Iterator[list[RoundTrip]]:
        """Record what is asked for within a block; the list is filled at its end."""
        found: list[RoundTrip] = []
        self._ask(None)
        yield found
        found += self._ask(None)

    def _ask(self, asked: float | None) -> Any:
        self._process.send(asked)
        return self._process.recv()


@contextmanager
def serve_object_store() -> Iterator[ObjectStore]:
    """Run a store for the length of a block."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there,), name="object-store")
    process.start()
    there.close()
    try:
        yield ObjectStore(here.recv(), here)
    finally:
        here.close()
        process.join()


def _serve(connection: Connection) -> None:
    """Take so many seconds for each request once told a number; otherwise tell which came since then."""
    with serve_recorded_s3(0.0) as served:
        connection.send(served.endpoint)
        told = 0
        while True:
            try:
                asked = connection.recv()
            except EOFError:
                return
            if asked is not None:
                served.answers_after(asked)
                connection.send(None)
            else:
                seen = served.recorder.seen[told:]
                told += len(seen)
                connection.send(seen)

"""A real S3 endpoint on this machine, for every test that needs one.

A test module imports the fixture with ``from tests.storage.s3 import S3Endpoint, s3_endpoint`` (and
names it in ``__all__``, so that the import is not taken for a mistake), asks it for ``new_uri()`` and
passes ``options`` wherever storage options go, to Weir and to Lance alike.
"""

from __future__ import annotations

import atexit
import logging
import threading
import urllib.request
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from werkzeug.serving import WSGIRequestHandler, make_server

__all__ = ["S3Endpoint", "s3_endpoint", "serve_s3"]


@dataclass(frozen=True)
class S3Endpoint:
    """Where the endpoint listens, and how to reach it."""

    url: str

    @property
    def options(self) -> dict[str, str]:
        """Storage options for Weir and for Lance."""
        return {
            "aws_access_key_id": "tester",
            "aws_secret_access_key": "secret",
            "aws_region": "us-east-1",
            "aws_endpoint": self.url,
            "allow_http": "true",
        }

    def new_bucket(self) -> str:
        """Create an empty bucket and return its name."""
        bucket = f"weir-{uuid.uuid4().hex}"
        request = urllib.request.Request(f"{self.url}/{bucket}", method="PUT")
        with urllib.request.urlopen(request, timeout=30):
            return bucket

    def new_uri(self, path: str = "table") -> str:
        """Return a location in an empty bucket."""
        return f"s3://{self.new_bucket()}/{path}"


class _OneWriteAtATime:
    """Lets only one request that changes something into the application at a time.

    S3 decides conditional writes atomically; the simulation looks first and writes afterwards.
    """

    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
        self._application = application
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return self._application(environ, start_response)
        with self._lock:
            return self._application(environ, start_response)


class _QuietHandler(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: object) -> None:
        """Keep the output of the tests to what they say themselves."""


@contextmanager
def serve_s3(
    around: Callable[[Callable[..., Iterable[bytes]]], Callable[..., Iterable[bytes]]] = lambda it: it,
) -> Iterator[S3Endpoint]:
    """Run an S3 endpoint on a free port of the loopback interface for the length of a block.

    Parameters
    ----------
    around : callable
        Is given the application, and returns the one that answers. Default: the same.
    """
    # It takes a second to import, and processes that tests kill import this module and serve nothing.
    from moto.moto_server.werkzeug_app import create_backend_app

    # It announces itself as a development server, which is what it is here.
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    # To find out for each request which of its many services is meant would take longer than to answer.
    application = around(_OneWriteAtATime(create_backend_app("s3")))
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=_QuietHandler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="s3-endpoint", daemon=True)
    thread.start()
    try:
        yield S3Endpoint(f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="session")
def s3_endpoint() -> S3Endpoint:
    """Serve S3 until the tests of this process are over."""
    return _endpoint_of_this_process()


@cache
def _endpoint_of_this_process() -> S3Endpoint:
    """Return what all modules share: each has imported a fixture of its own."""
    open_until_the_end = ExitStack()
    atexit.register(open_until_the_end.close)
    return open_until_the_end.enter_context(serve_s3())

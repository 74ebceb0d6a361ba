"""A proxy on the loopback interface that does to HTTP what networks and object stores do.

It stands between a client and the S3 endpoint of the tests. What happens to a request is decided by a
plan: by a seed, or told beforehand for the requests that matter.
"""

from __future__ import annotations

import http.client
import random
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.storage.s3 import S3Endpoint

__all__ = ["CLIENT_TIMEOUT", "Fault", "FirstOfEach", "Plan", "Proxy", "Request", "Seeded", "proxied"]


CLIENT_TIMEOUT = 5.0
"""Seconds that clients of a proxy wait for an answer."""


class Fault(Enum):
    """What can happen to a request."""

    NONE = "it goes through"
    DROP = "the connection ends before the server has the request"
    DELAY = "it arrives late"
    CUT = "the server has done it, and the connection ends in the middle of the answer"
    LOST = "the server has done it, and the connection ends without an answer"
    SILENT = "the server has done it, and no answer comes for longer than the client waits"
    DUPLICATE = "the server gets it twice at once, and the client gets the second answer"
    LATE_DUPLICATE = "the server gets it again some time after the answer"
    SLOW_DOWN = "503 SlowDown instead of the server"
    FAILED = "500 InternalError instead of the server"
    FAILED_AFTER = "the server has done it, and the client gets 500 InternalError"


class Request(NamedTuple):
    """What plans decide by."""

    method: str
    path: str


Plan = Callable[[Request], Fault]


# Waiting for a client to lose patience takes long, and is tried where it matters.
_ANY = [fault for fault in Fault if fault not in (Fault.NONE, Fault.SILENT)]


_RANDOM_NAME = re.compile(r"[0-9a-f-]{8,}")


class Seeded:
    """Chooses by a seed, the method, the kind of path and how often that was asked for.

    So it does not matter in which order requests of several threads arrive, nor what random names are.
    """

    def __init__(self, seed: int, share: float) -> None:
        self._seed = seed
        self._share = share
        self._asked: Counter[Request] = Counter()
        self._lock = threading.Lock()

    def __call__(self, request: Request) -> Fault:
        request = request._replace(path=_RANDOM_NAME.sub("*", request.path))
        with self._lock:
            self._asked[request] += 1
            number = self._asked[request]
        dice = random.Random(f"{self._seed} {request} {number}")
        if dice.random() >= self._share:
            return Fault.NONE
        return dice.choice(_ANY)


class FirstOfEach:
    """Does the same to the first request that changes each object, and leaves all others alone.

    Parameters
    ----------
    fault : Fault
        What happens to them.
    path : str
        A regular expression that is found in their path. Default: all.
    """

    def __init__(self, fault: Fault, path: str = "") -> None:
        self._fault = fault
        self._path = re.compile(path)
        self._lock = threading.Lock()
        self.happened: set[Request] = set()

    def __call__(self, request: Request) -> Fault:
        if request.method in ("GET", "HEAD") or not self._path.search(request.path):
            return Fault.NONE
        with self._lock:
            if request in self.happened:
                return Fault.NONE
            self.happened.add(request)
        return self._fault


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    reason: str
    headers: list[tuple[str, str]]
    body: bytes
    is_cut: bool = False


def _error(status: int, code: str) -> _Answer:
    body = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{code}</Message></Error>'.encode()
    return _Answer(status, code, [("Content-Type", "application/xml")], body)


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet of clients that are killed in the middle of a request."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class Proxy:
    """One way to the endpoint. Made by :func:`proxied`.

    Parameters
    ----------
    endpoint : S3Endpoint
        The endpoint itself.
    plan : callable, optional
        What happens to each request. Default: nothing.
    """

    def __init__(self, endpoint: S3Endpoint, plan: Plan | None = None) -> None:
        self.plan: Plan = plan or (lambda request: Fault.NONE)
        self.seen: Counter[tuple[str, Fault]] = Counter()
        self.delay_seconds = 0.05
        self._partitioned = threading.Event()
        self._closing = threading.Event()
        self._held: dict[str, threading.Event] = {}
        self._arrived = threading.Event()
        target = urlsplit(endpoint.url)
        assert target.hostname is not None
        self._target = (target.hostname, target.port)
        self._direct = endpoint
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._late: list[threading.Thread] = []

    @property
    def options(self) -> dict[str, str]:
        """Storage options for Weir and for Lance, whose client does not wait for long."""
        return {
            **self._direct.options,
            "aws_endpoint": f"http://127.0.0.1:{self._server.server_port}",
            "client_max_retries": "3",
            "client_retry_timeout": "20",
            "timeout": f"{CLIENT_TIMEOUT:g}s",
        }

    def partition(self) -> None:
        """Let nothing through from now on."""
        self._partitioned.set()

    def heal(self) -> None:
        """Let everything through again."""
        self._partitioned.clear()

    @contextmanager
    def holding(self, path: str) -> Iterator[threading.Event]:
        """Hold requests to write to ``path`` for the length of the block; the event says that one came."""
        let_go = threading.Event()
        self._held[path] = let_go
        self._arrived = threading.Event()
        try:
            yield self._arrived
        finally:
            del self._held[path]
            let_go.set()

    def serve(self) -> None:
        """Serve until closed."""
        self._server.serve_forever(0.02)

    def close(self) -> None:
        """Stop, when everything that is late has arrived."""
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        for thread in self._late:
            thread.join()

    def _send(self, request: Request, headers: list[tuple[str, str]], body: bytes) -> _Answer:
        connection = http.client.HTTPConnection(*self._target, timeout=60)
        try:
            connection.putrequest(request.method, request.path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers:
                if name.lower() not in ("connection", "content-length", "transfer-encoding"):
                    connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            connection.putheader("Connection", "close")
            connection.endheaders(body)
            answer = connection.getresponse()
            return _Answer(answer.status, answer.reason, answer.getheaders(), answer.read())
        finally:
            connection.close()

    def _answer(self, request: Request, headers: list[tuple[str, str]], body: bytes) -> _Answer | None:
        """Return what the client is to get; None for no answer."""
        if self._partitioned.is_set():
            return None
        for path, let_go in list(self._held.items()):
            if request.method != "GET" and request.method != "HEAD" and re.search(path, request.path):
                self._arrived.set()
                let_go.wait(30)
        fault = self.plan(request)
        self.seen[request.method, fault] += 1
        if fault is Fault.DROP:
            return None
        if fault is Fault.SLOW_DOWN:
            return _error(503, "SlowDown")
        if fault is Fault.FAILED:
            return _error(500, "InternalError")
        if fault is Fault.DELAY:
            time.sleep(self.delay_seconds)
        answer = self._send(request, headers, body)
        if fault is Fault.DUPLICATE:
            return self._send(request, headers, body)
        if fault is Fault.LATE_DUPLICATE:
            again = threading.Timer(self.delay_seconds, self._send, (request, headers, body))
            again.start()
            self._late.append(again)
        if fault is Fault.SILENT:
            self._closing.wait(CLIENT_TIMEOUT + 1.0)
            return None
        if fault is Fault.LOST:
            return None
        if fault is Fault.FAILED_AFTER:
            return _error(500, "InternalError")
        return replace(answer, is_cut=fault is Fault.CUT)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # An answer goes out as one piece.
            wbufsize = -1

            def _pass(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                request = Request(self.command, self.path)
                try:
                    answer = proxy._answer(request, self.headers.items(), body)
                except OSError:
                    answer = None
                if answer is None:
                    self.close_connection = True
                    return
                if answer.is_cut and self.command != "GET":
                    self.wfile.write(f"HTTP/1.1 {answer.status} {answer.reason}\r\nDa".encode())
                    self.close_connection = True
                    return
                self.send_response_only(answer.status, answer.reason)
                length = str(len(answer.body))
                for name, value in answer.headers:
                    if name.lower() == "content-length":
                        # Of the answer to HEAD it is that of the object.
                        length = value
                    elif name.lower() not in ("connection", "transfer-encoding"):
                        self.send_header(name, value)
                self.send_header("Content-Length", length)
                self.end_headers()
                if self.command == "HEAD":
                    return
                if answer.is_cut:
                    self.wfile.write(answer.body[: len(answer.body) // 2])
                    self.close_connection = True
                    return
                self.wfile.write(answer.body)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:
                """Keep quiet."""

        return Handler


@contextmanager
def proxied(endpoint: S3Endpoint, plan: Plan | None = None) -> Iterator[Proxy]:
    """Run a proxy to an endpoint for the length of a block."""
    proxy = Proxy(endpoint, plan)
    thread = threading.Thread(target=proxy.serve, name="fault-proxy", daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join()

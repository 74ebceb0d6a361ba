"""Forwarding of requests to the process that writes their namespace."""

from __future__ import annotations

import http.client
import selectors
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from urllib.parse import urlsplit

__all__ = ["FORWARDED", "Forwarder", "UnreachableError"]

FORWARDED = "x-weir-forwarded"
"""The header of a request that was already forwarded: the receiver answers it."""

_PASSED_ON = (
    "authorization",
    "content-type",
    "idempotency-key",
    "prefer",
    "accept",
    "x-request-id",
    "traceparent",
    "tracestate",
)
_PASSED_BACK = ("content-type", "retry-after", "www-authenticate", "x-request-id", "location")


_SECONDS_TO_CONNECT = 5.0
_SECONDS_BETWEEN_LOOKS = 1.0
_PART = 1 << 18


class UnreachableError(Exception):
    """The other process did not receive the request."""


class Forwarder:
    """Forwards requests over persistent connections. Thread-safe.

    Parameters
    ----------
    timeout : float
        Seconds to wait for a response.
    certificate : str
        The PEM file with the certificate of this process, if it has one: processes on one root may share a
        self-signed one.
    """

    def __init__(self, timeout: float, certificate: str = "") -> None:
        self._timeout = timeout
        self._certificate = certificate
        self._context: ssl.SSLContext | None = None
        self._idle: dict[str, list[http.client.HTTPConnection]] = {}
        self._lock = threading.Lock()

    def forward(
        self,
        url: str,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes,
        lives: Callable[[], bool] = lambda: True,
    ) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of the response.

        Parameters
        ----------
        url : str
            The URL of the other process.
        method, target, headers, body
            The request.
        lives : callable
            Whether the other process is still alive, called occasionally: a suspended one never answers.

        Raises
        ------
        UnreachableError
            If the request was not received, so that another process can answer it.
        TimeoutError
            If the response takes too long. The other process is alive, and may still do what was asked.
        OSError
            If the connection broke afterwards, so that the outcome is unknown.
        """
        sent = {name: headers[name] for name in _PASSED_ON if name in headers}
        sent[FORWARDED] = "1"
        connection = self._taken(url)
        try:
            try:
                connection.putrequest(method, target)
                for name, text in (*sent.items(), ("content-length", str(len(body)))):
                    connection.putheader(name, text)
                connection.endheaders()
                _send(connection, body, self._timeout, lives)
                _wait_for(connection, self._timeout, lives)
                answer = connection.getresponse()
            except http.client.RemoteDisconnected as error:
                raise OSError("the process ended before it answered") from error
            content = answer.read()
        except (OSError, http.client.HTTPException, UnreachableError) as error:
            connection.close()
            if isinstance(error, (OSError, UnreachableError)):
                raise
            raise OSError(str(error)) from error
        self._give_back(url, connection)
        told = {name: value for name in _PASSED_BACK if (value := answer.getheader(name)) is not None}
        return answer.status, told, content

    def _taken(self, url: str) -> http.client.HTTPConnection:
        while True:
            with self._lock:
                idle = self._idle.get(url)
                connection = idle.pop() if idle else None
            if connection is None:
                break
            if _still_open(connection):
                return connection
            connection.close()
        self._close_ended()
        parts = urlsplit(url)
        host = parts.hostname or ""
        made: http.client.HTTPConnection
        if parts.scheme == "https":
            made = http.client.HTTPSConnection(
                host, parts.port, timeout=_SECONDS_TO_CONNECT, context=self._trusting()
            )
        else:
            made = http.client.HTTPConnection(host, parts.port, timeout=_SECONDS_TO_CONNECT)
        try:
            made.connect()
            made.timeout = self._timeout
            made.sock.settimeout(self._timeout)
        except OSError as error:
            raise UnreachableError(f"{url}: {error}") from error
        return made

    def _trusting(self) -> ssl.SSLContext:
        """Return the TLS context, which trusts the machine's certificates and the process's own."""
        if self._context is None:
            context = ssl.create_default_context()
            if self._certificate:
                context.load_verify_locations(self._certificate)
                context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            self._context = context
        return self._context

    def _give_back(self, url: str, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._idle.setdefault(url, []).append(connection)

    def _close_ended(self) -> None:
        """Close connections to processes that are gone."""
        with self._lock:
            for url, connections in [*self._idle.items()]:
                ended = [one for one in connections if not _still_open(one)]
                for connection in ended:
                    connection.close()
                self._idle[url] = [one for one in connections if one not in ended]
                if not self._idle[url]:
                    del self._idle[url]

    def close(self) -> None:
        """Close every connection."""
        with self._lock:
            for connections in self._idle.values():
                for connection in connections:
                    connection.close()
            self._idle.clear()


def _send(
    connection: http.client.HTTPConnection, body: bytes, seconds: float, lives: Callable[[], bool]
) -> None:
    """Send a body. A suspended process takes no more of it than its buffers hold.

    Raises
    ------
    UnreachableError
        If the process is no longer alive and has not received all of it: nobody acts on a part of a request.
    TimeoutError
        If the process is alive and takes too long.
    """
    due = time.monotonic() + seconds
    rest = memoryview(body)
    connection.sock.settimeout(_SECONDS_BETWEEN_LOOKS)
    while rest:
        try:
            rest = rest[connection.sock.send(rest[:_PART]) :]
        except TimeoutError:
            if not lives():
                raise UnreachableError("the process takes no more of the request") from None
            if time.monotonic() > due:
                raise
    connection.sock.settimeout(seconds)


def _wait_for(connection: http.client.HTTPConnection, seconds: float, lives: Callable[[], bool]) -> None:
    """Wait for the first byte of a response."""
    due = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        selector.register(connection.sock, selectors.EVENT_READ)
        while not selector.select(_SECONDS_BETWEEN_LOOKS):
            if not lives():
                raise OSError("the process does not answer")
            if time.monotonic() > due:
                raise TimeoutError


def _still_open(connection: http.client.HTTPConnection) -> bool:
    """Whether an idle connection is still open at the other side."""
    held = connection.sock
    if held is None:
        return False
    held.setblocking(False)
    try:
        return bool(held.recv(1)) and False
    except BlockingIOError:
        return True
    except (OSError, ssl.SSLWantReadError) as error:
        return isinstance(error, ssl.SSLWantReadError)
    finally:
        with suppress(OSError):
            held.settimeout(connection.timeout)

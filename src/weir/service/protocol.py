"""HTTP with uvicorn, with limits on the size and duration of request headers, and responses in one piece.

Headers are held in memory as a whole, and a client that sends them byte by byte, or nothing, occupies a
connection. The head and the body of a small response are sent together: each call of the system takes the
event loop about as long as the rest of the response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

__all__ = ["AT_ONCE", "MOST_HEAD_BYTES", "BoundedProtocol", "GatheringTransport"]

AT_ONCE = "weir.at_once"
"""In the scope of a request: sends a response in one step if it can, and returns whether it did."""

MOST_HEAD_BYTES = 64 * 1024
"""Most bytes of a request line and headers, plus or minus one receive buffer."""

_SECONDS_FOR_HEAD = 60.0
_MOST_GATHERED = 64 * 1024


class GatheringTransport:
    """A transport that sends what is written in one step of the event loop in one piece.

    Parameters
    ----------
    transport : asyncio.Transport
        Does everything else.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._soon = asyncio.get_running_loop().call_soon
        self._gathered: list[bytes] = []
        self._size = 0
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send some bytes: now, or together with what follows at once."""
        if self._size + len(data) > _MOST_GATHERED:
            self._send()
            self._transport.write(data)
            return
        if not self._gathered:
            self._soon(self._send)
        self._gathered.append(data)
        self._size += len(data)

    def _send(self) -> None:
        if self._gathered:
            gathered, self._gathered, self._size = self._gathered, [], 0
            self._transport.write(b"".join(gathered))

    def close(self) -> None:
        """Close the connection once everything is sent."""
        self._send()
        self._transport.close()


class BoundedProtocol(HttpToolsProtocol):
    """A connection that limits the size of request headers, and is closed if they do not end."""

    _head_bytes = 0
    _has_begun = False
    _in_head = True
    _head_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, and wait for the first request."""
        super().connection_made(transport)
        self.transport = GatheringTransport(transport)  # type: ignore[assignment]
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._head_has_come()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        loop = asyncio.get_running_loop()
        self._head_due = loop.call_later(_SECONDS_FOR_HEAD, self.timeout_keep_alive_handler)

    def _head_has_come(self) -> None:
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None

    def data_received(self, data: bytes) -> None:
        """Process received bytes; refuse them if the headers of a request are too long."""
        if self.transport.is_closing():
            return
        before = self._head_bytes
        if self._in_head:
            self._head_bytes += len(data)
            if before > MOST_HEAD_BYTES:
                self.send_400_response("The headers of the request are too long.")
                return
        super().data_received(data)
        if self._head_due is None and self._in_head and (self._head_bytes or self._has_begun):
            self._expect_head()  # most heads come whole, and need no timer

    def on_header(self, name: bytes, value: bytes) -> None:
        """Process a header; refuse the request once its headers are too long in total."""
        super().on_header(name, value)
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > MOST_HEAD_BYTES:
            # What is raised here, the parser tells as a request that is not valid.
            raise ValueError("the headers are too long")

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._header_bytes, self._has_begun = 0, True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Begin the body, whose size is limited where it is read."""
        self._in_head, self._has_begun, self._head_bytes = False, False, 0
        self._head_has_come()
        super().on_headers_complete()
        cycle = self.cycle
        if cycle is not None and cycle.scope is self.scope:
            self.scope[AT_ONCE] = partial(_answered_at_once, cycle)  # type: ignore[literal-required]

    def on_message_complete(self) -> None:
        """End the request; the next one may follow."""
        self._in_head = True
        super().on_message_complete()


def _answered_at_once(
    cycle: RequestResponseCycle, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes
) -> bool:
    """Send a whole response as the messages of it would be, without what they are looked through for.

    Parameters
    ----------
    cycle : RequestResponseCycle
        The request.
    status : int
        The status.
    headers : iterable of (bytes, bytes)
        With its length, and nothing that says how the connection goes on.
    body : bytes
        The body.

    Returns
    -------
    bool
        Whether it was sent; if not, it is sent by messages.
    """
    if (
        cycle.flow.write_paused
        or cycle.disconnected
        or cycle.response_started
        or cycle.scope["method"] == "HEAD"
    ):
        return False
    content = [STATUS_LINE[status]]
    for name, value in (*cycle.default_headers, *headers):
        content += (name, b": ", value, b"\r\n")
    if not cycle.keep_alive:
        content.append(b"connection: close\r\n")
    content += (b"\r\n", body)
    cycle.waiting_for_100_continue = False
    cycle.response_started = cycle.response_complete = True
    cycle.transport.write(b"".join(content))
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()
    return True

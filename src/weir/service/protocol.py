"""HTTP as uvicorn speaks it, with a bound on what comes before the body: it is held in memory as a whole."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["MOST_HEAD_BYTES", "BoundedProtocol"]

MOST_HEAD_BYTES = 64 * 1024
"""The most bytes of a request's line and headers, give or take what is received at a time."""


class BoundedProtocol(HttpToolsProtocol):
    """A connection whose requests have heads of a bounded size; one that goes on and on is closed."""

    _head_bytes = 0
    _in_head = True

    def data_received(self, data: bytes) -> None:
        """Take what has come; refuse it if the head of a request is longer than it may be."""
        if self.transport.is_closing():
            return
        before = self._head_bytes
        if self._in_head:
            self._head_bytes += len(data)
            if before > MOST_HEAD_BYTES:
                self.send_400_response("The headers of the request are too long.")
                return
        super().data_received(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; refuse the request once they are too long together, whatever came at a time."""
        super().on_header(name, value)
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > MOST_HEAD_BYTES:
            # What is raised here, the parser tells as a request that is not valid.
            raise ValueError("the headers are too long")

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._header_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Begin the body, whose bytes are bounded where it is read."""
        self._in_head, self._head_bytes = False, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End the request; the next one may follow."""
        self._in_head = True
        super().on_message_complete()

"""Request bodies: read up to a limit, decompressed up to the same limit, and decoded."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request

from weir.service.refusals import Refusal

__all__ = ["Bodies", "HeldBody", "decoded", "read_body"]

_CHUNK = 1024 * 1024
_SMALL = 64 * 1024


class HeldBody:
    """How many bytes of one request's body the process holds."""

    size = 0


class Bodies:
    """Bounds the bytes of request bodies that a process holds at once. Used only from the event loop.

    A request waits for room as its body arrives. Where there is none, one request goes on all the same, so
    that never all of them wait for each other. Nor does a small body, up to 64 KiB, ever wait: the process
    holds at most one body and the small ones more than the limit.

    Parameters
    ----------
    most : int
        The limit.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.held = 0
        self._beyond: HeldBody | None = None
        self._waiting: list[asyncio.Future[None]] = []

    async def take(self, body: HeldBody, size: int) -> None:
        """Wait for room for some more bytes of a body."""
        if body.size + size <= _SMALL:
            self.held += size
            body.size += size
            return
        while self.held + size > self._most and self._beyond not in (None, body):
            room = asyncio.get_running_loop().create_future()
            self._waiting.append(room)
            await room
        if self.held + size > self._most:
            self._beyond = body
        self.held += size
        body.size += size

    def free(self, body: HeldBody) -> None:
        """Give back the room of a body."""
        self.held -= body.size
        body.size = 0
        if self._beyond is body:
            self._beyond = None
        waiting, self._waiting = self._waiting, []
        for room in waiting:
            if not room.done():
                room.set_result(None)


async def read_body(request: Request, most: int, take: Callable[[int], Awaitable[None]]) -> bytes:
    """Return the body of a request, decompressed if necessary.

    Parameters
    ----------
    request : Request
        The request.
    most : int
        Most bytes of the body, also after decompression.
    take : callable
        Waits for room for some more bytes.

    Raises
    ------
    Refusal
        413 as soon as it is known to exceed the limit; 415 if its encoding is unknown.
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "", "gzip", "deflate"):
        raise Refusal(
            415, "unsupported_encoding", f"bodies may be compressed with gzip, not {encoding!r:.40}"
        )
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > most:
        raise _too_large(most)
    unpacker = None if encoding in ("identity", "") else _unpacker()
    parts: list[bytes] = []
    received = unpacked = 0
    is_more = True
    while is_more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk = message.get("body", b"")
        is_more = message.get("more_body", False)
        received += len(chunk)
        if received > most:
            raise _too_large(most)
        if unpacker is None:
            await take(len(chunk))
            parts.append(chunk)
            continue
        try:
            while chunk:
                if unpacker.eof:  # what is packed with gzip may be in parts, one after the other
                    unpacker = _unpacker()
                part = unpacker.decompress(chunk, _CHUNK)
                unpacked += len(part)
                if unpacked > most:
                    raise _too_large(most)
                await take(len(part))
                parts.append(part)
                chunk = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
        except zlib.error as error:
            raise Refusal(400, "invalid_request", "the body is not compressed as declared") from error
    if unpacker is not None and received and not unpacker.eof:
        raise Refusal(400, "invalid_request", "the compressed body ends too early")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _unpacker() -> zlib._Decompress:
    return zlib.decompressobj(zlib.MAX_WBITS | 32)


def _too_large(most: int) -> Refusal:
    return Refusal(413, "payload_too_large", f"a request has at most {most:,} bytes, also decompressed")


def decoded(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a body.

    Raises
    ------
    Refusal
        400 if it is not one.
    """
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refusal(400, "invalid_json", f"the body is not JSON: {error}") from error
    except RecursionError as error:
        raise Refusal(400, "invalid_json", "the body is nested too deeply") from error
    if not isinstance(value, dict):
        raise Refusal(400, "invalid_request", "the body is a JSON object")
    return value

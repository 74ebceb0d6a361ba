"""A stream whose beginning was already read."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import BinaryIO

__all__ = ["PrefixedStream", "read_arrived", "read_fully"]


class PrefixedStream(io.BufferedIOBase):
    """Gives the bytes that were read ahead once more, and then the rest of the stream.

    Parameters
    ----------
    prefix : bytes
        What was read ahead.
    rest : file-like
        The stream after it.

    Examples
    --------
    >>> stream = io.BytesIO(b"header and rows")
    >>> PrefixedStream(stream.read(6), stream).read()
    b'header and rows'
    """

    def __init__(self, prefix: bytes, rest: BinaryIO) -> None:
        self._prefix = memoryview(prefix)
        self._rest = rest

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int | None = -1) -> bytes:
        """Return the next ``size`` bytes; fewer only where the stream ends."""
        wanted = -1 if size is None or size < 0 else max(size - len(self._prefix), 0)
        taken = self._take(size)
        return taken + (read_fully(self._rest, wanted) if wanted else b"")

    def read1(self, size: int = -1) -> bytes:
        """Return the next bytes that are there, at most ``size``; none only where the stream ends."""
        if self._prefix:
            return self._take(size)
        return read_arrived(self._rest, size)

    def _take(self, size: int | None) -> bytes:
        end = len(self._prefix) if size is None or size < 0 else size
        taken, self._prefix = bytes(self._prefix[:end]), self._prefix[end:]
        return taken


def read_fully(stream: BinaryIO, size: int) -> bytes:
    """Return the next ``size`` bytes, all if it is negative; fewer only where the stream ends."""
    if size < 0:
        return stream.read()
    data = b""
    while len(data) < size and (more := stream.read(size - len(data))):
        data += more
    return data


def read_arrived(stream: BinaryIO, size: int) -> bytes:
    """Return bytes as soon as there are some, at most ``size``; none only where the stream ends."""
    read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    return read(size)

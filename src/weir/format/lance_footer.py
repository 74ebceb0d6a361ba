"""The footer of a Lance file, which gives the length of the whole file.

Lance file format spec, "File layout": the last 40 bytes are the offsets of the column metadata, of the table
of their offsets, and of the table of global buffers, how many of those and of columns there are, the version
of the format, and ``LANC``. The table of global buffers ends where these bytes begin. All numbers are
little-endian. Files of the format before that (its version is 0.2) end in other bytes and the same ``LANC``.
"""

from __future__ import annotations

import struct

from weir.format.buffers import Bytes

__all__ = ["FOOTER_BYTES", "ends_as_written"]

_MAGIC = b"LANC"
_FOOTER = struct.Struct("<QQQIIHH4s")
_BUFFER_BYTES = 16
"""Bytes of a global buffer in their table: its offset and its size."""

_FIRST_VERSION = (0, 3)
"""How version 2.0 of the format is written, the first with these last bytes."""

FOOTER_BYTES = _FOOTER.size
"""Bytes that :func:`ends_as_written` reads."""


def ends_as_written(tail: Bytes, size: int) -> bool:
    """Whether a file ends as a Lance file does, and has the length that its end says.

    A file that lost something in the middle ends well, but not where it says that it does.

    Parameters
    ----------
    tail : bytes-like
        The last :data:`FOOTER_BYTES` bytes, or all of a file that has fewer.
    size : int
        Bytes of the file.

    Examples
    --------
    >>> tail = _FOOTER.pack(64, 80, 96, 1, 1, 2, 1, b"LANC")
    >>> ends_as_written(tail, 152), ends_as_written(tail, 120), ends_as_written(tail[:-1], 151)
    (True, False, False)
    """
    end = bytes(tail)
    if not end.endswith(_MAGIC):
        return False
    if len(end) < _FOOTER.size:
        return True
    _, _, buffers, number, _, major, minor, _ = _FOOTER.unpack(end)
    if (major, minor) < _FIRST_VERSION:
        return True
    return int(buffers + number * _BUFFER_BYTES + _FOOTER.size) == size

"""A uniform view of byte buffers of many kinds, without copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pyarrow as pa

from weir.storage.interface import Bytes

__all__ = ["byte_view", "parts_of", "size_of"]


def parts_of(data: Bytes | Sequence[Bytes]) -> Sequence[Bytes]:
    """Return the parts of a payload in order: one if it is not a sequence of them.

    Examples
    --------
    >>> parts_of(b"abc")
    (b'abc',)
    >>> parts_of([b"a", bytearray(b"bc")])
    [b'a', bytearray(b'bc')]
    """
    if isinstance(data, bytes | bytearray | memoryview | pa.Buffer):
        return (data,)
    return cast(Sequence[Bytes], data)


def size_of(parts: Sequence[Bytes]) -> int:
    """Return the size of all the parts together in bytes.

    Examples
    --------
    >>> size_of([b"a", memoryview(b"bcd"), pa.py_buffer(b"")])
    4
    """
    total = 0
    for part in parts:
        total += part.nbytes if isinstance(part, memoryview) else len(part)
    return total


def byte_view(data: Bytes) -> memoryview:
    """Return a view of the data as unsigned bytes, whatever its items are.

    Examples
    --------
    >>> byte_view(pa.py_buffer(b"ab")).format
    'B'
    """
    view = memoryview(data)
    if view.nbytes == 0:
        return memoryview(b"")  # an empty view cannot be cast
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")

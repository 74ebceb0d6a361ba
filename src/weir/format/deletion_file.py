"""The rows in a deletion file, and whether its bytes are complete.

Lance table format spec, "Deletion files": rows of a fragment that are deleted, as an Arrow file with one
column, or as a Roaring bitmap in its portable format. A manifest says how many rows there are in one, and not
how large it is; neither kind has a checksum.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.format.buffers import Bytes

__all__ = ["Offsets", "deleted_offsets", "deleted_rows", "is_whole_deletion_file"]

Offsets = npt.NDArray[np.uint32]

_ARROW = b"ARROW1"
_COOKIE = 12346
_COOKIE_WITH_RUNS = 12347
_ARRAY_LIMIT = 4096
_BITMAP_BYTES = 8192
_OFFSETS_FROM = 4


def is_whole_deletion_file(data: Bytes, path: str) -> bool:
    """Whether a deletion file begins and ends as one does, and has the length that it says.

    Parameters
    ----------
    data : bytes-like
        The whole file.
    path : str
        Its path, whose suffix is the kind: ``.arrow`` or ``.bin``.

    Examples
    --------
    >>> is_whole_deletion_file(b"", "_deletions/0-1-2.bin")
    False
    >>> one_row = struct.pack("<IIHHIH", 12346, 1, 0, 0, 16, 7)
    >>> is_whole_deletion_file(one_row, "_deletions/0-1-2.bin")
    True
    >>> is_whole_deletion_file(one_row[:-1], "_deletions/0-1-2.bin")
    False
    """
    view = memoryview(data).cast("B")
    if path.endswith(".arrow"):
        return len(view) > 2 * len(_ARROW) and view[:6] == _ARROW and view[-6:] == _ARROW
    return deleted_rows(data, path) is not None


def deleted_rows(data: Bytes, path: str) -> int | None:
    """Return how many rows a deletion file deletes; None if it is none, or not all there.

    Parameters
    ----------
    data, path
        As for :func:`is_whole_deletion_file`.

    Examples
    --------
    >>> deleted_rows(struct.pack("<IIHHIHH", 12346, 1, 0, 1, 16, 7, 9), "_deletions/0-1-2.bin")
    2
    """
    offsets = deleted_offsets(data, path)
    return None if offsets is None else len(offsets)


def deleted_offsets(data: Bytes, path: str) -> Offsets | None:
    """Return the rows that a deletion file deletes, ascending; None if it is none, or not all there.

    Parameters
    ----------
    data, path
        As for :func:`is_whole_deletion_file`.

    Returns
    -------
    ndarray of uint32
        Their offsets in the fragment.

    Examples
    --------
    >>> deleted_offsets(struct.pack("<IIHHIHH", 12346, 1, 0, 1, 16, 7, 9), "_deletions/0-1-2.bin").tolist()
    [7, 9]
    """
    view = memoryview(data).cast("B")
    try:
        if path.endswith(".arrow"):
            with pa.ipc.open_file(pa.py_buffer(view)) as file:
                return np.sort(file.read_all().column(0).to_numpy()).astype(np.uint32, copy=False)
        return _bitmap(view)
    except (struct.error, ValueError, IndexError, pa.ArrowException, OSError):
        return None


def _bitmap(view: memoryview) -> Offsets | None:
    """Return the numbers in a Roaring bitmap; None if none begins like this, or more follows."""
    cookie = int(struct.unpack_from("<I", view)[0])
    runs = b""
    if cookie == _COOKIE:
        count = int(struct.unpack_from("<I", view, 4)[0])
        at = 8
    elif cookie & 0xFFFF == _COOKIE_WITH_RUNS:
        count = (cookie >> 16) + 1
        at = 4 + (count + 7) // 8
        runs = bytes(view[4:at])
    else:
        return None
    if count > 1 << 16:
        return None
    described = np.frombuffer(view, np.uint16, 2 * count, at).reshape(count, 2).astype(np.int64)
    at += 4 * count
    if not runs or count >= _OFFSETS_FROM:
        at += 4 * count
    parts = []
    for number, (key, less_one) in enumerate(described.tolist()):
        if runs and runs[number // 8] >> number % 8 & 1:
            pairs = np.frombuffer(view, np.uint16, 2 * int(struct.unpack_from("<H", view, at)[0]), at + 2)
            first, lengths = pairs[0::2].astype(np.int64), pairs[1::2].astype(np.int64) + 1
            ends = np.cumsum(lengths)
            low = np.arange(lengths.sum()) + np.repeat(first - ends + lengths, lengths)
            at += 2 + pairs.nbytes
        elif less_one < _ARRAY_LIMIT:
            low = np.frombuffer(view, np.uint16, less_one + 1, at).astype(np.int64)
            at += 2 * len(low)
        else:
            bits = np.frombuffer(view, np.uint8, _BITMAP_BYTES, at)
            low = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
            at += _BITMAP_BYTES
        if len(low) != less_one + 1:
            return None
        parts.append((low + (key << 16)).astype(np.uint32))
    return np.concatenate(parts or [np.zeros(0, np.uint32)]) if at == len(view) else None

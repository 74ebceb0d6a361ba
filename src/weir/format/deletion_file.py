"""The number of rows in a deletion file, and whether its bytes are complete.

Lance table format spec, "Deletion files": rows of a fragment that are deleted, as an Arrow file with one
column, or as a Roaring bitmap in its portable format. A manifest says how many rows there are in one, and not
how large it is; neither kind has a checksum.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from weir.format.buffers import Bytes

__all__ = ["deleted_rows", "is_whole_deletion_file"]

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
    view = memoryview(data).cast("B")
    try:
        if path.endswith(".arrow"):
            with pa.ipc.open_file(pa.py_buffer(view)) as file:
                return int(file.read_all().num_rows)
        cardinalities, size = _bitmap(view)
        return sum(cardinalities) if size == len(view) else None
    except (struct.error, pa.ArrowException, OSError):
        return None


def _bitmap(view: memoryview) -> tuple[list[int], int | None]:
    """Return how many numbers the containers of a Roaring bitmap have, and its size in bytes.

    The size is None if no bitmap begins like this.
    """
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
        return [], None
    if count > 1 << 16:
        return [], None
    cardinalities = [int(struct.unpack_from("<HH", view, at + 4 * number)[1]) + 1 for number in range(count)]
    at += 4 * count
    if not runs or count >= _OFFSETS_FROM:
        at += 4 * count
    for number, cardinality in enumerate(cardinalities):
        if runs and runs[number // 8] >> number % 8 & 1:
            at += 2 + 4 * int(struct.unpack_from("<H", view, at)[0])
        else:
            at += 2 * cardinality if cardinality <= _ARRAY_LIMIT else _BITMAP_BYTES
    return cardinalities, at

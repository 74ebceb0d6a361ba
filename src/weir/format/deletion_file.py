"""The rows in a deletion file, and whether its bytes are complete.

Lance table format spec, "Deletion files": rows of a fragment that are deleted, as an Arrow file with one
column, or as a Roaring bitmap in its portable format. A manifest says how many rows there are in one, and not
how large it is; neither kind has a checksum.
"""

from __future__ import annotations

import struct
from typing import cast

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
_FAILURES = (struct.error, ValueError, IndexError, pa.ArrowException, OSError)

_Content = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]


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
            return len(_arrow_offsets(view))
        containers = _containers(view)
        return None if containers is None else sum(rows for _, rows, _ in containers)
    except _FAILURES:
        return None


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
            return np.sort(_arrow_offsets(view)).astype(np.uint32, copy=False)
        containers = _containers(view)
    except _FAILURES:
        return None
    if containers is None:
        return None
    parts = [(_numbers(content) + (key << 16)).astype(np.uint32) for key, _, content in containers]
    return np.concatenate(parts or [np.zeros(0, np.uint32)])


def _arrow_offsets(view: memoryview) -> npt.NDArray[np.generic]:
    with pa.ipc.open_file(pa.py_buffer(view)) as file:
        return cast("npt.NDArray[np.generic]", file.read_all().column(0).to_numpy())


def _containers(view: memoryview) -> list[tuple[int, int, _Content]] | None:
    """Return the containers of a Roaring bitmap: their key, how many numbers are in them, and their content.

    None if none begins like this, if one has more or fewer numbers than the head says, or if more follows.
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
        return None
    if count > 1 << 16:
        return None
    described = np.frombuffer(view, np.uint16, 2 * count, at).reshape(count, 2).astype(np.int64)
    at += 4 * count
    if not runs or count >= _OFFSETS_FROM:
        at += 4 * count
    found: list[tuple[int, int, _Content]] = []
    for number, (key, less_one) in enumerate(described.tolist()):
        content: _Content
        if runs and runs[number // 8] >> number % 8 & 1:
            pairs = int(struct.unpack_from("<H", view, at)[0])
            content = np.frombuffer(view, np.uint16, 2 * pairs, at + 2).reshape(pairs, 2)
            rows = int(content[:, 1].sum(dtype=np.int64)) + pairs
            at += 2
        elif less_one < _ARRAY_LIMIT:
            content = np.frombuffer(view, np.uint16, less_one + 1, at)
            rows = len(content)
        else:
            content = np.frombuffer(view, np.uint8, _BITMAP_BYTES, at)
            rows = int(np.bitwise_count(content.view(np.uint64)).sum())
        if rows != less_one + 1:
            return None
        at += content.nbytes
        found.append((key, rows, content))
    return found if at == len(view) else None


def _numbers(content: _Content) -> npt.NDArray[np.int64]:
    """Return the numbers in a container: the first of runs and how many follow, or numbers, or bits."""
    if content.dtype == np.uint8:
        return np.flatnonzero(np.unpackbits(content.view(np.uint8), bitorder="little"))
    if content.ndim == 1:
        return content.astype(np.int64)
    first, lengths = content[:, 0].astype(np.int64), content[:, 1].astype(np.int64) + 1
    ends = np.cumsum(lengths)
    return np.arange(lengths.sum()) + np.repeat(first - ends + lengths, lengths)

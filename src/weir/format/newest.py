"""The newest row of each primary key, when later rows replace earlier ones.

Lance MemWAL spec, "LSM Tree Merging Read": within one generation the higher row address wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from weir.format.integer_order import integer_order
from weir.format.plain_keys import is_number, plain_keys, stored_keys

__all__ = ["key_codes", "newest_rows"]

_CODE_LIMIT = 2**62


def _codes(column: pa.Array | pa.ChunkedArray) -> tuple[npt.NDArray[np.int64], int]:
    """Return a number per row, equal where the values are equal, and how many numbers there are."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    encoded = pc.dictionary_encode(stored_keys(array), null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), len(encoded.dictionary)


def key_codes(columns: Sequence[pa.Array | pa.ChunkedArray]) -> tuple[npt.NDArray[np.int64], int]:
    """Return a number for every row, the same for rows with the same key.

    Parameters
    ----------
    columns : sequence of Array or ChunkedArray
        The primary-key columns, all of the same length.

    Returns
    -------
    codes : ndarray of int64
        One number per row; equal exactly where the keys are equal.
    count : int
        Every code is below this.
    """
    codes, count = _codes(columns[0])
    for column in columns[1:]:
        more, more_count = _codes(column)
        if count * max(more_count, 1) >= _CODE_LIMIT:
            codes, count = _codes(pa.array(codes))
        codes = codes * more_count + more
        count = count * more_count
    if len(columns) > 1:
        codes, count = _codes(pa.array(codes))
    return codes, count


def newest_rows(columns: Sequence[pa.Array | pa.ChunkedArray]) -> npt.NDArray[np.int64]:
    """Return the offsets, ascending, of the last row of every distinct key.

    Examples
    --------
    >>> import pyarrow as pa
    >>> newest_rows([pa.array([1, 2, 1])]).tolist()
    [1, 2]
    """
    values = _integers(columns)
    if values is not None:
        return _last_of_equal(values)
    codes, count = key_codes(columns)
    if count == len(codes):
        return np.arange(len(codes), dtype=np.int64)
    last = np.empty(count, dtype=np.int64)
    # NumPy assigns in order, so where a code repeats the last row stays.
    last[codes] = np.arange(len(codes), dtype=np.int64)
    return np.sort(last)


def _integers(columns: Sequence[pa.Array | pa.ChunkedArray]) -> npt.NDArray[Any] | None:
    """Return a key of one column that is integers underneath, or None."""
    kind = columns[0].type
    if len(columns) > 1 or columns[0].null_count or not is_number(kind):
        return None
    column = columns[0].combine_chunks() if isinstance(columns[0], pa.ChunkedArray) else columns[0]
    values: npt.NDArray[Any] = plain_keys(column).to_numpy()
    return values


def _last_of_equal(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the offsets, ascending, of the last of all that are equal: in half the time of hashing them."""
    if np.all(values[1:] > values[:-1]):
        return np.arange(len(values), dtype=np.int64)
    order = integer_order(values)
    ascending = values[order]
    is_last = np.ones(len(values), dtype=bool)
    np.not_equal(ascending[1:], ascending[:-1], out=is_last[:-1])
    if is_last.all():
        return np.arange(len(values), dtype=np.int64)
    kept = np.zeros(len(values), dtype=bool)
    kept[order[is_last]] = True
    return np.flatnonzero(kept)

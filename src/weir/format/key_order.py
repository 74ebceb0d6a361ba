"""Sorting of keys, with a fast path for integers."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from weir.format.integer_order import integer_order
from weir.format.plain_keys import is_number, plain_keys, stored_keys

__all__ = ["key_order"]


def key_order(keys: pa.Array) -> pa.Array:
    """Return the rows in the order of their keys, as uint64; rows with equal keys stay in row order.

    Parameters
    ----------
    keys : Array
        A key column without nulls.

    Examples
    --------
    >>> key_order(pa.array(["b", "a", "b"])).to_pylist()
    [1, 0, 2]
    """
    if is_number(keys.type):
        return pa.array(integer_order(plain_keys(keys).to_numpy()).view("uint64"))
    return pc.array_sort_indices(stored_keys(keys))

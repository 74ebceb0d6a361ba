"""Arrow columns as NumPy arrays, without copying where the layout allows it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["fixed_width_values", "valid_mask", "with_nulls"]


def fixed_width_values(array: pa.Array, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the raw values of a fixed-width column as ``dtype``; null slots hold anything.

    Parameters
    ----------
    array : pyarrow.Array
        A column whose values are ``dtype.itemsize`` bytes each; slices are fine.
    dtype : numpy.dtype
        How to read them. The result is read-only and shares the memory of the column.
    """
    data = array.buffers()[1]
    if data is None:
        return np.empty(0, dtype)
    start = array.offset
    return np.frombuffer(data, dtype, start + len(array))[start:]


def valid_mask(array: pa.Array) -> NDArray[np.bool_] | None:
    """Return which rows are not null, or None when all are."""
    if array.null_count == 0:
        return None
    mask: NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return mask


def with_nulls(values: NDArray[Any], valid: NDArray[np.bool_] | None) -> pa.Array:
    """Return ``values`` as a column that is null where ``valid`` is False."""
    return pa.array(values) if valid is None else pa.array(values, mask=~valid)

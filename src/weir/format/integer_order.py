"""Sorting of integers: most keys are integers, and every generation sorts its keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["integer_order"]

_DIGIT_BITS = 16
_MOST_PASSES = 3
"""What more passes take, a sort by comparison takes less."""
_STRETCH = 64
"""Where so many rows and more ascend, one stretch after the other, the stretches are merged."""


def integer_order(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the offsets of integers in ascending order; equal ones stay in the order they have.

    A radix sort: it takes as many passes as the difference between the largest and the smallest has 16 bits.
    Input with long sorted runs is merged instead, in a third of the time or less.

    Parameters
    ----------
    values : ndarray
        Of any integer type.

    Examples
    --------
    >>> integer_order(np.array([30, -10, 20, -10])).tolist()
    [1, 3, 2, 0]
    """
    if not len(values):
        return np.empty(0, np.int64)
    if np.count_nonzero(values[1:] < values[:-1]) * _STRETCH < len(values):
        return np.argsort(values, kind="stable")
    # Differences from the smallest, which wrap to the right value, whatever the sign.
    wide = values if values.dtype == np.uint64 else values.astype(np.int64, copy=False).view(np.uint64)
    distances = wide - wide[values.argmin()]
    span = int(distances.max())
    if span.bit_length() > _MOST_PASSES * _DIGIT_BITS:
        return np.argsort(values, kind="stable")
    # Up to 16 bits, NumPy's stable sort is a radix sort.
    order = np.argsort(distances.astype(np.uint16), kind="stable")
    for shift in range(_DIGIT_BITS, span.bit_length(), _DIGIT_BITS):
        digits = (distances >> np.uint64(shift)).astype(np.uint16)
        order = order[np.argsort(digits[order], kind="stable")]
    return order

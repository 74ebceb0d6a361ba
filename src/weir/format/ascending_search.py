"""Finding many values among ascending ones, more of them than the processor's caches hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["first_places"]

_PAGE = 4096
_LARGE = 1 << 20
"""From so many values on, a search spends most of its time waiting for memory."""
_MANY = 256


def first_places(values: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return where some values would go among ascending ones, before those that equal them.

    The answer of ``values.searchsorted(wanted)``. Among many values, all searches take each step together:
    one after the other waits for memory at every step of every search.

    Parameters
    ----------
    values, wanted : ndarray
        Integers of the same type, ``values`` ascending.

    Examples
    --------
    >>> first_places(np.array([10, 20, 20, 30]), np.array([20, 25, 40])).tolist()
    [1, 3, 4]
    """
    if len(values) < _LARGE or len(wanted) < _MANY:
        return values.searchsorted(wanted).astype(np.int64, copy=False)
    pages = values[_PAGE - 1 :: _PAGE].searchsorted(wanted).astype(np.int64, copy=False)
    # Of the page that has the place, all before `at` are known to be less.
    at = pages * _PAGE
    step = _PAGE // 2
    while step:
        # Behind the end stands the last value: where that is less too, the place is the end.
        at += step * (values.take(at + (step - 1), mode="clip") < wanted)
        step //= 2
    return np.minimum(at, len(values), out=at)

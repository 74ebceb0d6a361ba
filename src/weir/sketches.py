"""Sketches for columns that a merge engine aggregates with ``"distinct_sketch"``.

They count distinct values, up to 4,096 of them exactly and more with an error of some 1.6 %, in at most
32 KiB. Theta sketches of Apache DataSketches; needs the extra ``sketches``.

Examples
--------
>>> from weir import sketches
>>> sketches.estimate(sketches.union([sketches.of(["paris", "rome"]), sketches.of(["rome"])]))
2.0
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from weir.errors import InputError
from weir.format.distinct_sketch import estimate_of, sketch_of, union_of

__all__ = ["estimate", "estimates", "of", "union"]


def of(values: pa.Array | pa.ChunkedArray | Sequence[Any] | np.ndarray[Any, Any]) -> bytes:
    """Return the sketch of some values: numbers, texts, times or booleans of one type.

    Parameters
    ----------
    values : array-like
        The values; nulls do not count.

    Raises
    ------
    InputError
        If they are of another type, or the extra ``sketches`` is not installed.
    """
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return sketch_of(values)
    try:
        return sketch_of(pa.array(values))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"the values of a sketch are a list of one type: {error}", where="values") from error


def union(sketches: Iterable[bytes]) -> bytes:
    """Return the sketch of all values that some sketches count.

    Parameters
    ----------
    sketches : iterable of bytes
        The sketches.

    Raises
    ------
    InputError
        If one is no sketch.
    """
    return union_of(sketches)


def estimate(sketch: bytes) -> float:
    """Return about how many distinct values a sketch counts.

    Parameters
    ----------
    sketch : bytes
        The sketch.

    Raises
    ------
    InputError
        If it is no sketch.
    """
    return estimate_of(sketch)


def estimates(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the estimates of a column of sketches, null where there is none.

    Parameters
    ----------
    column : Array or ChunkedArray
        The sketches, as a scan returns them.

    Raises
    ------
    InputError
        If one is no sketch.
    """
    found = [None if value is None else estimate_of(value) for value in column.to_pylist()]
    return pa.array(found, pa.float64())

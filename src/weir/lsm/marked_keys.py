"""Which of some sets of numbers have a number: one look into a table, where all lie close together.

A binary search takes tens of steps for each of many numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.base.ordered_values import searchable

__all__ = ["MarkedKeys", "lie_close"]

_MOST_SETS = 64
_MOST_BYTES = 16 << 20

Numbers = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class MarkedKeys:
    """Sets of keys that lie close together. Made by :meth:`of`.

    Parameters
    ----------
    low : Any
        The least key, as an unsigned number.
    marks : ndarray
        For each number from there on a bit for every set, and behind the last one without.
    """

    low: Any
    marks: Numbers

    @classmethod
    def of(cls, sets: Sequence[pa.Array]) -> MarkedKeys | None:
        """Return some sets of keys of one type, without nulls; None unless they are numbers that lie close.

        Examples
        --------
        >>> MarkedKeys.of([pa.array([5, 7]), pa.array([7])]).marks_of(np.array([4, 5, 7])).tolist()
        [0, 1, 3]
        """
        numbers = [searchable(one) for one in sets]
        span = _span(numbers)
        if span is None or len(sets) > _MOST_SETS:
            return None
        low = min(one.min() for one in numbers if len(one))
        kind = np.min_scalar_type((1 << len(sets)) - 1)
        if span * kind.itemsize > _MOST_BYTES:
            return None
        marked = cls(_unsigned(np.asarray(low)), np.zeros(span + 1, kind))
        for at, one in enumerate(numbers):
            # A key may be there several times, always with the same bit.
            marked.marks[marked._places(one)] |= kind.type(1 << at)
        return marked

    def marks_of(self, numbers: Numbers) -> Numbers:
        """Return for each of some numbers, of the type of the keys, a bit for every set that has it."""
        found: Numbers = self.marks[self._places(numbers)]
        return found

    def _places(self, numbers: Numbers) -> npt.NDArray[np.intp]:
        # Those below the least wrap around, and are then above the greatest.
        above = (_unsigned(numbers) - self.low).astype(np.uint64, copy=False)
        places: npt.NDArray[np.intp] = np.minimum(above, np.uint64(len(self.marks) - 1)).astype(np.intp)
        return places


def lie_close(keys: pa.Array) -> bool:
    """Whether keys, without nulls, are numbers that lie close together."""
    span = _span([searchable(keys)])
    return span is not None and span <= _MOST_BYTES


def _span(sets: Sequence[Any]) -> int | None:
    """Return how many numbers lie between the least and the greatest, and these; None of no numbers."""
    if not all(isinstance(one, np.ndarray) for one in sets):
        return None
    ends = [(int(one.min()), int(one.max())) for one in sets if len(one)]
    return max(high for _, high in ends) - min(low for low, _ in ends) + 1 if ends else None


def _unsigned(numbers: Numbers) -> Numbers:
    return numbers.view(f"u{numbers.dtype.itemsize}")

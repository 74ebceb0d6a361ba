"""Values of a key that ascend, as NumPy or Arrow searches them."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from weir.format.ascending_search import first_places
from weir.format.plain_keys import plain_keys

__all__ = ["Offsets", "Values", "count_distinct", "in_ranges", "places_of", "rows_with", "searchable"]

Offsets = npt.NDArray[np.int64]

Values: TypeAlias = npt.NDArray[Any] | pa.Array
"""Values of the key: as NumPy sees them where it sees integers, else as Arrow has them."""


def searchable(values: pa.Array) -> Values:
    """Return values of a key in the form that is searched."""
    values = plain_keys(values)
    # NumPy takes a tenth of the time that Arrow takes to search for one value.
    return values.to_numpy() if pa.types.is_integer(values.type) and not values.null_count else values


def places_of(values: Values, wanted: Values, side: Literal["left", "right"]) -> Offsets:
    """Return where some values would go among values that ascend."""
    found: Offsets
    if isinstance(values, np.ndarray):
        if side == "left" and isinstance(wanted, np.ndarray):
            return first_places(values, wanted)
        found = values.searchsorted(wanted, side=side)
        return found
    found = pc.search_sorted(values, wanted, side=side).to_numpy().astype(np.int64)
    return found


def count_distinct(values: Values) -> int:
    """Return how many values there are among some that ascend, at least one."""
    found = np.unique(values) if isinstance(values, np.ndarray) else pc.unique(values)
    return max(len(found), 1)


def rows_with(values: Values, keys: Values) -> tuple[Offsets, Offsets]:
    """Return which keys are among ascending values, and where, each as often as it occurs."""
    low = places_of(values, keys, "left")
    (which,) = _are_at(values, low, keys).nonzero()
    rows = low[which]
    if not which.size:
        return which, rows
    wanted = keys[which] if isinstance(keys, np.ndarray) else keys.take(pa.array(which))
    # Values of a key repeat where rows are there no more, and where the key has other columns.
    after = rows + 1
    if (_are_at(values, after, wanted) & (after < len(values))).any():
        counts = places_of(values, wanted, "right") - rows
        ends = np.cumsum(counts)
        rows = np.repeat(rows - (ends - counts), counts) + np.arange(ends[-1])
        which = np.repeat(which, counts)
    return which, rows


def _are_at(values: Values, places: Offsets, wanted: Values) -> npt.NDArray[np.bool_]:
    """Return whether values are at places among others; what is behind the last counts as the last."""
    if not len(values):
        return np.zeros(len(places), dtype=bool)
    found: npt.NDArray[np.bool_]
    if isinstance(values, np.ndarray):
        found = values.take(places, mode="clip") == wanted
    else:
        there = values.take(pa.array(np.minimum(places, len(values) - 1)))
        found = pc.equal(there, wanted).fill_null(False).to_numpy(zero_copy_only=False)
    return found


def in_ranges(first: Offsets, end: Offsets) -> list[int]:
    """Return the numbers that lie in some of the ranges, ascending."""
    if len(first) == 1:
        return list(range(int(first[0]), int(end[0])))
    inside = first < end
    if not inside.any():
        return []
    depth = np.zeros(int(end.max()) + 1, dtype=np.int64)
    np.add.at(depth, first[inside], 1)
    np.add.at(depth, end[inside], -1)
    return [int(at) for at in np.flatnonzero(np.cumsum(depth))]

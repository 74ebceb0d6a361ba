"""Interpolation search: guesses where integer keys are among ascending rows, so that few are read for each.

Keys that are spread about evenly over a page are near the row that their value suggests. What was read around
that row says for certain whether the guess was right: if it begins below the key and ends above it, no other
row can have the key. Keys of which that is not so have to be looked for in all of the page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["GuessedRows"]

Keys = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class GuessedRows:
    """The rows to read for some keys. Made by :meth:`guess`.

    Parameters
    ----------
    rows : ndarray of int64
        The rows, ascending and each once.
    start, stop : ndarray of int64
        For each key, which of them are read for it: offsets of the first and the one behind the last.
    is_first, is_last : ndarray of bool
        Whether those reach the first or last row that may have the key.
    """

    rows: Rows
    start: Rows
    stop: Rows
    is_first: npt.NDArray[np.bool_]
    is_last: npt.NDArray[np.bool_]

    @classmethod
    def guess(cls, keys: Keys, low: Keys, high: Keys, begin: Rows, end: Rows) -> GuessedRows:
        """Guess where keys are, each among rows whose least and greatest value are known.

        Parameters
        ----------
        keys : ndarray of integers
            The keys, ascending.
        low, high : ndarray of integers
            For each key, the value of the first and last row that may have it.
        begin, end : ndarray of int64
            For each key, the first row that may have it and the one behind the last. Those of different keys
            are the same or do not overlap.
        """
        # Unsigned, in which a difference is exact even if it does not fit a signed number.
        above, span = (one.astype(np.uint64) - low.astype(np.uint64) for one in (keys, high))
        share = above / np.maximum(span, np.uint64(1))
        there = begin + (share * (end - begin - 1)).astype(np.int64)
        # Of keys drawn at random nearly all are within four standard deviations.
        margin = 2 * np.ceil(np.sqrt(end - begin)).astype(np.int64)
        first, behind = np.maximum(begin, there - margin), np.minimum(end, there + margin + 1)
        own = np.maximum(first, np.concatenate([first[:1], behind[:-1]]))
        counts = behind - own
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        rows = np.repeat(own - (ends - counts), counts) + np.arange(total)
        return cls(rows, ends - (behind - first), ends, first == begin, behind == end)

    def are_certain(self, keys: Keys, values: Keys) -> npt.NDArray[np.bool_]:
        """Return for which keys no other rows can have them.

        Parameters
        ----------
        keys : ndarray of integers
            The keys.
        values : ndarray of integers
            The values of the rows that were read, which ascend.
        """
        begins_below = self.is_first | (values[self.start] < keys)
        found: npt.NDArray[np.bool_] = begins_below & (self.is_last | (values[self.stop - 1] > keys))
        return found

"""Conditions of many rows of one key, evaluated before it is known which rows they meet.

Rows of one key are decided one after the other, and evaluating an expression takes about as long for one row
as for a thousand. So it is evaluated for all rows at once under two guesses: that the previous row was done,
and that no row was done so far. A result is used only if the row it was evaluated against is the present one
when its turn comes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from weir.errors import InputError

__all__ = ["LOOKED_UP", "Foresight"]

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

LOOKED_UP = -1
"""The present row of a key before the group, as looked up."""

_NEVER = -2
_NONE = -1
_AHEAD = 1024
_MOST_KEYS = 64
"""How many keys are looked ahead for in one round; with more, each evaluation has many rows anyway."""


class Foresight:
    """The results of conditions for the rows of a group.

    Parameters
    ----------
    keys : ndarray of int64
        The number of each row's key.
    shapes : ndarray of int64
        The shape number of each row; equal for rows with the same condition.
    whole : ndarray of bool
        Whether each row, if it is done, is there as it is.
    """

    def __init__(self, keys: Rows, shapes: Rows, whole: Mask) -> None:
        self._keys, self._shapes = keys, shapes
        count = len(keys)
        self._order = np.lexsort((np.arange(count), keys))
        self._place = np.empty(count, dtype=np.int64)
        self._place[self._order] = np.arange(count)
        before = np.full(count, _NONE, dtype=np.int64)
        before[self._order[1:]] = self._order[:-1]
        follows = before >= 0
        follows[follows] = (keys[before] == keys)[follows] & whole[before][follows]
        self._before = np.where(follows, before, _NONE)
        # By guess: which row it was evaluated against, and what came of it.
        self._against = [np.full(count, _NEVER, dtype=np.int64) for _ in range(2)]
        self._holds = [np.zeros(count, dtype=np.bool_) for _ in range(2)]
        self._chained: set[int] = set()
        self._is_off = False

    def holds(
        self,
        rows: Rows,
        there: Rows,
        evaluate: Callable[[Rows, Rows], Mask],
        evaluate_after: Callable[[Rows, Rows], Mask],
    ) -> Mask:
        """Return for which rows, all of one shape and no two of one key, their condition holds.

        Parameters
        ----------
        rows : ndarray of int64
            The rows.
        there : ndarray of int64
            Which row of the group is there of each key by now; :data:`LOOKED_UP` for none.
        evaluate : callable
            Takes rows, and for each of them which of ``rows`` has the present row it is evaluated against.
        evaluate_after : callable
            Takes rows, and for each of them another one, against which it is evaluated.
        """
        found = np.zeros(len(rows), dtype=np.bool_)
        missing = self._fill(rows, there, found)
        if missing.any() and not self._is_off:
            try:
                self._look_ahead(rows, there, missing, evaluate, evaluate_after)
                missing = self._fill(rows, there, found)
            except InputError:
                # A guess need not be a row that ever meets the condition: each is evaluated by itself.
                self._is_off = True
        if missing.any():
            places = np.flatnonzero(missing)
            found[places] = evaluate(rows[places], places)
        return found

    def _fill(self, rows: Rows, there: Rows, found: Mask) -> Mask:
        """Use the known results; return the rows without one."""
        missing = np.ones(len(rows), dtype=np.bool_)
        for against, holds in zip(self._against, self._holds, strict=True):
            known = against[rows] == there
            found[known] = holds[rows[known]]
            missing &= ~known
        return missing

    def _look_ahead(
        self,
        rows: Rows,
        there: Rows,
        missing: Mask,
        evaluate: Callable[[Rows, Rows], Mask],
        evaluate_after: Callable[[Rows, Rows], Mask],
    ) -> None:
        shape = int(self._shapes[rows[0]])
        if shape not in self._chained and (there >= 0).any():
            self._chained.add(shape)
            mine = np.flatnonzero((self._shapes == shape) & (self._before != _NONE))
            self._holds[0][mine] = evaluate_after(mine, self._before[mine])
            self._against[0][mine] = self._before[mine]
            missing = missing & (self._against[0][rows] != there)
        places = np.flatnonzero(missing)
        if not 0 < len(places) <= _MOST_KEYS:
            return
        ahead = [self._following(int(rows[at]), shape) for at in places]
        of = np.repeat(places, [len(one) for one in ahead])
        later = np.concatenate(ahead)
        self._holds[1][later] = evaluate(later, of)
        self._against[1][later] = there[of]

    def _following(self, row: int, shape: int) -> Rows:
        """Return a row and those of its key and shape that follow it."""
        start = self._place[row]
        found = self._order[start : start + _AHEAD]
        same: Rows = found[(self._keys[found] == self._keys[row]) & (self._shapes[found] == shape)]
        return same

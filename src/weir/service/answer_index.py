"""Which keys have a note in a file, and where it begins: sorted arrays, and a dict of the newest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["KEY_DIGITS", "AnswerIndex", "lines_of", "number_of"]

KEY_DIGITS = 64
"""Hex digits of a key, with which a note begins."""

_NUMBER_DIGITS = 16
_LEAST_FOLDED = 4096
_FOLDED_SHARE = 8

_Numbers = npt.NDArray[np.uint64]
_Places = npt.NDArray[np.int64]


def number_of(key: str) -> int:
    """Return the number that stands for a key: its first 64 bits."""
    return int(key[:_NUMBER_DIGITS], 16)


def lines_of(block: bytes) -> tuple[_Numbers, _Places, int]:
    r"""Return the numbers of the keys of the notes in a block, where they begin, and where the last one ends.

    Examples
    --------
    >>> numbers, begins, used = lines_of(b"0" * 15 + b"a" + b"0" * 48 + b" {}\n" + b"torn")
    >>> numbers.tolist(), begins.tolist(), used
    ([10], [0], 68)
    """
    data = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    begins = np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1]) if len(ends) else ends
    used = int(ends[-1]) + 1 if len(ends) else 0
    begins = begins[ends - begins > KEY_DIGITS]
    digits = data[begins[:, None] + np.arange(_NUMBER_DIGITS)]
    # "0" is 0x30 and "a" is 0x61: of letters, bit 6 is set.
    values = ((digits & 15) + 9 * (digits >> 6)).astype(np.uint64)
    shifts = np.arange(4 * (_NUMBER_DIGITS - 1), -1, -4, dtype=np.uint64)
    return np.bitwise_or.reduce(values << shifts, axis=1), begins, used


class AnswerIndex:
    """Where the newest note of each key begins.

    Examples
    --------
    >>> index = AnswerIndex()
    >>> index.add([7, 9], [0, 100])
    >>> index.add([7], [200])
    >>> index.find([7, 8, 9])
    {7: 200, 9: 100}
    """

    def __init__(self) -> None:
        self._numbers: _Numbers = np.empty(0, np.uint64)
        self._begins: _Places = np.empty(0, np.int64)
        self._newest: dict[int, int] = {}

    def __len__(self) -> int:
        """Return the number of notes that are known."""
        return len(self._numbers) + len(self._newest)

    def find(self, numbers: Sequence[int]) -> dict[int, int]:
        """Return where the newest note of each begins; those without one are left out."""
        found: dict[int, int] = {}
        if len(self._numbers):
            asked = np.array(numbers, np.uint64)
            at, is_there = self._places_of(asked)
            found.update(zip(asked[is_there].tolist(), self._begins[at[is_there]].tolist(), strict=True))
        if self._newest:
            newest = self._newest
            found.update((number, newest[number]) for number in numbers if number in newest)
        return found

    def add(self, numbers: Sequence[int] | _Numbers, begins: Sequence[int] | _Places) -> None:
        """Add notes in the order in which they were written."""
        if isinstance(numbers, np.ndarray):
            numbers, begins = numbers.tolist(), np.asarray(begins).tolist()
        self._newest.update(zip(numbers, begins, strict=True))
        if len(self._newest) > max(_LEAST_FOLDED, len(self._numbers) // _FOLDED_SHARE):
            self._fold()

    def _fold(self) -> None:
        count = len(self._newest)
        numbers = np.fromiter(self._newest.keys(), np.uint64, count)
        begins = np.fromiter(self._newest.values(), np.int64, count)
        self._newest = {}
        order = np.argsort(numbers)
        numbers, begins = numbers[order], begins[order]
        at, is_there = self._places_of(numbers)
        self._begins[at[is_there]] = begins[is_there]
        at, is_new = at[~is_there], ~is_there
        self._numbers = np.insert(self._numbers, at, numbers[is_new])
        self._begins = np.insert(self._begins, at, begins[is_new])

    def _places_of(self, numbers: _Numbers) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
        """Return where each is or belongs among the sorted ones, and whether it is there."""
        at = np.searchsorted(self._numbers, numbers)
        is_there = at < len(self._numbers)
        is_there[is_there] = self._numbers[at[is_there]] == numbers[is_there]
        return at, is_there

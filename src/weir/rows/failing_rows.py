"""Which of many rows fail, found in few attempts: rows that work together are not looked at one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

__all__ = ["Refused", "all_failing", "first_failing", "first_refused"]


class Refused(NamedTuple):
    """The first row that is refused, and what is said of it."""

    row: int
    error: Exception


def first_refused(rows: int, check: Callable[[int, int], object]) -> Refused | None:
    """Return the first of ``rows`` rows that is refused; None if none is by itself.

    Parameters
    ----------
    rows : int
        Number of rows.
    check : callable
        Raises for the rows from one number up to another, not included, if one of them is refused.

    Examples
    --------
    >>> first_refused(3, lambda start, stop: [1 / n for n in [2, 1, 0][start:stop]])
    Refused(row=2, error=ZeroDivisionError('division by zero'))
    """
    row = first_failing(rows, lambda start, stop: _raised(check, start, stop) is None)
    error = _raised(check, row, row + 1)
    return None if error is None else Refused(row, error)


def _raised(check: Callable[[int, int], object], start: int, stop: int) -> Exception | None:
    try:
        check(start, stop)
    except Exception as error:
        # Whatever it is: who asks decides what becomes of it.
        return error
    return None


def first_failing(count: int, works: Callable[[int, int], bool]) -> int:
    """Return the first of ``count`` rows that fails, given that some row does.

    Parameters
    ----------
    count : int
        Number of rows, at least 1.
    works : callable
        Whether the rows from one number up to another, not included, all work.

    Examples
    --------
    >>> first_failing(100, lambda start, stop: not start <= 37 < stop)
    37
    """
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        if works(low, middle):
            low = middle
        else:
            high = middle
    return low


def all_failing(count: int, works: Callable[[int, int], bool]) -> list[int]:
    """Return all of ``count`` rows that fail by themselves, in their order.

    Few of many are found in few attempts: rows that work together are not looked at one by one.

    Parameters
    ----------
    count : int
        Number of rows.
    works : callable
        Whether the rows from one number up to another, not included, all work.

    Examples
    --------
    >>> all_failing(100, lambda start, stop: not {3, 37, 38} & set(range(start, stop)))
    [3, 37, 38]
    """
    found = []
    spans = [(0, count)] if count else []
    while spans:
        start, stop = spans.pop()
        if works(start, stop):
            continue
        if stop - start == 1:
            found.append(start)
            continue
        middle = (start + stop) // 2
        spans += [(middle, stop), (start, middle)]
    return found

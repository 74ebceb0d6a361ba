"""Which cases of a parametrized test run with every change, and which with the long tests alone.

A test has its cases listed whole, and says with a mark how many of them are enough for the short run:

``@pytest.mark.covering``
    Every value of every parameter is there once. Of ten types with two places each, ten cases are left
    of twenty.
``@pytest.mark.one_in(n)``
    One case in so many, the first among them: of seeds, which are all alike.

The others are marked ``long``. Nothing is drawn: the same cases run every time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import pytest

__all__ = ["covering", "mark_long"]


def mark_long(items: Iterable[pytest.Item]) -> None:
    """Mark the cases that the short run does without as ``long``.

    Parameters
    ----------
    items : iterable of pytest.Item
        What was collected, in any order.
    """
    by_test: dict[str, list[pytest.Function]] = {}
    for item in items:
        if not isinstance(item, pytest.Function) or item.get_closest_marker("long") is not None:
            continue
        if any(item.get_closest_marker(name) is not None for name in ("covering", "one_in")):
            by_test.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in by_test.values():
        share = cases[0].get_closest_marker("one_in")
        if share is not None:
            kept = set(range(0, len(cases), share.args[0]))
        else:
            kept = covering([_values(case) for case in cases])
        for number, case in enumerate(cases):
            if number not in kept:
                case.add_marker("long")


def covering(cases: Sequence[Mapping[Any, Hashable]]) -> set[int]:
    """Return the positions of cases that have every value of every parameter at least once.

    Parameters
    ----------
    cases : sequence of mapping
        Which of its values each parameter has.

    Examples
    --------
    >>> pairs = [{"kind": kind, "merged": merged} for kind in range(3) for merged in range(2)]
    >>> [pairs[case] for case in sorted(covering(pairs))]
    [{'kind': 0, 'merged': 0}, {'kind': 1, 'merged': 1}, {'kind': 2, 'merged': 0}]
    """
    missing = {pair for case in cases for pair in case.items()}
    times = dict.fromkeys(missing, 0)
    kept: set[int] = set()

    def worth(number: int) -> tuple[int, int, int]:
        """Have first what is missing, then what has been there least, such as each of two places in turn."""
        values = cases[number].items()
        return len(missing & values), -sum(times[pair] for pair in values), -number

    while missing:
        most = max(range(len(cases)), key=worth)
        kept.add(most)
        missing -= cases[most].items()
        for pair in cases[most].items():
            times[pair] += 1
    return kept


def _values(case: pytest.Function) -> Mapping[Hashable, Hashable]:
    """Return which values a case has, by parameter; those that are listed together count as one.

    They need not be equal to anything, nor have a hash: a value is the same object in all cases that have it.
    """
    given = dict(case.callspec.params)
    values: dict[Hashable, Hashable] = {}
    for mark in case.iter_markers("parametrize"):
        listed = mark.args[0]
        names = listed.replace(",", " ").split() if isinstance(listed, str) else listed
        values[tuple(names)] = tuple(id(given.pop(name)) for name in names)
    return values | {name: id(value) for name, value in given.items()}

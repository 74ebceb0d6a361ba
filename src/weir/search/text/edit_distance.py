"""Words within a small edit distance of another."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["words_within"]


def words_within(words: Iterable[str], word: str, distance: int, prefix_length: int) -> list[str]:
    """Return the words that become another by at most ``distance`` insertions, removals and changes.

    Parameters
    ----------
    prefix_length : int
        Letters at the beginning that have to be equal.

    Examples
    --------
    >>> words_within(["cat", "cart", "cut", "dog"], "cat", 1, 0)
    ['cat', 'cart', 'cut']
    >>> words_within(["cat", "cart", "cut"], "cat", 1, 2)
    ['cat', 'cart']
    """
    prefix = word[:prefix_length]
    close = (one for one in words if abs(len(one) - len(word)) <= distance and one.startswith(prefix))
    return [one for one in close if _is_within(one, word, distance)]


def _is_within(one: str, other: str, distance: int) -> bool:
    before = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        current = [row]
        for column, its in enumerate(other, 1):
            current.append(min(before[column] + 1, current[-1] + 1, before[column - 1] + (letter != its)))
        if min(current) > distance:
            return False
        before = current
    return before[-1] <= distance

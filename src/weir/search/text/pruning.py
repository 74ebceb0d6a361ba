"""The best rows of a text search, without scoring those that cannot be among them.

A word adds no more to a score than it does where it is most frequent in the shortest text. So the rows of the
words that can add most are scored first, which have few rows, since rare words weigh most. As soon as enough
of them score more than all other words together can add, no row that has only those can be among the best.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from weir.search.text.bm25 import Statistics
from weir.search.text.match import Node, Words
from weir.search.text.task import Scores, TextCandidates, least_of_best

__all__ = ["WordRows", "best_candidates"]

Rows = npt.NDArray[Any]

WordRows = tuple[Rows, npt.NDArray[np.int32]]
"""The rows that a word occurs in, ascending, and how often it does."""

_ROUNDING = 1 + 1e-5


def best_candidates(
    node: Node,
    known: Mapping[str, Mapping[str, WordRows]],
    statistics: Mapping[str, Statistics],
    shortest: Mapping[str, int],
    best: Callable[[Rows], TextCandidates],
    k: int,
    others: Scores,
) -> TextCandidates:
    """Return the ``k`` best of the rows that a query finds, without those that are of no use.

    Parameters
    ----------
    node : Words, Phrase, AnyOf, Combined or Boosted
        The query.
    known : mapping of str to mapping of str to WordRows
        By column and word of the query.
    statistics : mapping of str to Statistics
        By column: the corpus statistics of the table.
    shortest : mapping of str to int
        By column: at most the words of the shortest text that has any.
    best : callable
        Returns the ``k`` best of some rows, which ascend, or all if there are fewer, of the live ones.
    k : int
        Rows to find.
    others : ndarray of float32
        Scores of the best rows elsewhere. Rows here that are no better than ``k`` of them are of no use.
    """
    lists = [found for words in known.values() for found, _ in words.values()]
    if not isinstance(node, Words) or len(lists) < 2:
        return best(_union(lists))
    words = known[node.column]
    if node.every:
        fewest = min(node.groups, key=lambda group: sum(len(words[word][0]) for word in group))
        return best(_union([words[word][0] for word in fewest]))
    bounds = _bounds(node, words, statistics[node.column], shortest[node.column])
    ordered = sorted(words, key=lambda word: bounds[word], reverse=True)
    least = least_of_best(others, k)
    chosen: list[Rows] = []
    found: TextCandidates | None = None
    for at, word in enumerate(ordered):
        if sum(bounds[one] for one in ordered[at:]) * _ROUNDING < least:
            break
        chosen.append(words[word][0])
        found = None
        following = sum(len(words[one][0]) for one in ordered[at + 1 :])
        # Scoring the remaining rows would take as long as what it may save.
        if following > sum(map(len, chosen)):
            found = best(_union(chosen))
            least = max(least, least_of_best(np.concatenate([found.score, others]), k))
    return best(_union(chosen)) if found is None else found


def _bounds(
    node: Words, words: Mapping[str, WordRows], statistics: Statistics, shortest: int
) -> dict[str, float]:
    """Return how much each word can add to a score at most."""
    bounds = dict.fromkeys(words, 0.0)
    for group in node.groups:
        for word in group:
            most = int(words[word][1].max(initial=0))
            if most:
                heaviest = statistics.weight(most, shortest)
                bounds[word] += node.boost * statistics.idf(word) * heaviest
    return bounds


def _union(lists: Sequence[Rows]) -> Rows:
    if len(lists) == 1:
        return lists[0]
    # The lists ascend, which this sort makes use of.
    every = np.sort(np.concatenate(lists), kind="stable") if lists else np.zeros(0, dtype=np.int64)
    first = np.ones(len(every), dtype=bool)
    np.not_equal(every[1:], every[:-1], out=first[1:])
    return every[first]

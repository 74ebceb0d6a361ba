"""Matching and scoring of texts by a full-text query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from weir.search.text.bm25 import Statistics
from weir.search.text.tokenizer import Texts

__all__ = [
    "AnyOf",
    "Boosted",
    "Combined",
    "Node",
    "Phrase",
    "Texts",
    "Words",
    "has_phrases",
    "score",
    "words_of",
]

Scores = npt.NDArray[np.float64]
Found = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Words:
    """A match with its words.

    Parameters
    ----------
    column : str
        The column.
    groups : tuple of tuple of str
        Per word of the query the words that count for it: itself, or what a fuzzy one matches.
    every : bool
        Whether each group has to occur.
    boost : float
        What the score is multiplied by.
    """

    column: str
    groups: tuple[tuple[str, ...], ...]
    every: bool
    boost: float


@dataclass(frozen=True, slots=True)
class Phrase:
    """Words one after the other.

    Parameters
    ----------
    column : str
        The column.
    words : tuple of (str, int)
        The words and their positions.
    slop : int
        How many others may stand between two of them.
    """

    column: str
    words: tuple[tuple[str, int], ...]
    slop: int


@dataclass(frozen=True, slots=True)
class AnyOf:
    """The best of several matches."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Combined:
    """A boolean query."""

    must: tuple[Node, ...]
    should: tuple[Node, ...]
    must_not: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Boosted:
    """A query, and one that takes something off its score."""

    positive: Node
    negative: Node
    negative_boost: float


Node = Words | Phrase | AnyOf | Combined | Boosted


def words_of(node: Node) -> dict[str, set[str]]:
    """Return the words of a query by column: a row that it finds has one of them."""
    found: dict[str, set[str]] = {}
    if isinstance(node, Words):
        return {node.column: {word for group in node.groups for word in group}}
    if isinstance(node, Phrase):
        return {node.column: {word for word, _ in node.words}}
    for child in _children(node):
        for column, words in words_of(child).items():
            found.setdefault(column, set()).update(words)
    return found


def has_phrases(node: Node) -> bool:
    """Whether a query looks for adjacent words, which posting lists do not record."""
    if isinstance(node, Phrase):
        return len(node.words) > 1
    return any(has_phrases(child) for child in _children(node))


def _children(node: Node) -> tuple[Node, ...]:
    if isinstance(node, AnyOf):
        return node.nodes
    if isinstance(node, Boosted):
        return (node.positive, node.negative)
    if isinstance(node, Combined):
        return (*node.must, *node.should, *node.must_not)
    return ()


def score(
    node: Node, texts: Mapping[str, Texts], statistics: Mapping[str, Statistics]
) -> tuple[Scores, Found]:
    """Return the score of every row, and whether the query finds it.

    Parameters
    ----------
    node : Words, Phrase, AnyOf, Combined or Boosted
        The query.
    texts : mapping of str to Texts
        By column: the texts of the rows.
    statistics : mapping of str to Statistics
        By column: the corpus statistics of the table.
    """
    if isinstance(node, Words):
        return _words(node, texts[node.column], statistics[node.column])
    if isinstance(node, Phrase):
        return _phrase(node, texts[node.column], statistics[node.column])
    if isinstance(node, AnyOf):
        pairs = [score(one, texts, statistics) for one in node.nodes]
        best = np.maximum.reduce([np.where(found, scores, -np.inf) for scores, found in pairs])
        found = np.logical_or.reduce([found for _, found in pairs])
        return np.where(found, best, 0.0), found
    if isinstance(node, Boosted):
        scores, found = score(node.positive, texts, statistics)
        less, other = score(node.negative, texts, statistics)
        return scores - np.where(other, node.negative_boost * less, 0.0), found
    return _combined(node, texts, statistics)


def _words(node: Words, texts: Texts, statistics: Statistics) -> tuple[Scores, Found]:
    total = np.zeros(len(texts))
    hits = np.zeros(len(texts), dtype=np.int32)
    for group in node.groups:
        occurs = np.zeros(len(texts), dtype=bool)
        for word in group:
            rows, counts = texts.occurrences(word)
            if len(rows):
                weight = statistics.weights(counts, texts.lengths[rows])
                total[rows] += statistics.idf(word) * weight
                occurs[rows] = True
        hits += occurs
    found: Found = (hits == len(node.groups)) if node.every else (hits > 0)
    return total * node.boost, found


def _phrase(node: Phrase, texts: Texts, statistics: Statistics) -> tuple[Scores, Found]:
    words = Words(node.column, tuple((word,) for word, _ in node.words), True, 1.0)
    scores, found = _words(words, texts, statistics)
    rows = np.flatnonzero(found)
    if len(node.words) > 1 and len(rows):
        for row, text in zip(rows.tolist(), texts.take(rows).to_pylist(), strict=True):
            found[row] = _stand_together(node, texts.tokenizer.tokens(text))
    return scores, found


def _stand_together(node: Phrase, tokens: list[tuple[str, int]]) -> bool:
    """Whether some occurrences of the words are in order and close enough."""
    reached: set[int] | None = None
    for word, place in node.words:
        starts = {position - place for token, position in tokens if token == word}
        if reached is not None:
            starts = {one for one in starts if any(0 <= one - before <= node.slop for before in reached)}
        if not starts:
            return False
        reached = starts
    return True


def _combined(
    node: Combined, texts: Mapping[str, Texts], statistics: Mapping[str, Statistics]
) -> tuple[Scores, Found]:
    rows = len(next(iter(texts.values())))
    total = np.zeros(rows)
    found = np.ones(rows, dtype=bool)
    for one in node.must:
        scores, here = score(one, texts, statistics)
        total += scores
        found &= here
    some = np.zeros(rows, dtype=bool)
    for one in node.should:
        scores, here = score(one, texts, statistics)
        total += np.where(here, scores, 0.0)
        some |= here
    if not node.must:
        found &= some
    for one in node.must_not:
        found &= ~score(one, texts, statistics)[1]
    return total, found

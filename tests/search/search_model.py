"""What a search should find, worked out over a dict, one row at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.search.text.query import (
    BooleanQuery,
    BoostQuery,
    MatchQuery,
    MultiMatchQuery,
    PhraseQuery,
    TextQuery,
)

__all__ = ["check_ranking", "distance", "nearest", "text_scores"]

Row = Mapping[str, Any]
Key = Any


def distance(one: Any, other: Any, metric: str) -> float:
    """Return the distance of two vectors."""
    a, b = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    if metric == "l2":
        return float(((a - b) ** 2).sum())
    if metric == "dot":
        return float(1 - a @ b)
    if metric == "hamming":
        return float(sum(bin(int(x) ^ int(y)).count("1") for x, y in zip(one, other, strict=True)))
    with np.errstate(invalid="ignore"):
        return float(1 - (a @ b) / (math.sqrt(a @ a) * math.sqrt(b @ b)))


def nearest(
    rows: Mapping[Key, Row],
    query: Sequence[float] | npt.NDArray[Any],
    metric: str = "l2",
    column: str = "vector",
    keep: Callable[[Row], bool] = lambda row: True,
) -> dict[Key, float]:
    """Return the distance of every row that has one."""
    found = {
        key: distance(row[column], query, metric)
        for key, row in rows.items()
        if row[column] is not None and keep(row)
    }
    return {key: value for key, value in found.items() if not math.isnan(value)}


def text_scores(
    rows: Mapping[Key, Row],
    query: TextQuery,
    column: str = "text",
    bm25: tuple[float, float] = (1.2, 0.75),
) -> dict[Key, float]:
    """Return the score of every row that a query finds. Words are what is between spaces."""
    if isinstance(query, MatchQuery):
        return _match(rows, query, query.column or column, *bm25)
    if isinstance(query, PhraseQuery):
        words = query.query.split()
        found = _match(rows, MatchQuery(query.query, operator="and"), query.column or column, *bm25)
        texts = _texts(rows, query.column or column)
        return {key: score for key, score in found.items() if _together(texts[key], words, query.slop)}
    if isinstance(query, MultiMatchQuery):
        best: dict[Key, float] = {}
        for one in query.matches:
            for key, score in text_scores(rows, one, bm25=bm25).items():
                best[key] = max(best.get(key, -math.inf), score)
        return best
    if isinstance(query, BoostQuery):
        less = text_scores(rows, query.negative, column, bm25)
        more = text_scores(rows, query.positive, column, bm25)
        return {key: score - query.negative_boost * less.get(key, 0.0) for key, score in more.items()}
    assert isinstance(query, BooleanQuery)
    must = [text_scores(rows, one, column, bm25) for one in query.must]
    should = [text_scores(rows, one, column, bm25) for one in query.should]
    never = [text_scores(rows, one, column, bm25) for one in query.must_not]
    keys = {key for one in (must or should) for key in one}
    return {
        key: sum(one.get(key, 0.0) for one in (*must, *should))
        for key in keys
        if all(key in one for one in must) and not any(key in one for one in never)
    }


def _texts(rows: Mapping[Key, Row], column: str) -> dict[Key, list[str]]:
    split = {key: (row[column] or "").split() for key, row in rows.items()}
    return {key: words for key, words in split.items() if words}


def _match(rows: Mapping[Key, Row], query: MatchQuery, column: str, k1: float, b: float) -> dict[Key, float]:
    texts = _texts(rows, column)
    mean = sum(map(len, texts.values())) / max(len(texts), 1)
    vocabulary = sorted({word for words in texts.values() for word in words})
    fuzziness = query.fuzziness or 0
    groups = [
        [one for one in vocabulary if _edits(one, word) <= fuzziness][: query.max_expansions]
        if fuzziness
        else [word]
        for word in query.query.split()
    ]
    rarity = {}
    for word in {word for group in groups for word in group}:
        having = sum(word in words for words in texts.values())
        rarity[word] = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
    found = {}
    for key, words in texts.items():
        hits = [any(word in words for word in group) for group in groups]
        if not (all(hits) if query.operator == "and" else any(hits)):
            continue
        score = 0.0
        for word in (word for group in groups for word in group):
            count = words.count(word)
            length = 1 - b + b * len(words) / mean
            score += rarity[word] * count * (k1 + 1) / (count + k1 * length) if count else 0.0
        found[key] = score * query.boost
    return found


def _together(text: Sequence[str], words: Sequence[str], slop: int) -> bool:
    def follow(before: int, rest: Sequence[str]) -> bool:
        if not rest:
            return True
        places = range(before + 1, min(before + 2 + slop, len(text)))
        return any(text[place] == rest[0] and follow(place, rest[1:]) for place in places)

    return any(text[at] == words[0] and follow(at, words[1:]) for at in range(len(text)))


@cache
def _edits(one: str, other: str) -> int:
    if not one or not other:
        return len(one) + len(other)
    return min(
        _edits(one[1:], other) + 1,
        _edits(one, other[1:]) + 1,
        _edits(one[1:], other[1:]) + (one[0] != other[0]),
    )


def check_ranking(
    found: pa.Table,
    key_columns: Sequence[str],
    added: str,
    expected: Mapping[Key, float],
    k: int,
    *,
    descending: bool,
) -> None:
    """Compare an answer with all rows that could be in it and their scores.

    Which of equally good rows are found is open, so scores decide; and each row has its own.
    """
    best: Iterable[float] = sorted(expected.values(), reverse=descending)[:k]
    values = found.column(added).to_pylist()
    np.testing.assert_allclose(values, list(best), rtol=2e-5, atol=2e-5)
    keys = list(zip(*(found.column(name).to_pylist() for name in key_columns), strict=True))
    assert len(set(keys)) == len(keys)
    for key, value in zip(keys, values, strict=True):
        assert abs(expected[key] - value) <= 2e-5 * max(1.0, abs(value)), (key, value, expected[key])

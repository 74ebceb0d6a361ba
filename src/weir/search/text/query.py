"""Full-text queries, as values.

They are those of Lance, with the same meaning. Lance's own query objects cannot be taken apart, which is what
it takes to score rows that are in no index of Lance by the statistics of the whole table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from weir.errors import QueryError

__all__ = [
    "BooleanQuery",
    "BoostQuery",
    "MatchQuery",
    "MultiMatchQuery",
    "PhraseQuery",
    "TextQuery",
    "fuzziness",
    "leaves",
    "parse_text_query",
    "searched_column",
]

MAX_EXPANSIONS = 1_000
_MAX_FUZZINESS = 2
_MAX_DEPTH = 32
_AUTOMATIC_FUZZINESS = ((2, 0), (5, 1))


@dataclass(frozen=True, slots=True)
class MatchQuery:
    """Rows that contain some or all words of a text. Their scores by each word add up.

    Parameters
    ----------
    query : str
        The words.
    column : str, optional
        The column to search. Default: that of the search.
    boost : float
        What the score is multiplied by; at least 0. Default 1.
    fuzziness : int, optional
        How many letters of a word may differ, 0 to 2. None: none in words of up to 2 letters, 1 up to 5,
        2 in longer ones. Default 0.
    max_expansions : int
        Of the words that a fuzzy word matches, at most so many count, in alphabetical order. Default 50.
    operator : str
        ``"or"`` (default) or ``"and"``.
    prefix_length : int
        Letters at the beginning of a fuzzy word that may not differ. Default 0.
    """

    query: str
    column: str | None = None
    boost: float = 1.0
    fuzziness: int | None = 0
    max_expansions: int = 50
    operator: str = "or"
    prefix_length: int = 0

    def __post_init__(self) -> None:
        """Check the arguments."""
        _check_words(self.query)
        _check_column(self.column)
        _check_factor(self.boost, "boost")
        if self.fuzziness is not None:
            _check_whole(self.fuzziness, "fuzziness", 0, _MAX_FUZZINESS)
        _check_whole(self.max_expansions, "max_expansions", 1, MAX_EXPANSIONS)
        _check_whole(self.prefix_length, "prefix_length", 0, 1_000)
        object.__setattr__(self, "operator", _operator(self.operator))


@dataclass(frozen=True, slots=True)
class PhraseQuery:
    """Rows that contain the words of a text in sequence.

    Parameters
    ----------
    query : str
        The words.
    column : str, optional
        The column to search. Default: that of the search.
    slop : int
        How many other words may stand between two of them. Default 0.
    """

    query: str
    column: str | None = None
    slop: int = 0

    def __post_init__(self) -> None:
        """Check the arguments."""
        _check_words(self.query)
        _check_column(self.column)
        _check_whole(self.slop, "slop", 0, 1_000)


@dataclass(frozen=True, slots=True)
class MultiMatchQuery:
    """Rows that contain words of a text in any of several columns; the best column decides the score.

    Parameters
    ----------
    query : str
        The words.
    columns : sequence of str
        The columns.
    boosts : sequence of float, optional
        What each column's score is multiplied by. Default: 1 each.
    operator : str
        ``"or"`` (default), or ``"and"``: one column has to have all of the words.
    """

    query: str
    columns: Sequence[str]
    boosts: Sequence[float] | None = None
    operator: str = "or"

    def __post_init__(self) -> None:
        """Check the arguments."""
        _check_words(self.query)
        if isinstance(self.columns, str) or not isinstance(self.columns, Sequence) or not self.columns:
            raise QueryError(f"columns must be a list of names, got {self.columns!r:.60}", where="columns")
        columns = tuple(self.columns)
        for column in columns:
            if not isinstance(column, str):
                raise QueryError(f"a column is named by text, got {column!r:.60}", where="columns")
        if len(set(columns)) < len(columns):
            raise QueryError("a column is named twice", where="columns")
        object.__setattr__(self, "columns", columns)
        if self.boosts is not None:
            if isinstance(self.boosts, str) or not isinstance(self.boosts, Sequence):
                raise QueryError(f"boosts must be a list of numbers, got {self.boosts!r:.60}", where="boosts")
            boosts = tuple(self.boosts)
            if len(boosts) != len(columns):
                raise QueryError(f"{len(boosts)} boosts for {len(columns)} columns", where="boosts")
            for boost in boosts:
                _check_factor(boost, "boosts")
            object.__setattr__(self, "boosts", boosts)
        object.__setattr__(self, "operator", _operator(self.operator))

    @property
    def matches(self) -> tuple[MatchQuery, ...]:
        """The match of each column."""
        boosts = self.boosts or (1.0,) * len(self.columns)
        pairs = zip(self.columns, boosts, strict=True)
        return tuple(MatchQuery(self.query, name, boost, operator=self.operator) for name, boost in pairs)


@dataclass(frozen=True, slots=True)
class BooleanQuery:
    """Combines other queries: rows that must, should or must not match them.

    Parameters
    ----------
    must : sequence of query or str
        All of these have to find a row. Their scores add up.
    should : sequence of query or str
        Without ``must``, one of these has to. Scores of those that do are added.
    must_not : sequence of query or str
        None of these may match it.
    """

    must: Sequence[Any] = ()
    should: Sequence[Any] = ()
    must_not: Sequence[Any] = ()

    def __post_init__(self) -> None:
        """Check the arguments."""
        for name in ("must", "should", "must_not"):
            clauses = getattr(self, name)
            if isinstance(clauses, str | TextQuery) or not isinstance(clauses, Sequence):
                raise QueryError(f"{name} must be a list of queries, got {clauses!r:.60}", where=name)
            object.__setattr__(self, name, tuple(_query(clause, name) for clause in clauses))
        if not self.must and not self.should:
            raise QueryError(
                "a boolean query does not say what to find",
                where="query",
                hint="Give it at least one query under must or should",
            )


@dataclass(frozen=True, slots=True)
class BoostQuery:
    """Rows that one query finds, with a lower score where another finds them too.

    Parameters
    ----------
    positive : query or str
        Finds the rows.
    negative : query or str
        Its score is multiplied by ``negative_boost`` and taken off.
    negative_boost : float
        At least 0. Default 0.5.
    """

    positive: Any
    negative: Any
    negative_boost: float = 0.5

    def __post_init__(self) -> None:
        """Check the arguments."""
        object.__setattr__(self, "positive", _query(self.positive, "positive"))
        object.__setattr__(self, "negative", _query(self.negative, "negative"))
        _check_factor(self.negative_boost, "negative_boost")


TextQuery = MatchQuery | PhraseQuery | MultiMatchQuery | BooleanQuery | BoostQuery
"""Any full-text query."""


def parse_text_query(query: Any) -> TextQuery:
    """Return the query that was passed: one of those here, or words to match.

    Raises
    ------
    QueryError
        If it is neither, or nested too deeply.
    """
    checked = _query(query, "query")
    if _depth(checked) > _MAX_DEPTH:
        raise QueryError(f"the query is nested more than {_MAX_DEPTH} deep", where="query")
    return checked


def leaves(query: TextQuery) -> Iterator[MatchQuery | PhraseQuery]:
    """Yield the queries that name words, from left to right."""
    if isinstance(query, MatchQuery | PhraseQuery):
        yield query
        return
    for child in _children(query):
        yield from leaves(child)


def fuzziness(query: MatchQuery, word: str) -> int:
    """Return how many letters of a word of a match may differ."""
    if query.fuzziness is not None:
        return query.fuzziness
    return next((most for length, most in _AUTOMATIC_FUZZINESS if len(word) <= length), 2)


def searched_column(query: MatchQuery | PhraseQuery) -> str:
    """Return the column of a query that names one."""
    assert query.column is not None
    return query.column


def _children(query: TextQuery) -> tuple[TextQuery, ...]:
    if isinstance(query, MultiMatchQuery):
        return query.matches
    if isinstance(query, BooleanQuery):
        return (*query.must, *query.should, *query.must_not)
    if isinstance(query, BoostQuery):
        return (query.positive, query.negative)
    return ()


def _depth(query: TextQuery) -> int:
    return 1 + max((_depth(child) for child in _children(query)), default=0)


def _query(value: Any, where: str) -> TextQuery:
    if isinstance(value, str):
        return MatchQuery(value)
    if isinstance(value, TextQuery):
        return value
    hint = "Pass text, or weir.MatchQuery and the like"
    if hasattr(value, "query_type") and hasattr(value, "inner"):
        hint = f"Lance's own query objects cannot be read: pass weir.{type(value).__name__} instead"
    raise QueryError(f"{value!r:.60} is not a text query", where=where, hint=hint)


def _check_words(query: Any) -> None:
    if not isinstance(query, str):
        raise QueryError(f"the words of a query are text, got {query!r:.60}", where="query")
    try:
        query.encode()
    except UnicodeEncodeError as error:
        raise QueryError(f"the words of a query are not Unicode text: {error}", where="query") from error
    if not query.strip():
        raise QueryError("the query is empty", where="query", hint="Give it at least one word")


def _check_column(column: Any) -> None:
    if column is not None and not isinstance(column, str):
        raise QueryError(f"a column is named by text, got {column!r:.60}", where="column")


def _check_factor(value: Any, where: str) -> None:
    number = not isinstance(value, bool) and isinstance(value, int | float)
    if not number or not math.isfinite(value) or value < 0:
        raise QueryError(f"{where} must be a number of at least 0, got {value!r:.60}", where=where)


def _check_whole(value: Any, where: str, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise QueryError(
            f"{where} must be a whole number from {least} to {most:,}, got {value!r:.60}", where=where
        )


def _operator(value: Any) -> str:
    text = getattr(value, "value", value)
    if not isinstance(text, str) or text.lower() not in ("or", "and"):
        raise QueryError(f"operator must be 'or' or 'and', got {value!r:.60}", where="operator")
    return text.lower()

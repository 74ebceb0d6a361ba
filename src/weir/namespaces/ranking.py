"""Rankings of documents, as values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from weir.namespaces.filter.expression import Filter

__all__ = [
    "Constant",
    "Decay",
    "Distance",
    "Expression",
    "Matches",
    "Max",
    "Nearest",
    "Order",
    "Product",
    "Ranking",
    "Saturate",
    "Sum",
    "Value",
    "Words",
    "is_of_words",
    "leaves_in",
    "texts_in",
]


@dataclass(frozen=True, slots=True, eq=False)
class Nearest:
    """By the distance of a vector, nearest first.

    Parameters
    ----------
    attribute : str
        The attribute with the vectors.
    vector : ndarray of float32
        From where distances are measured.
    exact : bool
        Whether to compare every vector. Default False: use an index.
    """

    attribute: str
    vector: npt.NDArray[np.float32]
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Words:
    """By how well a text answers words (BM25), best first.

    Parameters
    ----------
    attribute : str
        The attribute with the texts.
    query : str
        The words.
    """

    attribute: str
    query: str


@dataclass(frozen=True, slots=True)
class Sum:
    """By the sum of scores."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Max:
    """By the best of scores."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Product:
    """By a score times a number."""

    factor: float
    part: Expression


@dataclass(frozen=True, slots=True)
class Value:
    """By the value of an attribute, a number, greatest first.

    Parameters
    ----------
    attribute : str
        The attribute.
    """

    attribute: str


@dataclass(frozen=True, slots=True)
class Distance:
    """By how far the value of an attribute is from another one, farthest first.

    Parameters
    ----------
    attribute : str
        The attribute: a number, or a datetime, whose distances are in milliseconds.
    origin : object
        The other value, of the attribute's type.
    """

    attribute: str
    origin: object


@dataclass(frozen=True, slots=True)
class Matches:
    """Whether a filter takes the document: 1, or 0.

    Parameters
    ----------
    filter : Filter
        The filter.
    is_prefix : bool
        Whether it is the last word of a text query, for which an attribute need not be filterable.
    """

    filter: Filter
    is_prefix: bool = False


@dataclass(frozen=True, slots=True)
class Constant:
    """The same number for every document, as the least in a :class:`Max`."""

    number: float


@dataclass(frozen=True, slots=True)
class Saturate:
    """By ``x**exponent / (x**exponent + midpoint**exponent)``: from 0 to below 1, the greater the better.

    Parameters
    ----------
    part : Expression
        What ``x`` is; below 0 it counts as 0.
    midpoint : float
        Where the score is a half. Above 0.
    exponent : float
        How steep it is there. Above 0.
    is_time : bool
        Whether the midpoint was given as a length of time, in milliseconds here.
    """

    part: Expression
    midpoint: float
    exponent: float = 1.0
    is_time: bool = False


@dataclass(frozen=True, slots=True)
class Decay:
    """By ``midpoint**exponent / (x**exponent + midpoint**exponent)``: from 1 down, the less the better.

    Parameters
    ----------
    part, midpoint, exponent, is_time
        As of :class:`Saturate`.
    """

    part: Expression
    midpoint: float
    exponent: float = 1.0
    is_time: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """By the values of attributes; documents that lack one come last, ties are ordered by id.

    Parameters
    ----------
    by : tuple of (str, bool)
        Attributes, and whether greater values come first.
    """

    by: tuple[tuple[str, bool], ...]


Leaf = Words | Value | Distance | Matches | Constant
"""A score that is not made of others."""

Expression = Leaf | Sum | Max | Product | Saturate | Decay
"""A ranking by scores."""

Ranking = Nearest | Expression | Order
"""Any ranking."""


def leaves_in(ranking: Expression) -> list[Leaf]:
    """Return what a ranking is made of, from left to right."""
    if isinstance(ranking, Sum | Max):
        return [leaf for part in ranking.parts for leaf in leaves_in(part)]
    if isinstance(ranking, Product | Saturate | Decay):
        return leaves_in(ranking.part)
    return [ranking]


def texts_in(ranking: Expression) -> list[Words]:
    """Return the words of a ranking, from left to right."""
    return [leaf for leaf in leaves_in(ranking) if isinstance(leaf, Words)]


def is_of_words(ranking: Ranking) -> bool:
    """Whether a ranking is by words alone, and by sums, maxima and multiples of their scores."""
    if isinstance(ranking, Sum | Max):
        return all(map(is_of_words, ranking.parts))
    return isinstance(ranking, Words) or (isinstance(ranking, Product) and is_of_words(ranking.part))

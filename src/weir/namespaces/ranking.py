"""How documents are ranked, as values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Max", "Nearest", "Order", "Product", "Ranking", "Sum", "TextRanking", "Words", "texts_in"]


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
        Whether every vector is looked at. Default False: those that an index finds.
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

    parts: tuple[TextRanking, ...]


@dataclass(frozen=True, slots=True)
class Max:
    """By the best of scores."""

    parts: tuple[TextRanking, ...]


@dataclass(frozen=True, slots=True)
class Product:
    """By a score times a number."""

    factor: float
    part: TextRanking


@dataclass(frozen=True, slots=True)
class Order:
    """By the values of attributes; those that lack one come last, equal ones in the order of their ids.

    Parameters
    ----------
    by : tuple of (str, bool)
        Attributes, and whether greater values come first.
    """

    by: tuple[tuple[str, bool], ...]


TextRanking = Words | Sum | Max | Product
"""A ranking by scores."""

Ranking = Nearest | TextRanking | Order
"""Any ranking."""


def texts_in(ranking: TextRanking) -> list[Words]:
    """Return the words of a ranking, from left to right."""
    if isinstance(ranking, Words):
        return [ranking]
    if isinstance(ranking, Product):
        return texts_in(ranking.part)
    return [words for part in ranking.parts for words in texts_in(part)]

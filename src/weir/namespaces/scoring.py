"""Composite scores: sums, maxima, and functions of numbers, vectorised over documents. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from weir.errors import InputError
from weir.namespaces.attributes import AttributeType, Kind, Metric
from weir.namespaces.ranking import (
    Constant,
    Decay,
    Distance,
    Expression,
    Matches,
    Max,
    Product,
    Saturate,
    Sum,
    Value,
    Words,
)

__all__ = ["Scores", "check_expression", "distances", "scores_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """The scores of documents by one expression.

    Parameters
    ----------
    values : ndarray of float64
        The score of each document; 0 if the expression gives none.
    present : ndarray of bool
        Whether it does: the document has one of the words or attributes, or passes one of the filters.
    """

    values: npt.NDArray[np.float64]
    present: npt.NDArray[np.bool_]


def scores_of(ranking: Expression, leaves: Mapping[int, Scores]) -> Scores:
    """Return the scores by an expression.

    Parameters
    ----------
    ranking : Expression
        The expression.
    leaves : mapping of int to Scores
        The scores of its parts, by the ``id`` of each.
    """
    if isinstance(ranking, Product):
        part = scores_of(ranking.part, leaves)
        return Scores(part.values * ranking.factor, part.present)
    if isinstance(ranking, Saturate | Decay):
        part = scores_of(ranking.part, leaves)
        with np.errstate(over="ignore", under="ignore"):
            ratio = (np.maximum(part.values, 0.0) / ranking.midpoint) ** ranking.exponent
        decayed = 1.0 / (1.0 + ratio)
        values = decayed if isinstance(ranking, Decay) else 1.0 - decayed
        return Scores(np.where(part.present, values, 0.0), part.present)
    if isinstance(ranking, Sum | Max):
        parts = [scores_of(one, leaves) for one in ranking.parts if not isinstance(one, Constant)]
        present = np.logical_or.reduce([one.present for one in parts])
        if isinstance(ranking, Sum):
            return Scores(np.add.reduce([one.values for one in parts]), present)
        # For a document without a score from one part, the others decide.
        values = np.maximum.reduce([np.where(one.present, one.values, -np.inf) for one in parts])
        least = max((one.number for one in ranking.parts if isinstance(one, Constant)), default=-np.inf)
        return Scores(np.where(present, np.maximum(values, least), 0.0), present)
    return leaves[id(ranking)]


def check_expression(ranking: Expression, types: Mapping[str, AttributeType]) -> None:
    """Refuse an expression that cannot be one of documents with some attributes.

    Parameters
    ----------
    ranking : Expression
        The expression.
    types : mapping of str to AttributeType
        The types of the attributes.

    Raises
    ------
    InputError
        Naming the attribute: if no document has it, it is no number, or can be below 0 where a score cannot.
    """
    if isinstance(ranking, Sum | Max):
        numbers = [one.number for one in ranking.parts if isinstance(one, Constant)]
        if len(numbers) == len(ranking.parts):
            raise InputError("a ranking needs an attribute, not only a number")
        if numbers and isinstance(ranking, Sum):
            raise InputError("a number can be part of Max or Product, not of Sum")
        for part in ranking.parts:
            if not (numbers and isinstance(part, Value)):  # which is at least the number
                check_expression(part, types)
            else:
                _number(part.attribute, types)
    elif isinstance(ranking, Product):
        check_expression(ranking.part, types)
    elif isinstance(ranking, Saturate | Decay):
        part = ranking.part
        timed = isinstance(part, Distance) and _number(part.attribute, types).kind is Kind.DATETIME
        if ranking.is_time and not timed:
            raise InputError("a midpoint is a length of time for the distance of datetimes alone")
        if isinstance(part, Value):
            _number(part.attribute, types)
        else:
            check_expression(part, types)
    elif isinstance(ranking, Value):
        type = _number(ranking.attribute, types)
        if type.kind is not Kind.UINT:
            raise InputError(
                f"attribute {ranking.attribute!r} is {type}, which may be below 0: rank by Saturate or Decay "
                "of it, or by its Max with 0"
            )
    elif isinstance(ranking, Distance):
        _number(ranking.attribute, types)
    else:
        assert isinstance(ranking, Words | Matches | Constant)


def distances(
    vectors: npt.NDArray[np.float32], origin: npt.NDArray[np.float32], metric: Metric
) -> npt.NDArray[np.float64]:
    """Return the distances of vectors from one, as a search by the metric returns them.

    Parameters
    ----------
    vectors : ndarray, shape (rows, dimensions)
        The vectors.
    origin : ndarray, shape (dimensions,)
        From where distances are measured.
    metric : Metric
        How.

    Examples
    --------
    >>> vectors = np.array([[3.0, 4.0], [0.0, 2.0]], np.float32)
    >>> distances(vectors, np.array([0.0, 1.0], np.float32), Metric.EUCLIDEAN).tolist()
    [18.0, 1.0]
    """
    wide, point = vectors.astype(np.float64), origin.astype(np.float64)
    if metric is Metric.EUCLIDEAN:
        return np.asarray(((wide - point) ** 2).sum(axis=1))
    products = wide @ point
    if metric is Metric.COSINE:
        with np.errstate(divide="ignore", invalid="ignore"):
            products = products / (np.linalg.norm(wide, axis=1) * np.linalg.norm(point))
    return np.asarray(1.0 - products)


def _number(name: str, types: Mapping[str, AttributeType]) -> AttributeType:
    type = types.get(name)
    if type is None:
        raise InputError(f"no document has an attribute {name!r} to rank by")
    if type.is_list or type.is_vector or type.kind not in (Kind.INT, Kind.UINT, Kind.FLOAT, Kind.DATETIME):
        raise InputError(f"attribute {name!r} is {type}, not a number")
    return type

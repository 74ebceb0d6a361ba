"""The recall of index searches: how many of the nearest documents they find."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.errors import InputError
from weir.namespaces.definition import Definition
from weir.namespaces.filter.expression import EVERYTHING, And, Comparison, Filter, Not, Operator
from weir.namespaces.names import ID, VECTOR
from weir.namespaces.query import Limit, Query
from weir.namespaces.ranking import Nearest, Ranking
from weir.namespaces.reading import Reading

__all__ = ["Recall", "measure_recall"]


@dataclass(frozen=True, slots=True)
class Recall:
    """What searches by the index found of what exact ones did.

    Parameters
    ----------
    recall : float
        Share of the nearest documents that were found, on average; 1 if there are none.
    found, exact : float
        Documents of each search by the index, and of each exact one.
    truth : tuple of (ndarray, Table)
        The vectors that were searched for, and the nearest documents of each.
    """

    recall: float
    found: float
    exact: float
    truth: tuple[tuple[npt.NDArray[np.float32], pa.Table], ...]


def measure_recall(
    reading: Reading,
    definition: Definition,
    *,
    searches: int,
    top_k: int,
    filter: Filter | None,
    ranking: Ranking | None,
) -> Recall:
    """Search for vectors of the namespace itself, by the index and exactly.

    Raises
    ------
    InputError
        If there are no vectors, or the ranking is by none.
    """
    if ranking is not None and not isinstance(ranking, Nearest):
        raise InputError("recall is defined for rankings by vector")
    names = [one.name for one in definition.vectors]
    if ranking is None and not names:
        raise InputError("the namespace has no vectors")
    attribute = ranking.attribute if ranking is not None else VECTOR if VECTOR in names else names[0]
    where = EVERYTHING if filter is None else filter
    vectors = [ranking.vector] if ranking is not None else _sample(reading, attribute, where, searches)
    shares, found_rows, exact_rows, truth = [], [], [], []
    for vector in vectors:
        query = Query(
            rank_by=Nearest(attribute, vector), filter=where, limit=Limit(top_k), include=(attribute,)
        )
        found = reading.answer(query).rows
        exact = reading.answer(replace(query, rank_by=Nearest(attribute, vector, exact=True))).rows
        assert found is not None
        assert exact is not None
        nearest = {*exact.column(ID).to_pylist()}
        shares.append(len(nearest & {*found.column(ID).to_pylist()}) / len(nearest) if nearest else 1.0)
        found_rows.append(found.num_rows)
        exact_rows.append(exact.num_rows)
        truth.append((vector, exact))
    return Recall(_mean(shares, 1.0), _mean(found_rows, 0.0), _mean(exact_rows, 0.0), tuple(truth))


def _mean(values: list[float] | list[int], default: float) -> float:
    return float(np.mean(values)) if values else default


def _sample(reading: Reading, attribute: str, where: Filter, searches: int) -> list[npt.NDArray[np.float32]]:
    """Return vectors of documents, drawn at random from some thousands of them."""
    there = And((where, Not(Comparison(attribute, Operator.EQ, None))))
    column = reading.vectors(attribute, there, max(searches, 2000))
    if not len(column):
        return []
    chosen = np.random.default_rng().choice(len(column), min(searches, len(column)), replace=False)
    matrix = column.flatten().to_numpy(zero_copy_only=False).astype(np.float32)
    return list(matrix.reshape(len(column), -1)[chosen])

"""Fusion of several rankings into one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from weir.namespaces.names import ID
from weir.namespaces.reading import DISTANCE
from weir.namespaces.values import column_values

__all__ = ["fused"]


def fused(
    answers: Sequence[pa.Table],
    weights: Sequence[float],
    *,
    limit: int,
    offset: int = 0,
    constant: float = 60,
) -> pa.Table:
    """Return several rankings as one, by reciprocal rank.

    Parameters
    ----------
    answers : sequence of Table
        The rankings, each best first, with an id.
    weights : sequence of float
        What each ranking counts.
    limit, offset : int
        Number of documents, and number to skip before.
    constant : float
        Added to each rank. Default 60.
    """
    scores: dict[Any, float] = {}
    first: dict[Any, tuple[int, int]] = {}
    for number, (rows, weight) in enumerate(zip(answers, weights, strict=True)):
        for at, one in enumerate(column_values(rows.column(ID))):
            scores[one] = scores.get(one, 0.0) + weight / (constant + at + 1)
            first.setdefault(one, (number, at))
    best = sorted(scores, key=lambda one: (-scores[one], first[one]))[offset : offset + limit]
    parts = [
        _scored(answers[number].slice(at, 1), scores[one]) for one in best for number, at in [first[one]]
    ]
    if not parts:
        return _scored(answers[0].slice(0, 0), 0.0)
    return pa.concat_tables(parts, promote_options="permissive")


def _scored(rows: pa.Table, score: float) -> pa.Table:
    column = pa.array([score] * rows.num_rows, pa.float64())
    if DISTANCE in rows.schema.names:
        return rows.set_column(rows.schema.get_field_index(DISTANCE), DISTANCE, column)
    return rows.append_column(DISTANCE, column)

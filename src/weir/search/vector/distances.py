"""Distances between vectors, as Lance defines them, and the nearest by them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["METRICS", "distances", "nearest", "nearest_among"]

METRICS = ("l2", "cosine", "dot", "hamming")
"""Squared Euclidean distance; one minus the cosine; one minus the inner product; differing bits."""

Vectors = npt.NDArray[Any]
Distances = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]

_CHUNK_BYTES = 8 * 1024 * 1024
_GROUP = 64
_GROUPS_PER_ROW = 8


def distances(vectors: Vectors, query: Vectors, metric: str) -> Distances:
    """Return the distance of every vector to a query.

    Computed from differences, so that near vectors far from the origin keep their order.

    Examples
    --------
    >>> import numpy as np
    >>> distances(np.array([[1.0, 0.0], [3.0, 4.0]]), np.array([0.0, 0.0]), "l2").tolist()
    [1.0, 25.0]
    """
    rows = max(_CHUNK_BYTES // max(vectors.shape[1] * 8, 1), 1)
    parts = [_exact(vectors[at : at + rows], query, metric) for at in range(0, len(vectors), rows)]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.float32)


def _exact(vectors: Vectors, query: Vectors, metric: str) -> Distances:
    if metric == "hamming":
        differing: Distances = np.bitwise_count(vectors ^ query).sum(axis=1).astype(np.float32)
        return differing
    wide, asked = vectors.astype(np.float64), query.astype(np.float64)
    # Vectors may be infinite or zero: an undefined distance is NaN.
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        if metric == "l2":
            wide -= asked
            squared: Distances = np.einsum("ij,ij->i", wide, wide).astype(np.float32)
            return squared
        inner: npt.NDArray[np.float64] = wide @ asked
        if metric == "cosine":
            inner = inner / (np.sqrt(np.einsum("ij,ij->i", wide, wide)) * np.sqrt(asked @ asked))
        return (1.0 - inner).astype(np.float32)


def nearest(
    vectors: Vectors, squared_lengths: npt.NDArray[Any], query: Vectors, k: int, metric: str
) -> tuple[Rows, Distances]:
    """Return the ``k`` nearest vectors and their distances, nearest first, equal ones in their order.

    All are compared by their inner products. Those that the rounding error leaves in doubt are then
    compared exactly.

    Parameters
    ----------
    vectors : ndarray
        One per row.
    squared_lengths : ndarray
        Inner product of every vector with itself.
    """
    if len(vectors) <= k or metric == "hamming":
        return _nearest_exactly(np.arange(len(vectors)), vectors, query, k, metric)
    with np.errstate(invalid="ignore", over="ignore"):
        # Not a matrix product, which the library spreads over all cores: slower where they are busy.
        inner = np.vecdot(vectors, query)
    rows = _candidates(inner, squared_lengths, query, vectors, k, metric)
    return _nearest_exactly(rows, vectors[rows], query, k, metric)


def nearest_among(
    rows: Rows,
    inner: npt.NDArray[Any],
    vectors: Vectors,
    squared_lengths: npt.NDArray[Any],
    query: Vectors,
    k: int,
    metric: str,
) -> tuple[Rows, Distances]:
    """Return the ``k`` nearest of some vectors and their distances, as :func:`nearest` does of all.

    Parameters
    ----------
    rows : ndarray of int64
        Offsets of the vectors to choose from.
    inner : ndarray
        Inner product of each of them with the query.
    """
    if len(rows) > k:
        rows = rows[_candidates(inner, squared_lengths[rows], query, vectors, k, metric)]
    return _nearest_exactly(rows, vectors[rows], query, k, metric)


def _nearest_exactly(
    rows: Rows, vectors: Vectors, query: Vectors, k: int, metric: str
) -> tuple[Rows, Distances]:
    found = distances(vectors, query, metric)
    defined = ~np.isnan(found)
    rows, found = rows[defined], found[defined]
    best = np.lexsort((rows, found))[:k]
    return rows[best], found[best]


def _candidates(
    inner: npt.NDArray[Any],
    squared_lengths: npt.NDArray[Any],
    query: Vectors,
    vectors: Vectors,
    k: int,
    metric: str,
) -> Rows:
    """Return the offsets of the inner products that the rounding error leaves in doubt.

    Parameters
    ----------
    inner : ndarray
        The inner products, which are written over: what follows a comparison of many vectors finds nothing in
        the caches of the processor, so it should not touch more than it has to.
    """
    own = float(query @ query)
    precision = float(np.finfo(vectors.dtype).eps) * 4 * np.sqrt(vectors.shape[1])
    nearness = inner
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        if metric == "l2":
            nearness *= 2
            nearness -= squared_lengths
            doubt = precision * (own + 2 * float(squared_lengths.max()))
        elif metric == "dot":
            doubt = precision * np.sqrt(own * float(squared_lengths.max()))
        else:
            nearness /= np.sqrt(squared_lengths)
            doubt = precision * np.sqrt(own)
        # Their sum says whether all are finite. That of large ones may not be: all are then compared exactly.
        if not math.isfinite(float(nearness.sum()) + doubt):
            return np.arange(len(nearness))
    found: Rows = (nearness >= _bound(nearness, k) - 2 * doubt).nonzero()[0]
    return found


def _bound(values: npt.NDArray[Any], k: int) -> float:
    """Return a number that at least ``k`` of some values reach, and few others.

    That of the greatest values of many groups takes a tenth of the time that the exact one takes.
    """
    groups = len(values) // _GROUP
    if groups >= _GROUPS_PER_ROW * k:
        values = values[: groups * _GROUP].reshape(_GROUP, groups).max(axis=0)
    at = len(values) - k
    return float(np.partition(values, at)[at])

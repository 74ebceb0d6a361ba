"""Vectors of newer sources, partitioned by the centroids of the base table's index.

A search then looks into as many of their partitions as it looks into those of the index. Dividing takes as
long as some searches through all of them, so it is done for sources that are searched again and again; and
for all generations together, so that a search does not cost more the more there are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from weir.engine.cache import ByteBudgetCache
from weir.search.vector.distances import nearest, nearest_among
from weir.search.vector.rows import VectorRows

__all__ = ["Centroids", "IvfPartitions", "divided"]

Vectors = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]
Distances = npt.NDArray[np.float32]

_DIVIDED_FROM = 8_192
_SEARCHES_BEFORE = 2
_CHUNK_ROWS = 16_384


@dataclass(frozen=True, slots=True)
class Centroids:
    """The centroids of the base table's vector index.

    Parameters
    ----------
    identity : str
        Of the index, for caches.
    vectors : ndarray of float32
        One per row.
    metric : str
        The metric of the index.
    """

    identity: str
    vectors: npt.NDArray[np.float32]
    metric: str

    def closest(self, vectors: Vectors, count: int) -> npt.NDArray[np.intp]:
        """Return, per vector, the ``count`` closest centroids, in no order."""
        narrow = vectors.astype(np.float32, copy=False)
        # A matrix product goes over all cores, which does not pay for one vector.
        scores = np.vecdot(self.vectors, narrow)[None, :] if len(narrow) == 1 else narrow @ self.vectors.T
        if self.metric == "l2":
            scores *= -2
            scores += np.vecdot(self.vectors, self.vectors)
        elif self.metric == "cosine":
            lengths = np.linalg.norm(self.vectors, axis=1)
            scores /= -np.maximum(lengths, np.finfo(np.float32).tiny)
        else:
            scores *= -1
        if count >= scores.shape[1]:
            everyone: npt.NDArray[np.intp] = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
            return everyone
        if count == 1:
            closest: npt.NDArray[np.intp] = np.argmin(scores, axis=1)[:, None]
            return closest
        found: npt.NDArray[np.intp] = np.argpartition(scores, count, axis=1)[:, :count]
        return found

    def probes(self, query: Vectors, count: int) -> npt.NDArray[np.intp]:
        """Return the ``count`` partitions closest to a query, ascending."""
        return np.sort(self.closest(query[None, :], count)[0])


@dataclass(frozen=True, slots=True)
class IvfPartitions:
    """Vectors ordered by partition.

    Parameters
    ----------
    rows : ndarray of int64
        The number of each vector's row, when the rows of all sources are numbered one after the other.
    starts : ndarray of int64
        Where each partition begins, and where the last one ends.
    vectors, squared_lengths : ndarray
        The vectors, and the product of each with itself.
    """

    rows: Rows
    starts: Rows
    vectors: Vectors
    squared_lengths: npt.NDArray[Any]

    @property
    def nbytes(self) -> int:
        """Bytes it takes in memory."""
        return int(self.rows.nbytes + self.starts.nbytes + self.vectors.nbytes + self.squared_lengths.nbytes)

    def nearest(
        self, query: Vectors, k: int, metric: str, keep: npt.NDArray[np.bool_], probes: npt.NDArray[np.intp]
    ) -> tuple[Rows, Distances] | None:
        """Return the nearest rows of some partitions; None if too few of them are live and have a distance.

        Parameters
        ----------
        keep : ndarray of bool
            Per row: whether it counts.
        probes : ndarray of int
            The partitions.
        """
        low, high = self.starts[probes], self.starts[probes + 1]
        at = _ranges(low, high)
        counted = keep[self.rows[at]]
        at = at[counted]
        if len(at) < k:
            return None
        if metric == "hamming":
            found, distance = nearest(self.vectors[at], self.squared_lengths[at], query, k, metric)
            return self.rows[at[found]], distance
        # Where they are: to bring all of them together would take as long as comparing them.
        with np.errstate(invalid="ignore", over="ignore"):
            inner = [
                np.vecdot(self.vectors[start:end], query)
                for start, end in zip(low.tolist(), high.tolist(), strict=True)
            ]
        products = np.concatenate(inner)[counted]
        best, distance = nearest_among(at, products, self.vectors, self.squared_lengths, query, k, metric)
        # By the cosine vectors of zeros have none.
        return (self.rows[best], distance) if len(best) == k else None


def divided(
    cache: ByteBudgetCache,
    key: tuple[Hashable, ...],
    load: Callable[[], Sequence[VectorRows]],
    sizes: Sequence[int],
    centroids: Centroids,
) -> IvfPartitions | None:
    """Return the vectors of some sources divided, or None while it does not pay.

    Parameters
    ----------
    cache : ByteBudgetCache
        Holds them.
    key : tuple
        What the sources are, for the cache: one item each, and what they have in common first.
    load : callable
        Returns their vectors.
    sizes : sequence of int
        How many rows each has, those without a vector included.
    """
    if sum(sizes) < _DIVIDED_FROM:
        return None
    name = ("division", centroids.identity, key)
    known = cache.get(name)
    if isinstance(known, IvfPartitions):
        return known
    asked = (known or 0) + 1
    if asked <= _SEARCHES_BEFORE:
        cache.put(name, asked, 0)
        return None
    sources = load()
    common, own = key[0], key[1:]
    partition = np.concatenate(
        [
            cache.get_or_load(
                ("partitions", centroids.identity, common, one),
                partial(_partitions, source.vectors, centroids),
                lambda loaded: loaded.nbytes,
            )
            for one, source in zip(own, sources, strict=True)
        ]
    )
    starts = np.cumsum([0, *sizes[:-1]])
    rows = np.concatenate([source.rows + start for source, start in zip(sources, starts, strict=True)])
    order = np.argsort(partition, kind="stable")
    division = IvfPartitions(
        rows[order],
        np.searchsorted(partition[order], np.arange(len(centroids.vectors) + 1)),
        np.concatenate([source.vectors for source in sources])[order],
        np.concatenate([source.squared_lengths for source in sources])[order],
    )
    cache.put(name, division, division.nbytes)
    return division


def _partitions(vectors: Vectors, centroids: Centroids) -> npt.NDArray[np.int32]:
    parts = [
        centroids.closest(vectors[at : at + _CHUNK_ROWS], 1)[:, 0].astype(np.int32)
        for at in range(0, len(vectors), _CHUNK_ROWS)
    ]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int32)


def _ranges(starts: Rows, ends: Rows) -> Rows:
    """Return all numbers from each start to its end, one range after the other."""
    sizes = ends - starts
    before = np.cumsum(sizes) - sizes
    return np.repeat(starts - before, sizes) + np.arange(int(sizes.sum()))

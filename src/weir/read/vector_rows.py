"""The vectors of a source that is newer than the base table, in memory for comparison.

They are immutable, so they are kept in the process cache, and searched by one matrix product. A source that
is searched again and again is besides divided by the centroids of the base table's index, so that a search
looks into as many of its partitions as it looks into those of the index.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.cache import process_cache
from weir.read.distances import nearest
from weir.read.generation import Generation
from weir.read.overlay import FreshSource

__all__ = ["Centroids", "Probes", "VectorRows", "fits_in_memory", "vector_rows"]

Vectors = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]

_LARGEST_BYTES = 256 * 1024 * 1024
_DIVIDED_FROM = 8_192
_SEARCHES_BEFORE_DIVISION = 2
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


@dataclass(frozen=True, slots=True)
class _Division:
    """Vectors divided by centroids: those of partition p are ``order[starts[p]:starts[p + 1]]``."""

    order: Rows
    starts: Rows
    vectors: Vectors
    squared_lengths: npt.NDArray[Any]

    @property
    def nbytes(self) -> int:
        return int(self.order.nbytes + self.starts.nbytes + self.vectors.nbytes + self.squared_lengths.nbytes)


@dataclass(frozen=True, slots=True)
class Probes:
    """The partitions that a query looks into.

    Parameters
    ----------
    centroids : Centroids
        What makes the partitions.
    partitions : ndarray of int
        Those closest to the query, ascending.
    """

    centroids: Centroids
    partitions: npt.NDArray[np.intp]

    @classmethod
    def of(cls, centroids: Centroids, query: Vectors, count: int) -> Probes:
        """Return the ``count`` partitions closest to a query."""
        return cls(centroids, np.sort(centroids.closest(query[None, :], count)[0]))


class VectorRows:
    """The vectors of one source.

    Parameters
    ----------
    vectors : ndarray
        One per row, without those that are null.
    rows : ndarray of int64
        Offset of each in the source, ascending.
    """

    def __init__(self, vectors: Vectors, rows: Rows) -> None:
        self.vectors = vectors
        self.rows = rows
        wide = vectors if vectors.dtype.kind == "f" else vectors.astype(np.float32)
        self.squared_lengths: npt.NDArray[Any] = np.einsum("ij,ij->i", wide, wide)
        self._searches = 0
        self._division: tuple[str, _Division] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes it takes in memory, a division included."""
        return int(2 * (self.vectors.nbytes + self.squared_lengths.nbytes + self.rows.nbytes))

    def among(
        self, query: Vectors, k: int, metric: str, keep: npt.NDArray[np.bool_], probes: Probes | None
    ) -> tuple[Rows, npt.NDArray[np.float32]]:
        """Return the offsets and distances of the nearest rows among those that count, nearest first.

        Parameters
        ----------
        keep : ndarray of bool
            Per row of the source: whether it counts.
        probes : Probes or None
            The partitions to look into, if the vectors may be divided.
        """
        division = None if probes is None else self._divided(probes.centroids)
        if division is not None and probes is not None:
            starts, ends = division.starts[probes.partitions], division.starts[probes.partitions + 1]
            at = _ranges(starts, ends)
            at = at[keep[self.rows[division.order[at]]]]
            # Where the filter leaves too few in those partitions, all are looked at.
            if len(at) >= k:
                found, distance = nearest(
                    division.vectors[at], division.squared_lengths[at], query, k, metric
                )
                return self.rows[division.order[at[found]]], distance
        counted = keep[self.rows]
        if 2 * np.count_nonzero(counted) < len(counted):
            chosen = np.flatnonzero(counted)
            found, distance = nearest(self.vectors[chosen], self.squared_lengths[chosen], query, k, metric)
            return self.rows[chosen[found]], distance
        # Cheaper than a copy of most vectors: look at all, for some more than asked for.
        want = k
        while True:
            found, distance = nearest(self.vectors, self.squared_lengths, query, want, metric)
            good = counted[found]
            if np.count_nonzero(good) >= k or len(found) < want:
                return self.rows[found[good]][:k], distance[good][:k]
            want *= 4

    def _divided(self, centroids: Centroids) -> _Division | None:
        if len(self.rows) < _DIVIDED_FROM:
            return None
        if self._division is not None and self._division[0] == centroids.identity:
            return self._division[1]
        self._searches += 1
        if self._searches <= _SEARCHES_BEFORE_DIVISION:
            return None
        parts = [
            centroids.closest(self.vectors[at : at + _CHUNK_ROWS], 1)[:, 0]
            for at in range(0, len(self.vectors), _CHUNK_ROWS)
        ]
        partition = np.concatenate(parts)
        order = np.argsort(partition, kind="stable")
        starts = np.searchsorted(partition[order], np.arange(len(centroids.vectors) + 1))
        division = _Division(order, starts, self.vectors[order], self.squared_lengths[order])
        self._division = (centroids.identity, division)
        return division


def _ranges(starts: Rows, ends: Rows) -> Rows:
    """Return all numbers from each start to its end, one range after the other."""
    sizes = ends - starts
    before = np.cumsum(sizes) - sizes
    return np.repeat(starts - before, sizes) + np.arange(int(sizes.sum()))


def fits_in_memory(source: FreshSource, kind: pa.DataType) -> bool:
    """Whether the vectors of a source may be kept in memory."""
    if not isinstance(source, Generation):
        return True
    width = np.dtype(kind.value_type.to_pandas_dtype()).itemsize * kind.list_size
    return bool(len(source.tombstones) * width <= _LARGEST_BYTES)


def vector_rows(namespace: str, source: FreshSource, column: str) -> VectorRows:
    """Return the vectors of a source, loaded once per process.

    Parameters
    ----------
    namespace : str
        Identity of the table.
    """
    return process_cache().get_or_load(
        ("vectors", namespace, source.identity, column),
        lambda: _load(source.column(column)),
        lambda loaded: loaded.nbytes,
    )


def _load(column: pa.Array) -> VectorRows:
    rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    dimension = column.type.list_size
    # flatten() leaves out the elements of null vectors.
    flat = column.flatten()
    if flat.null_count:
        # A vector with a null in it has no distance to anything.
        whole = flat.is_valid().to_numpy(zero_copy_only=False).reshape(len(rows), dimension).all(axis=1)
        flat, rows = flat.filter(pa.array(np.repeat(whole, dimension))), rows[whole]
    values = flat.to_numpy(zero_copy_only=False)
    if values.dtype == np.float16:
        values = values.astype(np.float32)
    return VectorRows(np.ascontiguousarray(values.reshape(len(rows), dimension)), rows)

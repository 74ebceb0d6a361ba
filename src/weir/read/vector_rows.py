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

__all__ = ["Centroids", "VectorRows", "fits_in_memory", "vector_rows"]

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
        scores = vectors.astype(np.float32, copy=False) @ self.vectors.T
        if self.metric == "l2":
            scores *= -2
            scores += np.einsum("ij,ij->i", self.vectors, self.vectors)
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

    def nearest(
        self,
        query: Vectors,
        k: int,
        metric: str,
        keep: npt.NDArray[np.bool_],
        centroids: Centroids | None,
        nprobes: int,
    ) -> tuple[Rows, npt.NDArray[np.float32]]:
        """Return the offsets and distances of the nearest rows among those that count.

        Parameters
        ----------
        keep : ndarray of bool
            Per row of the source: whether it counts.
        centroids : Centroids or None
            By which the vectors may be divided.
        nprobes : int
            Partitions to look into then.
        """
        division = self._divided(centroids) if centroids is not None and metric == centroids.metric else None
        if division is not None and centroids is not None:
            probes = np.sort(centroids.closest(query[None, :], nprobes)[0])
            ends = zip(division.starts[probes].tolist(), division.starts[probes + 1].tolist(), strict=True)
            pieces = [np.arange(start, end) for start, end in ends if start < end]
            at = np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.int64)
            at = at[keep[self.rows[division.order[at]]]]
            # Where the filter leaves too few in those partitions, all are looked at.
            if len(at) >= k:
                picked = np.argsort(division.order[at])
                found, distance = nearest(
                    division.vectors[at[picked]], division.squared_lengths[at[picked]], query, k, metric
                )
                return self.rows[division.order[at[picked[found]]]], distance
        counted = keep[self.rows]
        if counted.all():
            found, distance = nearest(self.vectors, self.squared_lengths, query, k, metric)
            return self.rows[found], distance
        chosen = np.flatnonzero(counted)
        if 2 * len(chosen) < len(counted):
            found, distance = nearest(self.vectors[chosen], self.squared_lengths[chosen], query, k, metric)
            return self.rows[chosen[found]], distance
        # Cheaper than a copy of most vectors: look at all, for as many more as do not count at worst.
        want = k
        while True:
            found, distance = nearest(self.vectors, self.squared_lengths, query, 2 * want, metric)
            good = counted[found]
            if good.sum() >= k or len(found) < 2 * want:
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

"""Vectors in memory, for comparison: those of sources newer than the base table, above all.

They are immutable, so they are kept in the process cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.engine.cache import ByteBudgetCache
from weir.lsm.generation import Generation
from weir.lsm.newest import FreshSource
from weir.search.vector.distances import nearest

__all__ = ["VectorRows", "fits_in_memory", "loaded_vectors", "vector_bytes", "vector_rows"]

Vectors = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]

_LARGEST_BYTES = 256 * 1024 * 1024


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

    @property
    def nbytes(self) -> int:
        """Bytes it takes in memory."""
        return int(self.vectors.nbytes + self.squared_lengths.nbytes + self.rows.nbytes)

    def nearest(
        self, query: Vectors, k: int, metric: str, keep: npt.NDArray[np.bool_]
    ) -> tuple[Rows, npt.NDArray[np.float32]]:
        """Return the offsets and distances of the nearest live rows, nearest first.

        Parameters
        ----------
        keep : ndarray of bool
            Per row of the source: whether it counts.
        """
        counted = keep[self.rows]
        if 2 * np.count_nonzero(counted) < len(counted):
            chosen = np.flatnonzero(counted)
            found, distance = nearest(self.vectors[chosen], self.squared_lengths[chosen], query, k, metric)
            return self.rows[chosen[found]], distance
        # Cheaper than a copy of most vectors: compare all, for some more than requested.
        return self.nearest_of(keep.__getitem__, query, k, metric)

    def nearest_of(
        self, counted: Callable[[Rows], npt.NDArray[np.bool_]], query: Vectors, k: int, metric: str
    ) -> tuple[Rows, npt.NDArray[np.float32]]:
        """Return the offsets and distances of the nearest live rows, nearest first, where most are live.

        Parameters
        ----------
        counted : callable
            Says which of some rows count. Asked of few.
        """
        want = k
        while True:
            found, distance = nearest(self.vectors, self.squared_lengths, query, want, metric)
            good = counted(self.rows[found])
            if np.count_nonzero(good) >= k or len(found) < want:
                return self.rows[found[good]][:k], distance[good][:k]
            want *= 4


def vector_bytes(kind: pa.DataType) -> int:
    """Return the bytes of a vector of some type."""
    return int(np.dtype(kind.value_type.to_pandas_dtype()).itemsize * kind.list_size)


def fits_in_memory(source: FreshSource, kind: pa.DataType) -> bool:
    """Whether the vectors of a source may be kept in memory."""
    if not isinstance(source, Generation):
        return True
    return len(source.tombstones) * vector_bytes(kind) <= _LARGEST_BYTES


def vector_rows(cache: ByteBudgetCache, namespace: str, source: FreshSource, column: str) -> VectorRows:
    """Return the vectors of a source, loaded once per process.

    Parameters
    ----------
    cache : ByteBudgetCache
        Holds them.
    namespace : str
        Identity of the table.
    """
    return cache.get_or_load(
        ("vectors", namespace, source.identity, column),
        lambda: loaded_vectors(source.column(column)),
        lambda loaded: loaded.nbytes,
    )


def loaded_vectors(column: pa.Array) -> VectorRows:
    """Return the vectors of a column."""
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

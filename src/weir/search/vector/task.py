"""The part of one source in a vector search, and its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["DISTANCE", "VectorCandidates", "VectorTask"]

DISTANCE = "_distance"


@dataclass(frozen=True, slots=True)
class VectorCandidates:
    """The nearest rows of one source.

    Parameters
    ----------
    query : ndarray of int32
        Which query vector each is for.
    distance : ndarray of float32
        Its distance to that.
    rows : ndarray of int64
        Where it is, for :meth:`VectorTask.fetch`.
    table : Table or None
        The columns of the result, where they have been read with the distances.
    """

    query: npt.NDArray[np.int32]
    distance: npt.NDArray[np.float32]
    rows: npt.NDArray[np.int64]
    table: pa.Table | None = None

    def filter(self, keep: npt.NDArray[np.bool_]) -> VectorCandidates:
        """Return some of them."""
        table = None if self.table is None else self.table.filter(pa.array(keep))
        return VectorCandidates(self.query[keep], self.distance[keep], self.rows[keep], table)


class VectorTask(Protocol):
    """One source's part of a vector search: small, stateless, and it can be pickled."""

    def candidates(self) -> VectorCandidates:
        """Return the nearest rows of the source, at least as many as requested if it has so many."""
        ...

    def fetch(self, found: VectorCandidates, chosen: npt.NDArray[np.int64]) -> pa.Table:
        """Return the columns of the result of some candidates, by their offset."""
        ...

    def describe(self) -> str:
        """Return one line for people."""
        ...

"""The vectors of a base table that has not many of them, in memory.

To compare them there takes less time than to ask Lance, which takes a millisecond for the smallest search.
Reading them takes as long as many searches, so it is done for a version that is searched again and again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.base.table import BaseTable
from weir.lsm.damage import reading
from weir.lsm.rows_by_id import take_row_ids
from weir.search.vector.later_mask import LaterMask
from weir.search.vector.query import VectorQuery
from weir.search.vector.rows import VectorRows, loaded_vectors, vector_bytes
from weir.search.vector.task import VectorCandidates

__all__ = ["BaseVectorTask", "is_held"]

_ROW_ID = "_rowid"
_LARGEST_BYTES = 32 * 1024 * 1024
_PARTS_OF_CACHE = 8
_SEARCHES_BEFORE = 4
_BYTES_A_ROW = 32
"""What a row takes beside its vector: its id, its place, its length, and a key."""
_BYTES_A_SEARCH = 1024 * 1024
"""How many bytes are read in the time that is saved by one search."""


@dataclass(frozen=True, slots=True)
class _BaseVectors:
    """The vectors, the id of every row, and its key unless that takes more than the vector."""

    vectors: VectorRows
    row_ids: npt.NDArray[np.int64]
    keys: Mapping[str, pa.Array]

    @property
    def nbytes(self) -> int:
        return self.vectors.nbytes + self.row_ids.nbytes + sum(int(key.nbytes) for key in self.keys.values())

    def taken(self, rows: npt.NDArray[np.int64], columns: Sequence[str]) -> pa.Table:
        """Return columns of the key of some rows."""
        return pa.table({name: _taken(self.keys[name], rows) for name in columns})


def _taken(values: pa.Array, rows: npt.NDArray[np.int64]) -> pa.Array:
    if pa.types.is_integer(values.type):
        # The vectors have taken the place of all else in the caches of the processor, and a function of Arrow
        # takes several times as long where its code has to come back there.
        return pa.array(values.to_numpy()[rows])
    return values.take(pa.array(rows))


def is_held(base: BaseTable, column: str, rows: int) -> bool:
    """Whether a search should compare the vectors of a base table in memory.

    Parameters
    ----------
    base : BaseTable
        The base table.
    column : str
        The vector column.
    rows : int
        How many rows it has.
    """
    cache, key = base.engine.cache, _key(base, column)
    if cache.get(key) is not None:
        return True
    size = (vector_bytes(base.schema.field(column).type) + _BYTES_A_ROW) * rows
    if size > min(_LARGEST_BYTES, cache.budget // _PARTS_OF_CACHE):
        return False
    searches = cache.get(("searches", *key)) or 0
    if searches >= _SEARCHES_BEFORE + size // _BYTES_A_SEARCH:
        return True
    cache.put(("searches", *key), searches + 1, 0, base.lifetime)
    return False


def _key(base: BaseTable, column: str) -> tuple[object, ...]:
    return "base vectors", base.namespace, base.version_key, column


def _loaded(base: BaseTable, column: str) -> _BaseVectors:
    keys = [name for name in base.primary_key if name != column]
    table = base.dataset.scanner(columns=[column, *keys], with_row_id=True).to_table()
    vectors = loaded_vectors(table.column(column).combine_chunks())
    own = {name: table.column(name).combine_chunks() for name in keys}
    if sum(key.nbytes for key in own.values()) > vectors.nbytes:
        own = {}
    return _BaseVectors(vectors, table.column(_ROW_ID).to_numpy().astype(np.int64), own)


@dataclass(eq=False)
class BaseVectorTask:
    """Compare the vectors of a base table in memory.

    Parameters
    ----------
    base : BaseTable
        The base table.
    query : VectorQuery
        The query; the metric is set.
    columns : tuple of str
        Columns of the result.
    mask : LaterMask
        Rows that are dead: replaced or deleted by newer ones.
    """

    base: BaseTable
    query: VectorQuery = field(repr=False)
    columns: tuple[str, ...]
    mask: LaterMask = field(repr=False)

    def candidates(self) -> VectorCandidates:
        """Return the nearest live rows."""
        query, metric = self.query, self.query.metric
        assert metric is not None
        held, dead = self._vectors, self.mask.known

        def are_live(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
            return ~dead.contains(held.row_ids[rows].astype(np.uint64))

        found = [held.vectors.nearest_of(are_live, vector, query.k, metric) for vector in query.vectors]
        numbers = np.repeat(np.arange(len(found), dtype=np.int32), [len(rows) for rows, _ in found])
        rows, distance = (np.concatenate(column) for column in zip(*found, strict=True))
        return VectorCandidates(numbers, distance, rows)

    def fetch(self, found: VectorCandidates, chosen: npt.NDArray[np.int64]) -> pa.Table:
        """Return the columns of the result of some candidates."""
        held, rows = self._vectors, found.rows[chosen]
        if held.keys.keys() >= set(self.columns):
            return held.taken(rows, self.columns)
        with reading(self._label, self.base.dataset.uri):
            return take_row_ids(self.base.dataset, held.row_ids[rows], self.columns)

    def describe(self) -> str:
        """Return one line for people."""
        return (
            f"{self._label}: compare {self.query.column} by {self.query.metric} in memory, "
            f"{len(self.mask)} rows superseded or deleted"
        )

    def __reduce__(self) -> tuple[type[BaseVectorTask], tuple[object, ...]]:
        """Leave the vectors here: they are read again elsewhere."""
        return BaseVectorTask, (self.base, self.query, self.columns, self.mask)

    @cached_property
    def _vectors(self) -> _BaseVectors:
        base, column = self.base, self.query.column
        cache, key = base.engine.cache, _key(base, column)
        held = cache.get(key)
        if isinstance(held, _BaseVectors):
            return held
        with reading(self._label, base.dataset.uri):
            return cache.get_or_load(
                key, lambda: _loaded(base, column), lambda loaded: loaded.nbytes, base.lifetime
            )

    @property
    def _label(self) -> str:
        return f"base table version {self.base.version}"

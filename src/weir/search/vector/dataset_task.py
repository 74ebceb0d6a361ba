"""Searching a Lance dataset by vector, through its index if it has one.

It is asked for somewhat more rows than are wanted, because rows that have been replaced or deleted are then
dropped; should too few be left, Lance is asked again and given the rows to pass over. On an object store the
dead rows are found out meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.errors import FilterError
from weir.lsm.damage import reading
from weir.lsm.dataset_handle import DatasetHandle
from weir.lsm.deletion_mask import NOTHING_DELETED, DeletionMask
from weir.lsm.rows_by_id import take_row_ids
from weir.schema.vectors import is_vector
from weir.search.vector.later_mask import LaterMask
from weir.search.vector.query import VectorQuery
from weir.search.vector.task import DISTANCE, VectorCandidates

__all__ = ["DatasetVectorTask"]

_LIBRARY_QUERY_INDEX = "query_index"
_ROW_ID = "_rowid"
_SPARE_ROWS = 4
_MOST_SPARE = 4
"""How many times the rows asked for may be asked for in addition."""
_MOST_AT_ONCE = 2
"""Of how many times the rows asked for all columns are read, though most will be dropped."""


@dataclass(frozen=True, slots=True)
class DatasetVectorTask:
    """Search a Lance dataset: the base table, or a generation too large to be held in memory.

    Parameters
    ----------
    label : str
        Name for people.
    source : DatasetHandle
        The dataset.
    query : VectorQuery
        The query; the metric is set.
    columns : tuple of str
        Columns of the result.
    filter : str or None
        Only rows that match.
    mask : LaterMask
        Rows that are dead: replaced or deleted by newer ones.
    rows : int
        Rows of the dataset.
    use_index : bool
        Whether there is an index for the metric.
    refine : int or None
        How many times as many candidates to rerank by their exact distance.
    """

    label: str
    source: DatasetHandle
    query: VectorQuery = field(repr=False)
    columns: tuple[str, ...]
    filter: str | None
    mask: LaterMask = field(repr=False)
    rows: int
    use_index: bool
    refine: int | None

    def candidates(self) -> VectorCandidates:
        """Return the nearest live rows."""
        try:
            return self._candidates()
        except FilterError:
            if self.filter is None:
                raise
            # For the nearest rows Lance evaluates a filter on dead and deleted ones too, told or not.
            with reading(self.label, self.source.uri, self.filter):
                others = self.mask.known.with_others_than(self.source.opened(), self.filter)
            mask = LaterMask(lambda: others, 0, self.mask.store)
            return replace(self, filter=None, mask=mask)._candidates()

    def _candidates(self) -> VectorCandidates:
        k = self.query.k
        with reading(self.label, self.source.uri, self.filter):
            if self.mask.is_awaited and (spare := self._spare(self.mask.most)) <= _MOST_SPARE * k:
                found = self.mask.beside(partial(self._asked, k + spare, NOTHING_DELETED))
                mask = self.mask.known
            else:
                mask = self.mask.known
                spare = self._spare(len(mask))
                if spare > _MOST_SPARE * k:
                    return self._asked(k, mask)
                found = self._asked(k + spare, NOTHING_DELETED)
            if not len(mask):
                return found
            keep = ~mask.contains(found.rows.astype(np.uint64))
            counts = np.bincount(found.query, minlength=len(self.query.vectors))
            left = np.bincount(found.query[keep], minlength=len(self.query.vectors))
            if np.any((left < k) & (counts == k + spare)):
                return self._asked(k, mask)
        return found.filter(keep)

    def _spare(self, dead: int) -> int:
        """Return how many rows more to ask for: twice as many as will be dropped on average."""
        share = dead / max(self.rows, 1)
        return int(2 * self.query.k * share / max(1 - share, 0.01)) + _SPARE_ROWS if dead else 0

    def _asked(self, k: int, mask: DeletionMask) -> VectorCandidates:
        vectors = self.query.vectors
        if len(vectors) == 1:
            return self._answer(vectors[0], k, mask, 0)
        if _LIBRARY_QUERY_INDEX not in self.source.opened().schema.names:
            return self._answer(vectors, k, mask, None)
        parts = [self._answer(vector, k, mask, at) for at, vector in enumerate(vectors)]
        return VectorCandidates(
            np.concatenate([part.query for part in parts]),
            np.concatenate([part.distance for part in parts]),
            np.concatenate([part.rows for part in parts]),
            pa.concat_tables([part.table for part in parts]) if self._at_once(k) else None,
        )

    def _at_once(self, k: int) -> bool:
        """Whether to read the columns of ``k`` rows with the distances.

        A few rows too many take less than going back for the best, unless there are vectors to read.
        """
        if k > _MOST_AT_ONCE * self.query.k:
            return False
        schema = self.source.opened().schema
        return not any(is_vector(schema.field(name).type) for name in self.columns)

    def _answer(
        self, asked: npt.NDArray[Any], k: int, mask: DeletionMask, number: int | None
    ) -> VectorCandidates:
        dataset = self.source.opened()
        element = dataset.schema.field(self.query.column).type.value_type
        narrow = np.float16 if pa.types.is_float16(element) else asked.dtype
        nearest: dict[str, Any] = {
            "column": self.query.column,
            "q": asked.astype(narrow, copy=False),
            "k": k,
            "metric": self.query.metric,
            "use_index": self.use_index,
        }
        if self.use_index and self.query.nprobes is not None:
            nearest["nprobes"] = self.query.nprobes
        if self.use_index and self.refine is not None:
            # Spare rows need no more candidates.
            nearest["refine_factor"] = max(-(-self.refine * self.query.k // k), 1)
        at_once = self._at_once(k)
        table = dataset.scanner(
            columns=[*self.columns, DISTANCE] if at_once else [DISTANCE],
            nearest=nearest,
            filter=self.filter,
            prefilter=self.filter is not None,
            with_row_id=True,
            row_addr_blocklist=mask.serialized,
            disable_scoring_autoprojection=True,
        ).to_table()
        distance = table.column(DISTANCE).to_numpy()
        rows = table.column(_ROW_ID).to_numpy().astype(np.int64)
        if number is None:
            query = table.column(_LIBRARY_QUERY_INDEX).to_numpy().astype(np.int32)
        else:
            query = np.full(len(rows), number, dtype=np.int32)
        read = table.select(list(self.columns)) if at_once else None
        return VectorCandidates(query, distance, rows, read)

    def fetch(self, found: VectorCandidates, chosen: npt.NDArray[np.int64]) -> pa.Table:
        """Return the columns of the result of some candidates."""
        if found.table is not None:
            return found.table.take(pa.array(chosen))
        with reading(self.label, self.source.uri):
            return take_row_ids(self.source.opened(), found.rows[chosen], self.columns)

    def describe(self) -> str:
        """Return one line for people."""
        how = "index" if self.use_index else "flat"
        text = f"{self.label}: {how} search of {self.query.column} by {self.query.metric}"
        if self.use_index and self.query.nprobes is not None:
            text += f", {self.query.nprobes} partitions"
        if self.use_index and self.refine is not None:
            text += f", exact distances of {self.refine} x {self.query.k}"
        if self.filter:
            text += f" where {self.filter}"
        return f"{text}, {len(self.mask)} rows superseded or deleted"

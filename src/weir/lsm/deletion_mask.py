"""The dead rows of a Lance dataset, and their exclusion from scans."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.dataset import serialize_row_addrs

from weir.format.row_address import addresses_of, fragments_of, offsets_of

__all__ = ["NOTHING_DELETED", "DeletionMask", "has_places", "row_ids_at", "without_places"]

_ROW_ID = "_rowid"
_FEW_COLUMNS = 3


class DeletionMask:
    """Row ids that a scan leaves out.

    There are three ways. Lance takes them as a block list, which combines with filters, limits and counts.
    For a full scan it is faster to drop rows afterwards: by position, if that is simple, otherwise by row ids
    that are read along.

    Parameters
    ----------
    row_ids : ndarray of uint64
        Ascending.
    """

    def __init__(self, row_ids: npt.NDArray[np.uint64]) -> None:
        self.row_ids = row_ids
        self._asked = False
        self._places: npt.NDArray[np.int64] | None = None

    def places_in(self, dataset: lance.LanceDataset) -> npt.NDArray[np.int64] | None:
        """Return where the rows stand that are left out, among all of the dataset that it is of, ascending.

        None if row ids do not give the position: if the dataset itself skips rows, or has stable ids.
        """
        if not self._asked:
            self._places = self._places_in(dataset)
            self._asked = True
        return self._places

    def _places_in(self, dataset: lance.LanceDataset) -> npt.NDArray[np.int64] | None:
        if not has_places(dataset):
            return None
        ids, rows = _fragments(dataset)
        starts = np.cumsum(rows) - rows
        of = fragments_of(self.row_ids)
        order = np.argsort(ids)
        at = order[np.minimum(ids[order].searchsorted(of), len(ids) - 1)]
        offsets = offsets_of(self.row_ids)
        # An index may know rows that are there no more.
        there = (ids[at] == of) & (offsets < rows[at])
        places = (starts[at] + offsets)[there]
        return places if np.all(places[1:] > places[:-1]) else np.sort(places)

    def with_others_than(self, dataset: lance.LanceDataset, filter: str) -> DeletionMask:
        """Return these rows, and those of a dataset that do not match a filter, which is not shown these.

        Parameters
        ----------
        dataset : LanceDataset
            The dataset that they are of.
        filter : str
            The filter.
        """
        matching = _row_ids(dataset, filter=filter, row_addr_blocklist=self.serialized)
        return DeletionMask(np.setdiff1d(_row_ids(dataset), matching))

    def with_matching(self, dataset: lance.LanceDataset, filter: str) -> DeletionMask:
        """Return these rows, and those of a dataset that match a filter, which has a value for every row.

        Parameters
        ----------
        dataset : LanceDataset
            The dataset that they are of.
        filter : str
            The filter.
        """
        return DeletionMask(np.union1d(self.row_ids, _row_ids(dataset, filter=filter)))

    def __len__(self) -> int:
        """Return how many rows are left out."""
        return len(self.row_ids)

    @cached_property
    def serialized(self) -> bytes | None:
        """The row ids as Lance's scanner takes them; None if there are none."""
        return serialize_row_addrs(self.row_ids.tolist()) if len(self.row_ids) else None

    def contains(self, row_ids: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Return which of some rows are dead."""
        if not len(self.row_ids):
            return np.zeros(len(row_ids), dtype=bool)
        at = np.minimum(self.row_ids.searchsorted(row_ids), len(self.row_ids) - 1)
        found: npt.NDArray[np.bool_] = self.row_ids[at] == row_ids
        return found

    def count(self, row_ids: npt.NDArray[np.uint64]) -> int:
        """Return how many of some rows, which ascend, are dead."""
        if len(self.row_ids) < len(row_ids):
            return DeletionMask(row_ids).count(self.row_ids)
        return int(np.count_nonzero(self.contains(row_ids)))

    def in_fragments(self, fragments: Sequence[int]) -> DeletionMask:
        """Return those in some fragments. Row ids must be addresses."""
        kept = np.isin(fragments_of(self.row_ids), np.array(fragments, dtype=np.uint64))
        return DeletionMask(self.row_ids[kept])

    def remove_from(self, batch: pa.RecordBatch, *, with_row_id: bool = False) -> pa.RecordBatch:
        """Return ``batch`` without dead rows, and without its row ids unless these are asked for."""
        keep = self.live(batch.column(_ROW_ID).to_numpy())
        rows = batch if with_row_id else batch.drop_columns([_ROW_ID])
        return rows if keep is None else _filtered(rows, keep)

    def live(self, row_ids: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_] | None:
        """Return which of some rows are not dead; None if all are. Faster if they ascend."""
        if not len(row_ids):
            return None
        if len(row_ids) > 1 and not (row_ids[1:] > row_ids[:-1]).all():
            return ~np.isin(row_ids, self.row_ids)
        low, high = np.searchsorted(self.row_ids, [row_ids[0], row_ids[-1] + np.uint64(1)])
        candidates = self.row_ids[low:high]
        if not len(candidates):
            return None
        keep = np.ones(len(row_ids), dtype=bool)
        at = np.searchsorted(row_ids, candidates)
        keep[at[row_ids[at] == candidates]] = False
        return keep

    @property
    def nbytes(self) -> int:
        """Bytes it takes in memory, once all ways have been used."""
        return 3 * self.row_ids.nbytes


def has_places(dataset: lance.LanceDataset) -> bool:
    """Whether row ids give the positions of rows among all that a scan reads, of which there are some."""
    if dataset.has_stable_row_ids:
        return False
    fragments = dataset.get_fragments()
    return bool(fragments) and not any(one.num_deletions for one in fragments)


def row_ids_at(dataset: lance.LanceDataset, places: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Return the ids of the rows at some places, among all rows of a dataset that has places."""
    ids, rows = _fragments(dataset)
    ends = np.cumsum(rows)
    at = ends.searchsorted(places, side="right")
    return addresses_of(ids[at], places - (ends - rows)[at])


def _fragments(dataset: lance.LanceDataset) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """Return the ids of the fragments, in the order of their rows, and how many rows each has."""
    fragments = dataset.get_fragments()
    ids = np.array([one.fragment_id for one in fragments], dtype=np.uint64)
    return ids, np.array([one.physical_rows for one in fragments], dtype=np.int64)


def without_places(batch: pa.RecordBatch, start: int, places: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """Return a batch without some rows.

    Parameters
    ----------
    batch : RecordBatch
        Rows that follow each other.
    start : int
        The place of the first of them.
    places : ndarray of int64
        The places that are left out, ascending.
    """
    low, high = places.searchsorted([start, start + batch.num_rows])
    if low == high:
        return batch
    kept = np.ones(batch.num_rows, dtype=bool)
    kept[places[low:high] - start] = False
    return _filtered(batch, kept)


def _row_ids(dataset: lance.LanceDataset, **options: Any) -> npt.NDArray[np.uint64]:
    found = dataset.scanner(columns=[], with_row_id=True, **options).to_table()
    ids: npt.NDArray[np.uint64] = found.column(_ROW_ID).to_numpy()
    return ids


def _filtered(batch: pa.RecordBatch, kept: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    """Return some rows of a batch."""
    # In a tenth of the time that Arrow takes, which looks at them one by one.
    bits = pa.py_buffer(np.packbits(kept, bitorder="little"))
    flags = pa.Array.from_buffers(pa.bool_(), len(kept), [None, bits])
    if not 0 < batch.num_columns <= _FEW_COLUMNS:
        return batch.filter(flags)
    # Of many columns Arrow works out the places once, which for few takes longer than it saves.
    return pa.RecordBatch.from_arrays([column.filter(flags) for column in batch.columns], schema=batch.schema)


NOTHING_DELETED = DeletionMask(np.zeros(0, dtype=np.uint64))

"""A scan of the base table that begins before it is known which of its rows are dead.

The first read of a table spends as much time on learning that as on reading the base table. Both at once take
no longer than the longer of the two, if there is a processor for each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from queue import SimpleQueue
from typing import TypeAlias

import lance
import numpy as np
import pyarrow as pa

from weir.base.ordered_values import searchable
from weir.base.wide_scan import scanned_batches
from weir.format.row_address import RowAddresses
from weir.lsm.deletion_mask import row_ids_at
from weir.lsm.marked_keys import MarkedKeys

__all__ = ["BATCH_ROWS", "BegunScan"]

BATCH_ROWS = 65_536

_MOST_WAITING_BYTES = 64 << 20
"""Of rows that are read before anybody takes them."""

_Read: TypeAlias = pa.RecordBatch | Iterator[pa.RecordBatch] | BaseException
"""Some rows, or behind the last of these what there is to say of the others."""


class BegunScan:
    """All rows of a dataset, which a thread begins to read when told to. To be taken once, or ended.

    Parameters
    ----------
    dataset : LanceDataset
        The dataset.
    columns : tuple of str
        The columns to read, in its order of rows.
    threads : Executor
        One of them reads. What takes the rows must not be one of them.
    """

    def __init__(self, dataset: lance.LanceDataset, columns: tuple[str, ...], threads: Executor) -> None:
        self._dataset = dataset
        self._columns = columns
        self._threads = threads
        self._is_begun = False
        self._read: SimpleQueue[_Read] = SimpleQueue()
        self._seen: deque[_Read] = deque()
        self._is_taken = False
        self.is_ended = False
        """Whether nobody takes the rows any more."""

    def begin(self) -> None:
        """Have a thread begin to read, unless one has begun."""
        if not self._is_begun:
            self._is_begun = True
            self._threads.submit(self._run)

    def _run(self) -> None:
        try:
            batches = scanned_batches(self._dataset, self._columns, batch_size=BATCH_ROWS, scan_in_order=True)
            waiting = 0
            for batch in batches:
                if self.is_ended:
                    return
                self._read.put(batch)
                waiting += batch.nbytes
                if waiting > _MOST_WAITING_BYTES and not self._is_taken:
                    break
            # Whoever takes the rows reads those that are left: this thread waits for nobody.
            self._read.put(batches)
        except BaseException as error:
            self._read.put(error)

    def rows_of_each(self, key: str, sets: Sequence[pa.Array]) -> list[RowAddresses] | None:
        """Find the rows that have a key of some sets, once all rows have been read; they can still be taken.

        Parameters
        ----------
        key : str
            The key column, one of those that are read.
        sets : sequence of Array
            Sets of keys of its type, without nulls.

        Returns
        -------
        list of ndarray
            Of each set the row ids, in the order of the rows. None if the keys are not numbers that lie close
            together, or more is read than may wait, as mostly the first rows show.
        """
        marked = MarkedKeys.of(sets)
        if marked is None:
            return None
        count = self._dataset.count_rows()
        places, marks, start = [], [], 0
        for batch in self._looked_at():
            column = batch.column(key)
            is_small = batch.nbytes * count <= _MOST_WAITING_BYTES * batch.num_rows
            if not is_small or column.null_count or column.type != sets[0].type:
                return None
            found = marked.marks_of(searchable(column))
            # NumPy finds flags faster than numbers.
            at = np.flatnonzero(found != 0)
            places.append(at + start)
            marks.append(found[at])
            start += batch.num_rows
        if start != count:
            return None
        row_ids, bits = row_ids_at(self._dataset, np.concatenate(places)), np.concatenate(marks)
        return [row_ids[bits & bits.dtype.type(1 << at) != 0] for at in range(len(sets))]

    def _looked_at(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are read, which stay to be taken."""
        self.begin()
        while True:
            read = self._read.get()
            self._seen.append(read)
            if not isinstance(read, pa.RecordBatch):
                return
            yield read

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, as far as they have been read, and wait for the others."""
        self.begin()
        self._is_taken = True
        while isinstance(batch := self._seen.popleft() if self._seen else self._read.get(), pa.RecordBatch):
            yield batch
        if isinstance(batch, BaseException):
            raise batch
        yield from batch

    def end(self) -> None:
        """Read no more: nobody takes the rows."""
        self.is_ended = True

"""A scan of the base table that begins before it is known which of its rows are dead.

The first read of a table spends as much time on learning that as on reading the base table. Both at once take
no longer than the longer of the two, if there is a processor for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from queue import SimpleQueue

import lance
import pyarrow as pa

from weir.base.wide_scan import scanned_batches

__all__ = ["BATCH_ROWS", "BegunScan"]

BATCH_ROWS = 65_536

_MOST_WAITING_BYTES = 64 << 20
"""Of rows that are read before anybody takes them."""


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
        self._read: SimpleQueue[pa.RecordBatch | Iterator[pa.RecordBatch] | BaseException] = SimpleQueue()
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

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, as far as they have been read, and wait for the others."""
        self.begin()
        self._is_taken = True
        while isinstance(batch := self._read.get(), pa.RecordBatch):
            yield batch
        if isinstance(batch, BaseException):
            raise batch
        yield from batch

    def end(self) -> None:
        """Read no more: nobody takes the rows."""
        self.is_ended = True

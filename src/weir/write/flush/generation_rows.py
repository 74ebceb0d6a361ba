"""The rows that a flush writes: the newest of every key, without copying all of them at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from weir.format.merge_engine import MergeEngine
from weir.format.newest import newest_rows
from weir.format.sorted_rows import can_be_sorted_by, sorted_rows
from weir.format.unsliced import unsliced
from weir.format.wal_entry import TOMBSTONE
from weir.lsm.fold import fold

__all__ = ["GenerationRows"]

_STREAM_FROM_BYTES = 8 * 1024 * 1024
_PIECE_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class GenerationRows:
    """The rows of a MemTable, and which of them are the newest of their key.

    Parameters
    ----------
    written : Table
        All rows, in the order they were written.
    newest : ndarray of int64
        Offsets of the live rows, ascending.
    is_settled : bool, default True
        Whether each is all that its key comes to, as readers of the library take it. With a merge engine
        there may be two of a key, and older ones matter too; where rows are only added there is no key.
    """

    written: pa.Table
    newest: npt.NDArray[np.int64]
    is_settled: bool = True

    @classmethod
    def of(
        cls,
        written: pa.Table,
        key_columns: tuple[str, ...],
        engine: MergeEngine | None = None,
        sort_by: tuple[str, ...] = (),
    ) -> GenerationRows:
        """Return what a generation holds of the rows of a MemTable.

        Parameters
        ----------
        written : Table
            All rows, in the order they were written.
        key_columns : tuple of str
            Primary-key columns. None: all rows count.
        engine : MergeEngine, optional
            What the versions of a key come to. Default: the last row.
        sort_by : tuple of str, default ()
            Columns by which to cluster the rows. Columns that no longer exist are ignored, as are those whose
            type has no order.
        """
        known = {field.name: field.type for field in written.schema}
        sort_by = tuple(name for name in sort_by if name in known and can_be_sorted_by(known[name]))
        if not key_columns:
            return cls(
                sorted_rows(written, sort_by),
                np.arange(written.num_rows, dtype=np.int64),
                is_settled=False,
            )
        if engine is None:
            newest = newest_rows([written.column(name) for name in key_columns])
            if not sort_by:
                return cls(written, newest)
            of_key = written if len(newest) == written.num_rows else written.take(pa.array(newest))
            return cls(sorted_rows(of_key, sort_by), np.arange(len(newest), dtype=np.int64))
        folded = fold(engine, written, key_columns, is_part=True)
        if sort_by:
            # A delete stays before the row that came after it: its other columns are null, and would be last.
            gone = folded.column(TOMBSTONE)
            rows = sorted_rows(folded.filter(pc.invert(gone)), sort_by)
            folded = pa.concat_tables([folded.filter(gone), rows])
        return cls(folded, np.arange(folded.num_rows, dtype=np.int64), is_settled=False)

    @property
    def num_rows(self) -> int:
        """Number of live rows."""
        return len(self.newest)

    @property
    def is_large(self) -> bool:
        """Whether the rows should be handed on piece by piece."""
        return bool(self.written.nbytes >= _STREAM_FROM_BYTES)

    def columns(self, names: tuple[str, ...]) -> list[pa.Array]:
        """Return some columns of the live rows."""
        columns = [self.written.column(name).combine_chunks() for name in names]
        if len(self.newest) == self.written.num_rows:
            return columns
        live = pa.array(self.newest)
        return [column.take(live) for column in columns]

    def to_table(self) -> pa.Table:
        """Return the live rows, in the order that they are laid out in."""
        if len(self.newest) == self.written.num_rows:
            return self.written
        return self.written.take(pa.array(self.newest))

    def pieces(self) -> Iterator[pa.RecordBatch]:
        """Yield the live rows, in the order that they are laid out in, some 2 MiB at a time.

        Small batches are combined; large enough ones are passed on unchanged.
        """
        total = self.written.num_rows
        step = max(total * _PIECE_BYTES // max(self.written.nbytes, 1), 1)
        counts = np.zeros(total, dtype=np.bool_)
        counts[self.newest] = True
        gathered: list[pa.RecordBatch] = []
        at = waiting = 0
        for batch in self.written.to_batches(max_chunksize=step):
            mask = counts[at : at + batch.num_rows]
            at += batch.num_rows
            live = batch if mask.all() else batch.filter(pa.array(mask))
            is_large = 2 * live.num_rows >= step
            if gathered and (is_large or waiting + live.num_rows > step):
                yield unsliced(pa.concat_batches(gathered))
                gathered, waiting = [], 0
            if is_large:
                yield unsliced(live)
            elif live.num_rows:
                gathered.append(live)
                waiting += live.num_rows
        if gathered:
            yield unsliced(pa.concat_batches(gathered))

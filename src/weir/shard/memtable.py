"""The MemTable: rows of one generation that are durable in the WAL and not yet flushed.

Lance MemWAL spec, "MemTable Format": a list of Arrow record batches in the order they were written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from weir.format.conform import conform_batch
from weir.format.newest import newest_rows
from weir.shard.wal import PositionedEntry

__all__ = ["MemTable"]


@dataclass(slots=True)
class MemTable:
    """Rows of one generation, in write order.

    Parameters
    ----------
    generation : int
        The generation these rows will be flushed as, counted from 1.
    schema : Schema
        Schema of the rows: the table's columns and ``_tombstone``.
    """

    generation: int
    schema: pa.Schema
    last_position: int = 0
    num_rows: int = 0
    nbytes: int = 0
    num_entries: int = 0
    _batches: list[pa.RecordBatch] = field(default_factory=list)

    @classmethod
    def replayed(cls, generation: int, schema: pa.Schema, tail: Iterable[PositionedEntry]) -> MemTable:
        """Rebuild the MemTable that the entries of a WAL tail describe."""
        memtable = cls(generation, schema)
        for item in tail:
            memtable.append(item)
        return memtable

    def append(self, item: PositionedEntry) -> None:
        """Add the rows of one WAL entry. Fence entries add none but move the position."""
        where = f"WAL position {item.position}"
        self._batches.extend(conform_batch(batch, self.schema, where=where) for batch in item.entry.batches)
        self.last_position = item.position
        self.num_rows += item.entry.num_rows
        self.nbytes += item.entry.nbytes
        self.num_entries += 1

    def newest(self, key_columns: tuple[str, ...]) -> pa.Table:
        """Return the last row of every key, in write order, tombstones included."""
        table = pa.Table.from_batches(self._batches, self.schema)
        rows = newest_rows([table.column(name) for name in key_columns])
        return table if len(rows) == table.num_rows else table.take(pa.array(rows))

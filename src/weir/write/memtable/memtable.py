"""The MemTable: rows of one generation that are durable in the WAL and not yet flushed.

Lance MemWAL spec, "MemTable Format": a list of Arrow record batches in the order they were written.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from weir.format.batch_memory import batch_overhead
from weir.format.merge_engine import MergeEngine
from weir.format.resolution import resolve
from weir.format.source import SourceMarks
from weir.log.wal import PositionedEntry
from weir.write.flush.generation_rows import GenerationRows

__all__ = ["MemTable"]


@dataclass(slots=True)
class MemTable:
    """Rows of one generation, in write order.

    Parameters
    ----------
    generation : int
        The generation these rows will be flushed as, counted from 1.
    schema : Schema
        Schema of the rows: the table's columns, with their field ids, and ``_tombstone``. What an entry was
        written with under another schema is resolved against it.
    last_position, first_position : int
        WAL positions of the last entry whose rows are in it, and of the first; 0 if there is none.
    num_rows, num_batches, num_entries : int
        Rows, batches of them, and WAL entries.
    nbytes : int
        Size of the rows as Arrow data, in bytes.
    held_bytes : int
        Approximate memory in bytes: more than ``nbytes`` if batches are small.
    num_marks : int
        Marks of repeatable writes, including those that changed nothing.
    has_published : bool
        Whether an entry says what was published beside the log.
    sources : SourceMarks
        How far each source has got with what the shard holds, up to the last position.
    entries : list of PositionedEntry
        The entries, as they were written.
    """

    generation: int
    schema: pa.Schema
    last_position: int = 0
    num_rows: int = 0
    nbytes: int = 0
    num_batches: int = 0
    num_entries: int = 0
    held_bytes: int = 0
    first_position: int = 0
    num_marks: int = 0
    has_published: bool = False
    sources: SourceMarks = field(default_factory=SourceMarks)
    entries: list[PositionedEntry] = field(default_factory=list)
    _batches: list[pa.RecordBatch] = field(default_factory=list)
    _overhead: int = field(init=False)

    def __post_init__(self) -> None:
        """Look at the schema once."""
        self._overhead = batch_overhead(self.schema)

    @property
    def is_worth_flushing(self) -> bool:
        """Whether a flush has rows for a generation, or marks without rows that replay need not read again.

        Fences alone are too few. The entry that says what was published is read for as long as it stands, so
        replay starts after it only once a generation of later rows does.
        """
        return self.num_rows > 0 or (self.num_marks > 0 and not self.has_published)

    def successor(self) -> MemTable:
        """Return the empty MemTable that comes next: of the same generation, if no rows make one of this."""
        generation = self.generation + 1 if self.num_rows else self.generation
        return MemTable(generation, self.schema, self.last_position, sources=self.sources)

    def emptied(self) -> MemTable:
        """Return the same MemTable without its rows."""
        return MemTable(self.generation, self.schema, self.last_position, sources=self.sources)

    def append(self, item: PositionedEntry) -> int:
        """Add the rows of one WAL entry. Fence entries add none but move the position.

        Returns
        -------
        int
            Approximate memory in bytes.
        """
        if item.entry.schema is self.schema:
            self._batches.extend(item.entry.batches)
        else:
            where = f"WAL position {item.position}"
            columns = resolve(item.entry.schema, self.schema)
            self._batches.extend(columns.apply(batch, where=where) for batch in item.entry.batches)
        self.entries.append(item)
        self.last_position = item.position
        header = item.entry.header
        self.has_published |= bool(header.published)
        if header.source is not None:
            marks = header.sources
            self.num_marks += len(marks)
            self.sources = self.sources.with_marks(marks, header.answers, item.position)
        self.num_rows += item.entry.num_rows
        nbytes = item.entry.nbytes
        self.nbytes += nbytes
        self.num_batches += len(item.entry.batches)
        self.num_entries += 1
        held = nbytes + len(item.entry.batches) * self._overhead
        self.held_bytes += held
        self.first_position = self.first_position or item.position
        return held

    def rows(
        self,
        key_columns: tuple[str, ...],
        engine: MergeEngine | None = None,
        sort_by: tuple[str, ...] = (),
    ) -> GenerationRows:
        """Return what a generation holds of the rows: the last of every key, tombstones included."""
        written = pa.Table.from_batches(self._batches, self.schema)
        return GenerationRows.of(written, key_columns, engine, sort_by)

    def newest(self, key_columns: tuple[str, ...]) -> pa.Table:
        """Return the last row of every key, in write order, tombstones included, as one table."""
        return self.rows(key_columns).to_table()

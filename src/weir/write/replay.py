"""Rebuilding MemTables from the entries of a log tail (Lance MemWAL spec, "WAL Replay").

:mod:`weir.log.replay` says which entries these are, and what the generations that they record mean.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from weir.format.source import SourceMarks
from weir.log.replay import recorded_generation
from weir.log.wal import PositionedEntry
from weir.write.memtable.memtable import MemTable

__all__ = ["replayed_memtables"]


def replayed_memtables(
    generation: int, schema: pa.Schema, tail: Iterable[PositionedEntry], sources: SourceMarks
) -> list[MemTable]:
    """Rebuild the MemTables that the entries of a log tail were written to, oldest first; at least one.

    Parameters
    ----------
    generation : int
        The generation to flush next.
    schema : Schema
        Schema of the rows: the table's columns and ``_tombstone``.
    tail : iterable of PositionedEntry
        The entries, none of which is in a generation.
    sources : SourceMarks
        The marks of sources before them.
    """
    memtables = [MemTable(generation, schema, sources=sources)]
    newest = generation
    for item in tail:
        active = memtables[-1]
        recorded = recorded_generation(item)
        if recorded is not None and recorded > newest:
            newest = recorded
            if active.num_rows:
                active = active.successor()
                memtables.append(active)
        active.append(item)
    return memtables

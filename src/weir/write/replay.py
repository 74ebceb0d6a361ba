"""Which log entries a generation holds already, and the MemTables that the others were written to.

Lance MemWAL spec, "WAL Replay". Every entry with rows records the generation of the MemTable that they went
to. Two things follow, and the released library relies on both:

- An entry whose generation is below the manifest's current one is in a generation, even where
  ``replay_after_wal_entry_position`` is below it: the library lets that lag behind when it flushes a
  MemTable because it is full.
- Within a log the generations never go back. A writer may die while a MemTable waits for its flush, and
  leave entries of two generations. Whoever replays them makes two MemTables again, flushes them under the
  numbers that the entries record, and goes on with the last. Where generations go back, the library refuses
  the log.

Logs of other writers may be otherwise: there a generation that goes back counts as the one before it, so
that what was written later is flushed later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from weir.format.shard_manifest import ShardManifest
from weir.format.source import SourceMarks
from weir.write.log.log import PositionedEntry, first_unflushed_position
from weir.write.memtable.memtable import MemTable

__all__ = ["covered_position", "is_in_order", "recorded_generation", "replayed_memtables", "unflushed"]


def recorded_generation(item: PositionedEntry) -> int | None:
    """Return the generation that the rows of an entry went to; None if it has none, or does not say."""
    return item.entry.header.generation if item.entry.num_rows else None


def covered_position(manifest: ShardManifest, entries: Iterable[PositionedEntry]) -> int:
    """Return the last position of which the rows are in a generation of ``manifest``; -1 if there is none.

    Parameters
    ----------
    manifest : ShardManifest
        The manifest.
    entries : iterable of PositionedEntry
        Consecutive entries. Those that ``replay_after_wal_entry_position`` does not cover have to be among
        them from the first on.
    """
    covered = first_unflushed_position(manifest) - 1
    for item in entries:
        if item.position <= covered or not item.entry.num_rows:
            continue
        generation = recorded_generation(item)
        if generation is None or generation >= manifest.current_generation:
            break
        covered = item.position
    return covered


def unflushed(manifest: ShardManifest, entries: Sequence[PositionedEntry]) -> Sequence[PositionedEntry]:
    """Return those of some entries that no generation of ``manifest`` holds.

    What they have to be is said at :func:`covered_position`.
    """
    covered = covered_position(manifest, entries)
    if not entries or entries[0].position > covered:
        return entries
    return [item for item in entries if item.position > covered]


def replayed_memtables(
    generation: int, schema: pa.Schema, tail: Iterable[PositionedEntry], sources: SourceMarks
) -> list[MemTable]:
    """Rebuild the MemTables that the entries of a log tail were written to, oldest first; at least one.

    Parameters
    ----------
    generation : int
        The generation that is to be flushed next.
    schema : Schema
        Schema of the rows: the table's columns and ``_tombstone``.
    tail : iterable of PositionedEntry
        The entries, none of which a generation holds.
    sources : SourceMarks
        What is known of sources before them.
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


def is_in_order(generation: int, tail: Iterable[PositionedEntry]) -> bool:
    """Whether generations in a tail go up one by one from ``generation``, as the library demands.

    Examples
    --------
    >>> is_in_order(1, [])
    True
    """
    newest = generation
    for item in tail:
        recorded = recorded_generation(item)
        if recorded is None or recorded == newest:
            continue
        if recorded != newest + 1:
            return False
        newest = recorded
    return True

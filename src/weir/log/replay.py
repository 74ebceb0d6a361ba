"""Which log entries are already in a generation, and the order of generations in a log.

Lance MemWAL spec, "WAL Replay". Every entry with rows records the generation of the MemTable that they went
to. Two things follow, and the released library relies on both:

- An entry whose generation is below the manifest's current one is in a generation, even where
  ``replay_after_wal_entry_position`` is below it: the library lets that lag behind when it flushes a
  MemTable because it is full.
- Within a log the generations never go back. A writer may die while a MemTable waits for its flush, and leave
  entries of two generations. Replay rebuilds two MemTables, flushes them under the numbers that the entries
  record, and continues with the last. The library refuses a log in which generations go back.

Logs of other writers may be otherwise: there a generation that goes back counts as the one before it, so
that what was written later is flushed later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weir.format.shard_manifest import ShardManifest
from weir.log.wal import PositionedEntry, first_unflushed_position

__all__ = ["covered_position", "is_in_order", "recorded_generation", "unflushed"]


def recorded_generation(item: PositionedEntry) -> int | None:
    """Return the generation that the rows of an entry went to; None if it has none, or does not say."""
    return item.entry.header.generation if item.entry.num_rows else None


def covered_position(manifest: ShardManifest, entries: Iterable[PositionedEntry]) -> int:
    """Return the last position whose rows are in a generation of ``manifest``; -1 if there is none.

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

    :func:`covered_position` says what they must be.
    """
    covered = covered_position(manifest, entries)
    if not entries or entries[0].position > covered:
        return entries
    return [item for item in entries if item.position > covered]


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

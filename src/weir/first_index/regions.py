"""Which MemWALs of the regions are live, and in which order; without I/O."""

from __future__ import annotations

from collections.abc import Iterable

from weir.format.first_index_details import FirstIndexDetails, MemWal, MemWalState

__all__ = ["named", "unmerged"]


def unmerged(details: FirstIndexDetails) -> tuple[MemWal, ...]:
    """Return the MemWALs whose rows are not in the base table, oldest first.

    In a region the newer generation is the later one. The index says nothing of the order among regions, nor
    that they share no key: a higher generation counts as the later one there too, and of equal ones that of
    the region whose name comes later, so that every reader sees the same.

    Examples
    --------
    >>> from weir.format.u64_segment import U64Segment
    >>> def one(region, generation, state):
    ...     return MemWal(region, generation, "", "", U64Segment(), state, "", 1)
    >>> details = FirstIndexDetails(
    ...     (
    ...         one("us", 1, MemWalState.OPEN),
    ...         one("eu", 1, MemWalState.SEALED),
    ...         one("us", 0, MemWalState.MERGED),
    ...     )
    ... )
    >>> [(each.region, each.generation) for each in unmerged(details)]
    [('eu', 1), ('us', 1)]
    """
    kept: Iterable[MemWal] = (one for one in details.mem_wals if one.state is not MemWalState.MERGED)
    return tuple(sorted(kept, key=lambda one: (one.generation, one.region)))


def named(mem_wal: MemWal) -> str:
    """Return what a MemWAL is called in messages."""
    return f"generation {mem_wal.generation} of region {mem_wal.region!r}"

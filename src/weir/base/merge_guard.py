"""The second mark of a merge, by which a merger notices that another one was faster.

A merge commit marks the last generation it has taken in, and the library refuses the commit if the
mark is not above the one recorded. That is enough for two mergers with the same run of generations,
and too weak for runs that overlap: after one has merged generation 6 alone, the commit of another
that planned 6 to 8 still passes, though the deletes of its run were settled against a base table
without generation 6. A row that generation 6 inserts and generation 8 deletes would stay.

So every merge commit marks a second number, under an id made from the shard's: the first generation
that was unmerged when the merge was planned. Of all merges planned from the same state one commits,
and the library refuses the rest.

A guard id is a name-based UUID (version 5), Weir's shard ids have the form of random ones (version 4):
neither is ever taken for the other. Whoever lists merge progress leaves the guards away
(:func:`without_guards`).
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID, uuid5

from weir.format.index_details import MergedGeneration

__all__ = ["guard_id", "without_guards"]

_NAMESPACE = UUID("5b2f6b3c-1f0e-5c57-9d0a-6e5a2f4c7d11")


def guard_id(shard_id: UUID) -> UUID:
    """Return the id under which the guard of a shard's merges is recorded.

    Examples
    --------
    >>> guard_id(UUID("1c4e7a52-6f0b-4d38-9a11-0c2b3d4e5f60")).version
    5
    """
    return uuid5(_NAMESPACE, str(shard_id))


def without_guards(merged: Sequence[MergedGeneration]) -> tuple[MergedGeneration, ...]:
    """Return the merge progress of shards, without the entries that guard merges.

    Examples
    --------
    >>> shard = MergedGeneration(UUID(int=7), 12)
    >>> without_guards([shard, MergedGeneration(guard_id(shard.shard_id), 9)]) == (shard,)
    True
    """
    guards = {guard_id(one.shard_id) for one in merged}
    return tuple(one for one in merged if one.shard_id not in guards)

"""Two further marks of a merge: a guard against repetition, and the progress of deletes.

A merge commit marks the last generation it has merged, and the library refuses the commit if the mark is not
above the recorded one. That suffices for two mergers with the same run of generations, but not for
overlapping runs: after one has merged generation 6 alone, the commit of another that planned 6 to 8 still
passes, though its deletes were determined against a base table without generation 6. A row that generation 6
inserts and generation 8 deletes would stay.

So every merge commit marks a second number, under an id derived from the shard's: the first generation that
was unmerged when the merge was planned. Of all merges planned from the same state only one commits; the
library refuses the rest.

A guard id is a name-based UUID (version 5), Weir's shard ids have the form of random ones (version 4):
neither is ever mistaken for the other.

**Deletes.** A merge of deletes and rows takes two commits. The first marks, under a third id, the last
generation whose deletes it has applied. While that is above the merged generation, the base table contains
only half of the generations between: a reader that combines it with shards must read all of these
(:func:`half_merged`). A restarted merge may find the mark in place. Where a merge engine combines versions
with the row of the base table, it has to merge all of them at once: of a key that one of them deletes, the
row that earlier ones add to is gone. An id of this kind is recognisable on its own, since the shard may have
no other entry yet: it has its own version (8) and begins with the same six bytes.

Listings of merge progress omit both kinds (:func:`without_guards`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from uuid import UUID, uuid5

from weir.format.index_details import MergedGeneration

__all__ = ["deletes_id", "guard_id", "half_merged", "marks_of", "without_guards"]

_NAMESPACE = UUID("5b2f6b3c-1f0e-5c57-9d0a-6e5a2f4c7d11")
_DELETES = b"weirde"


def guard_id(shard_id: UUID) -> UUID:
    """Return the id under which the guard of a shard's merges is recorded.

    Examples
    --------
    >>> guard_id(UUID("1c4e7a52-6f0b-4d38-9a11-0c2b3d4e5f60")).version
    5
    """
    return uuid5(_NAMESPACE, str(shard_id))


@lru_cache(maxsize=4096)
def deletes_id(shard_id: UUID) -> UUID:
    """Return the id under which the progress of the deletes of a shard's merges is recorded.

    Examples
    --------
    >>> deletes_id(UUID("1c4e7a52-6f0b-4d38-9a11-0c2b3d4e5f60")).version
    8
    """
    named = uuid5(_NAMESPACE, f"deletes of {shard_id}").bytes
    return UUID(bytes=_DELETES + bytes([0x80 | named[6] & 0x0F]) + named[7:])


def marks_of(shard_id: UUID) -> frozenset[UUID]:
    """Return the ids of all marks that merges of a shard leave."""
    return frozenset((shard_id, guard_id(shard_id), deletes_id(shard_id)))


def _is_deletes_id(mark: UUID) -> bool:
    return mark.version == 8 and mark.bytes.startswith(_DELETES)


def half_merged(merged: Sequence[MergedGeneration]) -> dict[UUID, int]:
    """Return how far deletes have come where rows have not.

    Parameters
    ----------
    merged : sequence of MergedGeneration
        The merge progress of a version of the base table.

    Returns
    -------
    dict of UUID to int
        By :func:`deletes_id` of the shard, the last generation whose deletes are applied but whose rows may
        be missing. Empty unless a merge is running or was interrupted.

    Examples
    --------
    >>> shard = UUID("1c4e7a52-6f0b-4d38-9a11-0c2b3d4e5f60")
    >>> between = [MergedGeneration(shard, 3), MergedGeneration(deletes_id(shard), 5)]
    >>> half_merged(between) == {deletes_id(shard): 5}
    True
    >>> half_merged([MergedGeneration(shard, 5), between[1]])
    {}
    """
    ahead = {one.shard_id: one.generation for one in merged if _is_deletes_id(one.shard_id)}
    if ahead:
        for one in merged:
            mark = deletes_id(one.shard_id)
            if ahead.get(mark, one.generation) <= one.generation:
                ahead.pop(mark, None)
    return ahead


def without_guards(merged: Sequence[MergedGeneration]) -> tuple[MergedGeneration, ...]:
    """Return the merge progress of shards, without the entries of other marks.

    Examples
    --------
    >>> shard = MergedGeneration(UUID(int=7), 12)
    >>> without_guards([shard, MergedGeneration(guard_id(shard.shard_id), 9)]) == (shard,)
    True
    """
    guards = {guard_id(one.shard_id) for one in merged}
    return tuple(one for one in merged if one.shard_id not in guards and not _is_deletes_id(one.shard_id))

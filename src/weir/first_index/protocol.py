"""The protocol of the first MemWAL index: each step as a function of the details, without I/O.

First MemWAL index spec, "Index Details" and "Expected Use Pattern". Every change of a MemWAL names the owner
it expects, moves its state one step on or not at all, and notes the version of the table that it becomes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from weir.errors import FencedError, InputError
from weir.first_index.regions import named, unmerged
from weir.format.first_index_details import FirstIndexDetails, MemWal, MemWalState
from weir.format.u64_segment import U64Segment

__all__ = [
    "claimed",
    "flushed",
    "merged",
    "newest",
    "opened",
    "owned",
    "region_claimed",
    "sealed_and_opened",
    "with_entry",
]


def newest(details: FirstIndexDetails, region: str) -> MemWal | None:
    """Return the newest MemWAL of a region, or None if it has none yet."""
    own = [one for one in details.mem_wals if one.region == region]
    return max(own, key=lambda one: one.generation, default=None)


def owned(details: FirstIndexDetails, region: str, generation: int, owner: str) -> MemWal:
    """Return a MemWAL if it has an owner.

    Raises
    ------
    FencedError
        Another owner has claimed it.
    InputError
        It does not exist.
    """
    for one in details.mem_wals:
        if (one.region, one.generation) == (region, generation):
            if one.owner_id != owner:
                raise _fenced(one, owner)
            return one
    raise InputError(f"there is no generation {generation} of region {region!r}")


def opened(
    details: FirstIndexDetails,
    region: str,
    owner: str,
    *,
    version: int,
    wal_location: str,
    mem_table_location: str,
) -> FirstIndexDetails:
    """Return details in which a region that has no open MemWAL has one: its first, or the next.

    Raises
    ------
    InputError
        It has one.
    """
    last = newest(details, region)
    if last is not None and last.state is MemWalState.OPEN:
        raise InputError(
            f"{named(last)} is open, and a region has only one at a time", where=last.wal_location
        )
    made = MemWal(
        region,
        0 if last is None else last.generation + 1,
        mem_table_location,
        wal_location,
        U64Segment(),
        MemWalState.OPEN,
        owner,
        version,
    )
    return replace(details, mem_wals=(*details.mem_wals, made))


def claimed(
    details: FirstIndexDetails,
    mem_wals: Collection[MemWal],
    owner: str,
    *,
    version: int,
    mem_table_location: str | None = None,
) -> FirstIndexDetails:
    """Return details in which MemWALs belong to another owner: compare-and-swap of their ``owner_id``.

    Parameters
    ----------
    details : FirstIndexDetails
        The newest details.
    mem_wals : collection of MemWal
        Them, as they were read: with the owner that is expected.
    owner : str
        The new owner: a unique name.
    version : int
        The version of the table that this becomes.
    mem_table_location : str, optional
        Where the rows of those that are open or sealed are from now on. Default: unchanged.

    Raises
    ------
    FencedError
        One of them now belongs to another owner than expected.
    """
    for one in mem_wals:
        owned(details, one.region, one.generation, one.owner_id)
    claims = {(one.region, one.generation) for one in mem_wals}

    def changed(one: MemWal) -> MemWal:
        if (one.region, one.generation) not in claims:
            return one
        in_memory = mem_table_location is not None and one.state.value < MemWalState.FLUSHED.value
        location = mem_table_location if in_memory else one.mem_table_location
        return replace(
            one,
            owner_id=owner,
            mem_table_location=location or "",
            last_updated_dataset_version=version,
        )

    return replace(details, mem_wals=tuple(map(changed, details.mem_wals)))


def region_claimed(
    details: FirstIndexDetails,
    region: str,
    expected: Collection[str],
    owner: str,
    *,
    version: int,
    wal_location: str,
    mem_table_location: str,
) -> FirstIndexDetails:
    """Return details in which a region has another writer, and a MemWAL that takes entries.

    Parameters
    ----------
    details : FirstIndexDetails
        The newest details.
    region : str
        The region.
    expected : collection of str
        The owners of its unmerged MemWALs when its writer began to claim; empty for a new one.
    owner : str
        The new owner: a unique name.
    version : int
        The version of the table that this becomes.
    wal_location : str
        The location of the WAL of the next MemWAL, if none is open.
    mem_table_location : str
        Where the rows are in memory from now on.

    Raises
    ------
    FencedError
        Another owner has claimed it since.
    """
    own = [one for one in unmerged(details) if one.region == region]
    for one in own:
        if one.owner_id not in expected:
            raise _fenced(one, owner)
    taken = claimed(details, own, owner, version=version, mem_table_location=mem_table_location)
    last = newest(taken, region)
    if last is not None and last.state is MemWalState.OPEN:
        return taken
    return opened(
        taken,
        region,
        owner,
        version=version,
        wal_location=wal_location,
        mem_table_location=mem_table_location,
    )


def with_entry(
    details: FirstIndexDetails, region: str, generation: int, owner: str, entry: int, *, version: int
) -> FirstIndexDetails:
    """Return details in which an open MemWAL has one entry more; what its number passes over are holes.

    Raises
    ------
    FencedError
        It belongs to another owner.
    InputError
        It is not open, or the number is not above those it has.
    """

    def change(one: MemWal) -> MemWal:
        if one.state is not MemWalState.OPEN:
            raise InputError(f"{named(one)} is {one.state.name} and takes no entries", where=one.wal_location)
        return replace(one, entries=one.entries.with_number(entry))

    return _changed(details, region, generation, owner, version, change)


def sealed_and_opened(
    details: FirstIndexDetails,
    region: str,
    generation: int,
    owner: str,
    *,
    version: int,
    wal_location: str,
    mem_table_location: str,
) -> FirstIndexDetails:
    """Return details in which an open MemWAL is sealed and the next one is open: both or neither.

    Raises
    ------
    FencedError
        It belongs to another owner.
    InputError
        It is not open.
    """
    sealed = _moved(details, region, generation, owner, version, MemWalState.SEALED)
    return opened(
        sealed,
        region,
        owner,
        version=version,
        wal_location=wal_location,
        mem_table_location=mem_table_location,
    )


def flushed(
    details: FirstIndexDetails,
    region: str,
    generation: int,
    owner: str,
    *,
    version: int,
    mem_table_location: str | None = None,
) -> FirstIndexDetails:
    """Return details in which the rows of a sealed MemWAL are on storage.

    Parameters
    ----------
    details : FirstIndexDetails
        The newest details.
    region, generation, owner
        Which MemWAL, and who says so.
    version : int
        The version of the table that this becomes.
    mem_table_location : str, optional
        Where they are. Default: the recorded location of the MemTable.

    Raises
    ------
    FencedError
        It belongs to another owner.
    InputError
        It is not sealed, or an older one of the region is not flushed.
    """
    moved = _moved(details, region, generation, owner, version, MemWalState.FLUSHED)
    if mem_table_location is None:
        return moved
    return _changed(
        moved,
        region,
        generation,
        owner,
        version,
        lambda one: replace(one, mem_table_location=mem_table_location),
    )


def merged(
    details: FirstIndexDetails, region: str, generation: int, owner: str, *, version: int
) -> FirstIndexDetails:
    """Return details in which the rows of a flushed MemWAL are in the base table.

    Raises
    ------
    FencedError
        It belongs to another owner.
    InputError
        It is not flushed, or an older one of the region is not merged.
    """
    return _moved(details, region, generation, owner, version, MemWalState.MERGED)


def _fenced(mem_wal: MemWal, owner: str) -> FencedError:
    return FencedError(
        f"{named(mem_wal)} belongs to {mem_wal.owner_id!r}, no longer to {owner!r}",
        where=mem_wal.wal_location,
        hint="Another writer has claimed the region; claim it again to continue",
    )


def _moved(
    details: FirstIndexDetails, region: str, generation: int, owner: str, version: int, state: MemWalState
) -> FirstIndexDetails:
    def change(one: MemWal) -> MemWal:
        if one.state.value != state.value - 1:
            raise InputError(
                f"{named(one)} is {one.state.name} and cannot become {state.name}: a MemWAL goes from "
                "OPEN to SEALED, FLUSHED and MERGED, one after the other",
                where=one.wal_location,
            )
        behind = [
            older
            for older in details.mem_wals
            if older.region == region and older.generation < generation and older.state.value < state.value
        ]
        if behind:
            raise InputError(
                f"{named(one)} cannot become {state.name} before generation {behind[0].generation}, which is "
                f"{behind[0].state.name}",
                where=one.wal_location,
            )
        return replace(one, state=state)

    return _changed(details, region, generation, owner, version, change)


def _changed(
    details: FirstIndexDetails,
    region: str,
    generation: int,
    owner: str,
    version: int,
    change: Callable[[MemWal], MemWal],
) -> FirstIndexDetails:
    before = owned(details, region, generation, owner)
    after = replace(change(before), last_updated_dataset_version=version)
    return replace(details, mem_wals=tuple(after if one is before else one for one in details.mem_wals))

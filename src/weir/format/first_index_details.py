"""The details of the first form of the MemWAL index: every MemWAL of every region in one list.

They are the details of an index of the same name and type as today's (:mod:`weir.format.index_details`), and
distinguished from those by their first field, which was a message and is now a number. First MemWAL index
spec, section "Index Details".
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import numpy as np

from weir.errors import CorruptionError, InputError
from weir.format import messages, u64_segment
from weir.format.buffers import Bytes
from weir.format.proto import first_index_pb2
from weir.format.u64_segment import U64Segment

__all__ = ["FirstIndexDetails", "MemWal", "MemWalState", "decode", "encode", "is_first_form"]

# A message as field 1. Today it is a number, with another wire type.
_FIRST_TAG = 0x0A


class MemWalState(enum.Enum):
    """The stage of a MemWAL's life; it only advances."""

    OPEN = 0
    """It takes entries."""
    SEALED = 1
    """It no longer takes any; another of the region has been opened."""
    FLUSHED = 2
    """Its rows are on storage, and not yet in the table."""
    MERGED = 3
    """Its rows are in the table; its WAL may go."""


@dataclass(frozen=True, slots=True)
class MemWal:
    """A MemTable and its WAL: one generation of a region.

    Parameters
    ----------
    region : str
        The region, which has one writer at a time.
    generation : int
        Counts up in the region.
    mem_table_location : str
        Where the MemTable is: an address in its writer's memory, as a rule.
    wal_location : str
        Where the WAL is; it does not change.
    entries : U64Segment
        The entries of the WAL.
    state : MemWalState
        How far it is.
    owner_id : str
        Who may change it. Every change names the owner it expects.
    last_updated_dataset_version : int
        The version of the table that came of its last change.
    unknown_fields : bytes, default b""
        Serialised fields of another writer, kept as they are.
    """

    region: str
    generation: int
    mem_table_location: str
    wal_location: str
    entries: U64Segment
    state: MemWalState
    owner_id: str
    last_updated_dataset_version: int
    unknown_fields: bytes = b""


@dataclass(frozen=True, slots=True)
class FirstIndexDetails:
    """The details of the index.

    Parameters
    ----------
    mem_wals : tuple of MemWal, default ()
        Those of all regions, in the order they are stored.
    unknown_fields : bytes, default b""
        Serialised fields of another writer, kept as they are.
    """

    mem_wals: tuple[MemWal, ...] = ()
    unknown_fields: bytes = field(default=b"")


def is_first_form(data: Bytes) -> bool:
    """Whether details of the MemWAL index are of the first form.

    Details without any MemWAL are the same bytes, none, in both forms, and count as today's.

    Examples
    --------
    >>> is_first_form(encode(FirstIndexDetails())), is_first_form(bytes.fromhex("0a00"))
    (False, True)
    """
    return bytes(memoryview(data).cast("B")[:1]) == bytes([_FIRST_TAG])


def encode(details: FirstIndexDetails) -> bytes:
    """Return the bytes to store for ``details``; equal details give equal bytes.

    Raises
    ------
    InputError
        A number does not fit its field.
    """
    try:
        message = first_index_pb2.FirstIndexDetails()
        for one in details.mem_wals:
            message.mem_wal_list.add(
                id=first_index_pb2.MemWalId(region=one.region, generation=one.generation),
                mem_table_location=one.mem_table_location,
                wal_location=one.wal_location,
                wal_entries=u64_segment.encode(one.entries),
                state=one.state.value,
                owner_id=one.owner_id,
                last_updated_dataset_version=one.last_updated_dataset_version,
            ).MergeFromString(one.unknown_fields)
        message.MergeFromString(details.unknown_fields)
    except messages.ENCODE_ERRORS as error:
        raise InputError(f"the details of the first MemWAL index cannot be encoded: {error}") from error
    return messages.serialize(message)


def decode(data: Bytes, *, where: str) -> FirstIndexDetails:
    """Return the details stored as ``data``.

    Parameters
    ----------
    data : bytes-like
        The value of the index details.
    where : str
        Path of the table manifest they come from, for the error.

    Raises
    ------
    CorruptionError
        The bytes are not such details; a state or a segment is not known; a generation of a region, or an
        entry of a WAL, is there twice, or two of a region take entries.
    """
    message = messages.parse(
        first_index_pb2.FirstIndexDetails(), data, what="details of the first MemWAL index", where=where
    )
    found = tuple(_decode_mem_wal(one, where) for one in message.mem_wal_list)
    _check(found, where)
    return FirstIndexDetails(found, messages.unknown_fields(message))


def _decode_mem_wal(message: first_index_pb2.MemWal, where: str) -> MemWal:
    name = f"generation {message.id.generation} of region {message.id.region!r}"
    if message.state not in first_index_pb2.MemWalState.values():
        raise CorruptionError(f"{name} is in state {message.state}, which is not known", where=where)
    try:
        entries = u64_segment.decode(message.wal_entries, where=where)
    except CorruptionError as error:
        raise CorruptionError(f"the WAL entries of {name} cannot be read: {error}", where=where) from error
    if entries.array is not None and np.unique(entries.array).size < entries.array.size:
        raise CorruptionError(f"an entry of the WAL of {name} is listed twice", where=where)
    return MemWal(
        message.id.region,
        message.id.generation,
        message.mem_table_location,
        message.wal_location,
        entries,
        MemWalState(message.state),
        message.owner_id,
        message.last_updated_dataset_version,
        messages.unknown_fields(message),
    )


def _check(mem_wals: tuple[MemWal, ...], where: str) -> None:
    seen: set[tuple[str, int]] = set()
    open_regions: set[str] = set()
    for one in mem_wals:
        if (one.region, one.generation) in seen:
            raise CorruptionError(
                f"generation {one.generation} of region {one.region!r} is listed twice", where=where
            )
        seen.add((one.region, one.generation))
        if one.state is MemWalState.OPEN:
            if one.region in open_regions:
                raise CorruptionError(f"region {one.region!r} has two MemWALs that are open", where=where)
            open_regions.add(one.region)

"""The lease of a shard's writer: who writes the shard, with which epoch, and until when.

One JSON object per shard at :func:`weir.format.layout.lease_path`, replaced by compare-and-swap and never
deleted: a writer that lets go marks its lease as released. Weir's own; writers of the released library
take no leases, and are kept apart by epochs and fence entries alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from weir.errors import CorruptionError
from weir.format import checked_json
from weir.format.buffers import Bytes

__all__ = ["Lease", "LeaseOwner", "decode", "encode"]

_MAX_EPOCH = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class LeaseOwner:
    """A writer in some process.

    Parameters
    ----------
    host : str
        Name of its machine, for people.
    process_id : int
        Its process, as numbered where it runs.
    process_started : int, optional
        When the process started, in clock ticks since its system did; None where that is not known.
        A process id that was given out again belongs to a process with another start.
    system : str, optional
        Identity of the running system and of the name spaces for processes and time: process ids and
        uptimes can be compared exactly where it is equal. None where that is not known.
    holder_id : str
        Random, one per writer: 32 hex digits.
    address : str, optional
        Where others reach its process, as its writer was told, for people. None where it was not, and in
        leases of early versions of Weir.
    """

    host: str
    process_id: int
    process_started: int | None
    system: str | None
    holder_id: str
    address: str | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """What a lease says.

    Parameters
    ----------
    shard_id : UUID
        The shard.
    epoch : int
        Fencing token: the epoch its holder writes with, or is about to claim. Higher for every
        holder than for the one before.
    holder : LeaseOwner
        Who holds it.
    acquired_at, renewed_at, expires_at : datetime
        Since when, when last renewed, and until when, by the wall clock of the holder, in UTC.
    expires_at_uptime : float
        Until when, in seconds that the holder's system has been up; of use on that system only.
    ttl : float
        Seconds from a renewal to the end.
    released : bool
        Whether the holder has let go before the end.
    write_id : str
        Random, new in every version: shows a holder whose answer was lost that what is stored is its own
        (invariant I4), and that no two versions have equal bytes.
    last_position : int, default 0
        A log position that has been acknowledged, as far as the holder knew; 0 if it knew of none, and in
        leases of early versions of Weir.
    """

    shard_id: UUID
    epoch: int
    holder: LeaseOwner
    acquired_at: datetime
    renewed_at: datetime
    expires_at: datetime
    expires_at_uptime: float
    ttl: float
    released: bool
    write_id: str
    last_position: int = 0


def encode(lease: Lease) -> bytes:
    """Return the bytes of a lease."""
    holder = lease.holder
    return checked_json.encode(
        {
            "shard_id": str(lease.shard_id),
            "epoch": lease.epoch,
            "holder": {
                "host": holder.host,
                "process_id": holder.process_id,
                "process_started": holder.process_started,
                "system": holder.system,
                "holder_id": holder.holder_id,
                **({} if holder.address is None else {"address": holder.address}),
            },
            "acquired_at": _instant_text(lease.acquired_at),
            "renewed_at": _instant_text(lease.renewed_at),
            "expires_at": _instant_text(lease.expires_at),
            "expires_at_uptime": lease.expires_at_uptime,
            "ttl": lease.ttl,
            "released": lease.released,
            "write_id": lease.write_id,
            "last_position": lease.last_position,
        }
    )


def decode(data: Bytes, *, where: str) -> Lease:
    """Return the lease stored as ``data``. Members that only a later version of Weir knows are ignored.

    Raises
    ------
    CorruptionError
        If the bytes are damaged (invariant I11).
    """
    members = checked_json.decode(data, where=where)
    holder = _member(members, "holder", dict, where)
    epoch = _member(members, "epoch", int, where)
    if not 1 <= epoch <= _MAX_EPOCH:
        raise CorruptionError(f"the lease has the epoch {epoch}", where=where)
    return Lease(
        shard_id=_uuid(_member(members, "shard_id", str, where), where),
        epoch=epoch,
        holder=LeaseOwner(
            host=_member(holder, "host", str, where),
            process_id=_member(holder, "process_id", int, where),
            process_started=_optional(holder, "process_started", int, where),
            system=_optional(holder, "system", str, where),
            holder_id=_member(holder, "holder_id", str, where),
            address=_optional(holder, "address", str, where),
        ),
        acquired_at=_instant(members, "acquired_at", where),
        renewed_at=_instant(members, "renewed_at", where),
        expires_at=_instant(members, "expires_at", where),
        expires_at_uptime=_number(members, "expires_at_uptime", where),
        ttl=_number(members, "ttl", where),
        released=_member(members, "released", bool, where),
        write_id=_member(members, "write_id", str, where),
        last_position=_optional(members, "last_position", int, where) or 0,
    )


def _instant_text(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _instant(members: dict[str, Any], name: str, where: str) -> datetime:
    text = _member(members, name, str, where)
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is None:
            raise ValueError("no time zone")
        return found.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise CorruptionError(f"the lease has the {name} {text[:60]!r}", where=where) from error


def _uuid(text: str, where: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as error:
        raise CorruptionError(f"the lease has the shard_id {text[:60]!r}", where=where) from error


def _number(members: dict[str, Any], name: str, where: str) -> float:
    value = members.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise CorruptionError(f"the lease has no number {name}", where=where)
    try:
        return float(value)
    except OverflowError as error:
        raise CorruptionError(f"the lease has a {name} that is out of range", where=where) from error


def _member(members: dict[str, Any], name: str, kind: type, where: str) -> Any:
    value = members.get(name)
    # True is an int to Python.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise CorruptionError(f"the lease has no valid {name}: {value!r:.60}", where=where)
    return value


def _optional(members: dict[str, Any], name: str, kind: type, where: str) -> Any:
    return None if members.get(name) is None else _member(members, name, kind, where)

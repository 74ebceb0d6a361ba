"""The position a log has reached, according to records elsewhere.

A position without an entry is the end of a log for every reader. So deleting an entry directly would hide
acknowledged rows unnoticed. The lease protects against this: its holder records the log position whenever it
renews or releases it.
"""

from __future__ import annotations

from uuid import UUID

from weir.engine.logs import get_logger
from weir.errors import CorruptionError, WeirError
from weir.format import layout
from weir.log.read_lease import read_lease
from weir.storage.interface import ObjectStore

__all__ = ["another_log", "entry_lost", "log_ends_before", "recorded_position"]

_log = get_logger(__name__)


def recorded_position(store: ObjectStore, shard_id: UUID) -> int:
    """Return a position that the log of a shard has reached for certain; 0 if nothing is recorded.

    Takes one round trip. Must be read before the log. An unreadable lease is ignored here: reads do not
    depend on it, and a claim of the shard reports it.
    """
    try:
        found = read_lease(store, shard_id)
    except WeirError as error:
        _log.warning("shard.lease_not_read", shard=str(shard_id), error=str(error))
        return 0
    return 0 if found is None else found.last_position


def entry_lost(store: ObjectStore, shard_id: UUID, position: int, recorded: int) -> CorruptionError:
    """Return the error that says that a log ends before a position that it has reached.

    Parameters
    ----------
    position : int
        The first position that has no entry.
    recorded : int
        The position that its lease records.
    """
    return CorruptionError(
        f"the log of shard {shard_id} has no entry at position {position}, but its lease says that it has "
        f"reached {recorded}",
        where=f"{store.uri}/{layout.wal_path(shard_id, position)} (position {position})",
        hint="Acknowledged rows are gone: restore the entry from a backup. To continue without them, open a "
        "writer with takeover=True",
    )


def log_ends_before(store: ObjectStore, shard_id: UUID, position: int, place: int) -> CorruptionError:
    """Return the error that says that a log ends before the position that a feed has reached.

    Parameters
    ----------
    position : int
        The first position that has no entry.
    place : int
        The position of the feed.
    """
    return CorruptionError(
        f"the log of shard {shard_id} has no entry at position {position}, but the place to go on from says "
        f"that it has reached {place}",
        where=f"{store.uri}/{layout.wal_path(shard_id, position)} (position {position})",
        hint="Acknowledged rows are gone, or a backup was put in the place of the table. Restore the entry, "
        "or read the table anew and go on with a new token, a new checkpoint, or the consumer dropped and "
        "created again",
    )


def another_log(store: ObjectStore, shard_id: UUID, position: int) -> CorruptionError:
    """Return the error that says that a log is not the one that a place to go on from was in.

    Parameters
    ----------
    position : int
        The position of the place.
    """
    return CorruptionError(
        f"the log of shard {shard_id} is not the one whose position {position} is the place to go on from",
        where=f"{store.uri}/{layout.wal_path(shard_id, position)} (position {position})",
        hint="A backup was put in the place of the table, and the feed would pass over what has been written "
        "to it up to that position. Read the table anew and go on with a new token, a new checkpoint, or the "
        "consumer dropped and created again",
    )

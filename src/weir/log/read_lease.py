"""Reading the lease of a shard."""

from __future__ import annotations

from uuid import UUID

from weir.errors import CorruptionError, ObjectNotFoundError
from weir.format import layout, lease
from weir.format.lease import Lease
from weir.storage.interface import ObjectStore

__all__ = ["read_lease"]


def read_lease(store: ObjectStore, shard_id: UUID, path: str | None = None) -> Lease | None:
    """Return the lease of a shard, or None if it was never taken.

    Parameters
    ----------
    path : str, optional
        Where it is stored, if it is not a shard's.

    Raises
    ------
    CorruptionError
        If it is damaged.
    """
    path = path or layout.lease_path(shard_id)
    try:
        data = store.get(path)
    except ObjectNotFoundError:
        return None
    with store.naming(path) as where:
        found = lease.decode(data, where=where)
        if found.shard_id != shard_id:
            raise CorruptionError(
                f"the lease says it is of shard {found.shard_id}",
                where=where,
                hint="The file was moved or overwritten",
            )
    return found

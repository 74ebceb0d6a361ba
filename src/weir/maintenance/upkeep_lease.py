"""The lease on the upkeep of a table: one process at a time maintains it, however many have it open.

Every job of upkeep is safe to run twice at once. The lease keeps two processes from doing the same work.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from weir.format.lease import Lease
from weir.log.read_lease import read_lease
from weir.storage.interface import ObjectStore
from weir.write.lease.heartbeat import Heartbeat, lease_renewals
from weir.write.lease.lease import ShardLease, release_quietly
from weir.write.lease.lease_terms import LeaseTerms

__all__ = ["UPKEEP_LEASE", "held_upkeep", "read_upkeep_lease"]

UPKEEP_LEASE = "_weir/upkeep/lease.json"

_NO_SHARD = UUID(int=0)
_TTL_SECONDS = 60.0


@contextmanager
def held_upkeep(store: ObjectStore) -> Iterator[ShardLease]:
    """Hold the lease for the length of a ``with`` block; it is renewed meanwhile.

    Raises
    ------
    LeaseHeldError
        If another process, or another engine, looks after the table.
    """
    terms = LeaseTerms(ttl=_TTL_SECONDS)
    held = ShardLease.acquire(store, _NO_SHARD, terms, least_epoch=1, path=UPKEEP_LEASE)
    heartbeat = Heartbeat(renewals=lease_renewals(store.engine))
    try:
        heartbeat.watch(held)
        yield held
    finally:
        heartbeat.forget(held)
        release_quietly(held)


def read_upkeep_lease(store: ObjectStore) -> Lease | None:
    """Return the lease, or None if the table has never had upkeep."""
    return read_lease(store, _NO_SHARD, UPKEEP_LEASE)

"""The terms on which a lease is taken, and when a stored lease no longer matters.

A held lease is respected until it has expired. For a process of the same system that is exact, by uptime, and
a process that no longer exists needs no waiting. For others the wall clocks decide, with an allowance for
their difference; if they are wrong by more, the time without a renewal decides.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from weir.format.lease import Lease, LeaseOwner
from weir.storage.interface import ObjectStore
from weir.write.lease.clock import SYSTEM_CLOCK, Clock
from weir.write.lease.lease_owner import is_certainly_dead, new_lease_owner
from weir.write.lease.released_leases import released_leases

__all__ = ["LeaseTerms", "is_free", "lease_state"]

_MAX_SKEW_SECONDS = 10.0
_SKEW_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """How a writer takes its leases.

    Parameters
    ----------
    ttl : float
        Seconds a lease lasts from its last renewal. Default 300.
    takeover : bool
        Whether to take a lease that another writer holds. Default False.
    holder : LeaseOwner
        Who takes them. Default: a new holder of this process.
    clock : Clock
        Tells the time. Default: the clocks of this machine.
    on_restore : callable, optional
        Called when a lease shows that a backup was put in the place of the table.
    """

    ttl: float = 300.0
    takeover: bool = False
    holder: LeaseOwner = field(default_factory=new_lease_owner)
    clock: Clock = SYSTEM_CLOCK
    on_restore: Callable[[], None] | None = None


def lease_state(found: Lease | None) -> str:
    """Return the state of a lease as text.

    Returns
    -------
    str
        ``"none"`` if there has never been one, ``"held"``, ``"released"``, ``"expired"`` by the clock of
        this machine, or ``"abandoned"`` if its holder was a process of this machine that is gone.
    """
    if found is None:
        return "none"
    if found.released:
        return "released"
    if is_certainly_dead(found.holder):
        return "abandoned"
    return "held" if SYSTEM_CLOCK.now() < found.expires_at else "expired"


def is_free(store: ObjectStore, found: Lease, terms: LeaseTerms) -> bool:
    """Whether a lease with a holder may be taken on these terms."""
    if terms.takeover or found.released or found.holder.holder_id == terms.holder.holder_id:
        return True
    if released_leases.has(found):
        return True
    own = terms.holder.system
    if own is not None and found.holder.system == own:
        # One system, one uptime: whatever has happened to the wall clock, this is exact.
        return terms.clock.uptime() >= found.expires_at_uptime or is_certainly_dead(found.holder)
    patience = found.ttl + min(found.ttl * _SKEW_SHARE, _MAX_SKEW_SECONDS)
    if terms.clock.now() >= found.renewed_at + timedelta(seconds=patience):
        return True
    return _sightings.unchanged_for(store, found, terms.clock) >= patience


class _Sightings:
    """Since when this process has seen the leases of others unchanged, by its own clock.

    If wall clocks are wrong by more than the allowance, the lease of a vanished holder would block others for
    as long. A repeated attempt sees that it is not renewed, which needs no wall clock.
    """

    def __init__(self) -> None:
        self._first: dict[tuple[str, UUID], tuple[str, float]] = {}
        self._lock = threading.Lock()

    def unchanged_for(self, store: ObjectStore, found: Lease, clock: Clock) -> float:
        """Return for at least how many seconds ``found`` has been the stored lease."""
        key, now = (store.uri, found.shard_id), clock.uptime()
        with self._lock:
            write_id, since = self._first.get(key, ("", now))
            if write_id != found.write_id:
                since = now
                self._first[key] = (found.write_id, now)
        return now - since


_sightings = _Sightings()

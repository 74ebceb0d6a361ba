"""The time by the clock of a store, the one clock shared by all its users."""

from __future__ import annotations

import secrets
from datetime import datetime

from weir.errors import ObjectNotFoundError
from weir.storage.interface import ObjectStore

__all__ = ["store_time"]

_CLOCK = "_weir/garbage/clock"


def store_time(store: ObjectStore) -> datetime:
    """Return the time by the clock of the store, to a second or so, in UTC. Two round trips.

    Machines that take turns may disagree on the time by more than the intervals to be measured.
    """
    # Random content: on some stores equal content has an equal version, and may not be written again.
    store.put(_CLOCK, secrets.token_hex(16).encode())
    meta = store.head(_CLOCK)
    if meta is None:
        raise ObjectNotFoundError(
            "an object that was just written is gone",
            where=f"{store.uri}/{_CLOCK}",
            hint="Another program deletes objects there",
        )
    return meta.last_modified

"""Expiry of the service's temporary records, once they can no longer be requested."""

from __future__ import annotations

import time
from collections.abc import Mapping

from weir.storage.interface import ObjectStore

__all__ = ["KEPT_SECONDS", "remove_expired"]

KEPT_SECONDS: Mapping[str, float] = {
    # The answers of writes with an Idempotency-Key, from when they were last told.
    "idempotency": 24 * 3600.0,
    "idempotency-events": 24 * 3600.0,
    # How operations ended that went on after their request.
    "operations": 24 * 3600.0,
    # Which namespaces are being deleted: asked for during seconds.
    "deleting": 600.0,
}
"""How long objects below a directory of the root are kept, in seconds since they were written."""

_MOST_AT_ONCE = 1_000


def remove_expired(store: ObjectStore, now: float | None = None) -> int:
    """Remove expired objects; return their number.

    Parameters
    ----------
    store : ObjectStore
        The root.
    now : float, optional
        Seconds since 1970. Default: now.
    """
    moment = time.time() if now is None else now
    expired = [
        meta.path
        for directory, kept in KEPT_SECONDS.items()
        for meta in store.list(directory)
        if moment - meta.last_modified.timestamp() > kept
    ]
    for start in range(0, len(expired), _MOST_AT_ONCE):
        store.delete(expired[start : start + _MOST_AT_ONCE])
    return len(expired)

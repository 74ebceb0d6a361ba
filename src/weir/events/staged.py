"""Rows that are laid down beside a store before they are appended, as the tasks of Spark do."""

from __future__ import annotations

import time
from datetime import timedelta

from weir.storage.interface import ObjectStore

__all__ = ["STAGED", "remove_left"]

STAGED = "spark"
"""Where they are, below the store."""


def remove_left(store: ObjectStore, horizon: timedelta) -> int:
    """Remove what nobody will append any more: whoever laid it down has died; return how many objects.

    Parameters
    ----------
    store : ObjectStore
        The event store.
    horizon : timedelta
        How long ago it was laid down at least.
    """
    latest = time.time() - horizon.total_seconds()
    left = [meta.path for meta in store.list(STAGED) if meta.last_modified.timestamp() < latest]
    if left:
        store.delete(left)
    return len(left)

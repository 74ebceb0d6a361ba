"""The requests about shards made while a table is opened, so that the first read starts from there.

It is only a hint: the read checks whether it still holds. Only the shard of unsharded tables is checked,
whose id is known before anything is read.
"""

from __future__ import annotations

import time
from collections.abc import Hashable
from uuid import UUID

from weir.errors import WeirError
from weir.format.lancedb_shards import UNSHARDED
from weir.format.shard_manifest import ShardManifest
from weir.log.manifest_store import read_hinted_manifest
from weir.storage.interface import ObjectStore

__all__ = ["expected_shard", "look_ahead", "looked_at"]

_BYTES = 512
_SECONDS = 10.0
"""How long the result counts: later the version hint leads to the newest in fewer steps."""


def look_ahead(store: ObjectStore) -> None:
    """Look up the manifest that the first read of a table will need: two round trips.

    An error is not one here. The read will meet it, and say more.
    """
    try:
        found = read_hinted_manifest(store, UNSHARDED)
    except WeirError:
        return
    if found is not None:
        store.engine.cache.put(_key(store, UNSHARDED), (time.monotonic(), found), _BYTES)


def looked_at(store: ObjectStore, shard_id: UUID) -> ShardManifest | None:
    """Return the manifest of a shard that :func:`look_ahead` has found, which may not be the newest now."""
    known: tuple[float, ShardManifest] | None = store.engine.cache.get(_key(store, shard_id))
    return None if known is None or time.monotonic() - known[0] > _SECONDS else known[1]


def expected_shard(store: ObjectStore) -> UUID | None:
    """Return the shard that a table has as far as :func:`look_ahead` knows."""
    return None if looked_at(store, UNSHARDED) is None else UNSHARDED


def _key(store: ObjectStore, shard_id: UUID) -> Hashable:
    return ("first look", store.uri, shard_id.int)

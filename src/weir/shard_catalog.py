"""Which shard holds which shard values: the shards that exist, and the id a new one gets."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from uuid import UUID

from weir.base.table import BaseTable
from weir.format.index_details import ShardSpec
from weir.format.shard_manifest import ShardManifest
from weir.shard.manifest_store import list_shards, read_latest_manifest
from weir.sharding.shard_values import ShardValues, shard_id
from weir.storage.interface import ObjectStore

__all__ = ["ShardCatalog"]


class ShardCatalog:
    """Finds the shard of some shard values.

    A shard's values never change, so what has been learnt of a shard stays true.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    base : BaseTable
        The base table, for its identity.
    spec : ShardSpec
        The table's shard spec.
    """

    def __init__(self, store: ObjectStore, base: BaseTable, spec: ShardSpec) -> None:
        self._store = store
        self._base = base
        self._spec = spec
        self._known: dict[UUID, ShardValues | None] = {}
        self._lock = threading.Lock()

    @property
    def spec(self) -> ShardSpec:
        """The shard spec that new shards are made with."""
        return self._spec

    def resolve(self, values: ShardValues) -> UUID:
        """Return the shard that holds, or will hold, the rows with some shard values.

        An existing shard is found by what its manifest records. The id of a new one follows from
        the table, the spec and the values, so that two writers that meet new values at the same
        time agree, and one of them is fenced.
        """
        with self._lock:
            for known in list_shards(self._store):
                if known not in self._known:
                    manifest = read_latest_manifest(self._store, known)
                    if manifest is not None:
                        self.learn(manifest)
            for known, held in self._known.items():
                if held == values:
                    return known
        return shard_id(self._base.identity, self._spec.spec_id, values)

    def learn(self, manifest: ShardManifest) -> None:
        """Remember the values a manifest records; a shard of another spec holds none of ours."""
        own = manifest.shard_spec_id == self._spec.spec_id
        self._known[manifest.shard_id] = (
            ShardValues.from_manifest(manifest.shard_fields, self._spec) if own else None
        )

    def values_of(self, manifests: tuple[ShardManifest, ...]) -> Mapping[UUID, ShardValues | None]:
        """Return the values of some shards; None for a shard made by hand or under another spec."""
        for manifest in manifests:
            if manifest.shard_id not in self._known:
                self.learn(manifest)
        return {manifest.shard_id: self._known[manifest.shard_id] for manifest in manifests}

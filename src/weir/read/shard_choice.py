"""Which shards of a snapshot a read has to visit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.base.table import BaseTable
from weir.log.table_sharding import TableSharding
from weir.lsm.keys import KeySet
from weir.read.shared_keys import conflict, find_shared_keys
from weir.sharding import pruning
from weir.snapshots.shard_view import ShardView
from weir.snapshots.snapshot import ReadSnapshot

__all__ = ["ShardChoice"]


@dataclass(frozen=True, slots=True)
class ShardChoice:
    """Chooses shards by the values of the table's shard spec that they hold.

    Parameters
    ----------
    sharding_of : callable
        Returns the sharding of the table that a version is of: another one may have come in its place.
    """

    sharding_of: Callable[[BaseTable], TableSharding]

    def refuse_shared_keys(self, snapshot: ReadSnapshot) -> None:
        """Refuse to read a state in which several shards hold versions of one key.

        Raises
        ------
        ShardConflictError
            They do.
        """
        if len(snapshot.shards) > 1:
            sharding = self.sharding_of(snapshot.base)
            values = sharding.catalog.values_of(view.manifest for view in snapshot.shards)
            for shared in find_shared_keys(snapshot, sharding.router, values):
                raise conflict(shared, snapshot.base.uri)

    def for_filter(
        self, snapshot: ReadSnapshot, condition: str | None
    ) -> tuple[Sequence[ShardView], Sequence[tuple[ShardView, str]]]:
        """Return the shards that a filter may touch, and those that it cannot, with reasons.

        Raises
        ------
        ShardConflictError
            As for :meth:`refuse_shared_keys`.
        """
        self.refuse_shared_keys(snapshot)
        sharding = self.sharding_of(snapshot.base)
        values = sharding.catalog.values_of(view.manifest for view in snapshot.shards)
        own = [(shard, held) for shard, held in values.items() if held is not None]
        if condition is None or not own:
            return snapshot.shards, ()
        # By the names of the columns as they are in the snapshot.
        base = snapshot.base
        result = pruning.prune(condition, sharding.spec, base.schema, base.columns_of(sharding.spec), own)
        pruned = set(result.pruned)
        kept = [view for view in snapshot.shards if view.shard_id not in pruned]
        return kept, [(view, result.reason) for view in snapshot.shards if view.shard_id in pruned]

    def for_keys(
        self, snapshot: ReadSnapshot, keys: KeySet
    ) -> Sequence[tuple[ShardView, npt.NDArray[np.int64]]]:
        """Return, per shard, the keys it may hold: routed where its values are known, else all."""
        if len(snapshot.shards) == 1:
            return [(snapshot.shards[0], np.arange(len(keys), dtype=np.int64))]
        sharding = self.sharding_of(snapshot.base)
        values = sharding.catalog.values_of(view.manifest for view in snapshot.shards)
        views = {view.shard_id: view for view in snapshot.shards}
        table = pa.table(list(keys.columns), list(sharding.base.primary_key))
        routed = pruning.shards_of_keys(sharding.router, table, list(values.items()))
        return [(views[shard], rows) for shard, rows in routed]

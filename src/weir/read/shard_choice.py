"""Which shards of a snapshot a read has to visit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.base.table import BaseTable
from weir.format.index_details import ShardSpec
from weir.format.shard_manifest import ShardManifest
from weir.lsm.keys import KeySet
from weir.read.shared_keys import conflict, find_shared_keys
from weir.sharding import pruning
from weir.sharding.router import Router
from weir.sharding.shard_values import ShardValues
from weir.snapshots.shard_view import ShardView
from weir.snapshots.snapshot import ReadSnapshot

__all__ = ["ShardChoice"]


@dataclass(frozen=True, slots=True)
class ShardChoice:
    """Chooses shards by the values of the table's shard spec that they hold.

    Parameters
    ----------
    base : BaseTable
        The base table at any version, for its columns.
    spec : ShardSpec
        The table's shard spec.
    router : Router
        Computes the shard values of rows.
    values_of : callable
        Returns the values that some shards hold; None where they are not known.
    """

    base: BaseTable
    spec: ShardSpec
    router: Router
    values_of: Callable[[Iterable[ShardManifest]], Mapping[UUID, ShardValues | None]]

    def refuse_shared_keys(self, snapshot: ReadSnapshot) -> None:
        """Refuse to read a state in which several shards hold versions of one key.

        Raises
        ------
        ShardConflictError
            They do.
        """
        if len(snapshot.shards) > 1:
            values = self.values_of(view.manifest for view in snapshot.shards)
            for shared in find_shared_keys(snapshot, self.router, values):
                raise conflict(shared, self.base.uri)

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
        values = self.values_of(view.manifest for view in snapshot.shards)
        own = [(shard, held) for shard, held in values.items() if held is not None]
        if condition is None or not own:
            return snapshot.shards, ()
        # By the names of the columns as they are in the snapshot.
        base = snapshot.base
        result = pruning.prune(condition, self.spec, base.schema, base.columns_of(self.spec), own)
        pruned = set(result.pruned)
        kept = [view for view in snapshot.shards if view.shard_id not in pruned]
        return kept, [(view, result.reason) for view in snapshot.shards if view.shard_id in pruned]

    def for_keys(
        self, snapshot: ReadSnapshot, keys: KeySet
    ) -> Sequence[tuple[ShardView, npt.NDArray[np.int64]]]:
        """Return, per shard, the keys it may hold: routed where its values are known, else all."""
        if len(snapshot.shards) == 1:
            return [(snapshot.shards[0], np.arange(len(keys), dtype=np.int64))]
        values = self.values_of(view.manifest for view in snapshot.shards)
        views = {view.shard_id: view for view in snapshot.shards}
        table = pa.table(list(keys.columns), list(self.base.primary_key))
        routed = pruning.shards_of_keys(self.router, table, list(values.items()))
        return [(views[shard], rows) for shard, rows in routed]

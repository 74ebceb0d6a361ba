"""The parts derived from a table's shard spec: the router and the shard catalog."""

from __future__ import annotations

from dataclasses import dataclass

from weir.base.table import BaseTable
from weir.format.index_details import ShardSpec
from weir.log.shard_catalog import ShardCatalog
from weir.sharding.router import Router
from weir.storage.interface import ObjectStore

__all__ = ["TableSharding", "newest_spec"]


@dataclass(frozen=True, slots=True)
class TableSharding:
    """What follows from a table's shard spec. Made by :meth:`of`.

    Parameters
    ----------
    base : BaseTable
        The version that it was made of.
    spec : ShardSpec
        The spec that new shards are made with: the newest.
    router : Router
        Splits rows by shard.
    catalog : ShardCatalog
        Finds the shard of some shard values.
    """

    base: BaseTable
    spec: ShardSpec
    router: Router
    catalog: ShardCatalog

    @classmethod
    def of(cls, store: ObjectStore, base: BaseTable) -> TableSharding:
        """Return the sharding of a table."""
        spec = newest_spec(base)
        router = Router(spec, base.schema, base.columns_of(spec))
        return cls(base, spec, router, ShardCatalog(store, base, router, spec))


def newest_spec(base: BaseTable) -> ShardSpec:
    """Return the shard spec that new shards of a table are made with; one without fields if it has none."""
    return max(base.details.shard_specs, key=lambda one: one.spec_id, default=ShardSpec(0, ()))

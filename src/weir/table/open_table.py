"""A table that is open: its place, its sharding and its reader, which the parts of the front door share."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from weir.base.table import BaseTable
from weir.engine.forked import note_use, refuse_forked
from weir.log.table_sharding import TableSharding, newest_spec
from weir.maintenance.clones import of_its_own
from weir.read.shard_choice import ShardChoice
from weir.read.shared_keys import conflict, find_shared_keys
from weir.sharding.shard_values import ShardValues
from weir.snapshots.snapshot import ReadSnapshot
from weir.storage.interface import ObjectStore
from weir.table.reader import TableReader

__all__ = ["OpenTable"]


class OpenTable:
    """What the parts of one :class:`~weir.Table` share. Safe to use from many threads.

    Parameters
    ----------
    store : ObjectStore
        Where the table is.
    base : BaseTable
        Its base table at any version.
    """

    def __init__(self, store: ObjectStore, base: BaseTable) -> None:
        refuse_forked()
        note_use()
        self.store = store
        self._bind(base)

    def _bind(self, base: BaseTable) -> None:
        """Make this the table with a base table."""
        self._bound_to = base.identity
        self._sharding = TableSharding.of(self.store, base)
        self.reader = TableReader(self.store, base, ShardChoice(self._sharding_of))

    @property
    def sharding(self) -> TableSharding:
        """The rule by which the newest version that has been seen is sharded."""
        base = self.base
        # Held, since a read of a former table on another thread may replace what is remembered.
        sharding = self._sharding_of(base)
        if sharding.spec.spec_id == newest_spec(base).spec_id:
            return sharding
        self._bind(base)
        return self._sharding_of(base)

    def _sharding_of(self, base: BaseTable) -> TableSharding:
        """Return the sharding of the table that a version is of.

        Once a backup or a new table was put in its place, a rule may be another one of the same number.
        """
        sharding = self._sharding
        if base.namespace != sharding.base.namespace:
            self._sharding = sharding = TableSharding.of(self.store, base)
        return sharding

    @property
    def base(self) -> BaseTable:
        """The base table at the newest version seen."""
        return self.reader.base

    def make_own(self) -> None:
        """Make the table independent before it is written, if it is a clone of another one."""
        refuse_forked()
        if self.base.is_former:
            # A writer may have found out that there is another table in the place.
            self.reader.snapshots.follow()
        own = of_its_own(self.base)
        # Another process may have made it independent, and a read have followed.
        if own.identity != self._bound_to:
            self._bind(own)

    def refuse_shared_keys(self) -> None:
        """Refuse to continue if several shards hold versions of one key.

        Raises
        ------
        ShardConflictError
            They do.
        """
        snapshot = self.reader.take_newest()
        for shared in find_shared_keys(snapshot, self.sharding.router, self.shard_values(snapshot)):
            raise conflict(shared, self.store.uri)

    def shard_values(self, snapshot: ReadSnapshot) -> Mapping[UUID, ShardValues | None]:
        """Return the shard values of every shard of a snapshot; None where a shard has recorded none."""
        return self.sharding.catalog.values_of(view.manifest for view in snapshot.shards)

"""The mapping from shard values to shards: existing shards, and the ids of new ones."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

import lance
import pyarrow.compute as pc

from weir.base.dataset import library_options
from weir.base.dataset_fields import generation_columns
from weir.base.manifest import VERSIONS
from weir.base.table import BaseTable
from weir.engine.concurrent_map import Wave, concurrent_map
from weir.errors import ShardConflictError, ShardingError
from weir.format import layout
from weir.format.index_details import ShardSpec
from weir.format.resolution import resolve
from weir.format.shard_manifest import ShardFieldValue, ShardManifest, ShardStatus
from weir.format.wal_entry import TOMBSTONE
from weir.log.manifest_store import list_shards, read_latest_manifest
from weir.log.wal import Wal
from weir.sharding.router import Router, Rows
from weir.sharding.shard_ids import ShardIds
from weir.sharding.shard_values import ShardValues
from weir.storage.interface import ObjectStore

__all__ = ["FoundShard", "ShardCatalog"]


@dataclass(frozen=True, slots=True)
class FoundShard:
    """The shard of some shard values.

    Parameters
    ----------
    shard_id : UUID
        The shard.
    absent : Wave or None
        Begun before nothing was found under its name; None if it is there.
    """

    shard_id: UUID
    absent: Wave | None


class ShardCatalog:
    """Finds the shard of some shard values.

    A shard's values never change, so what has been learnt of a shard stays true.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    base : BaseTable
        The base table, for its identity.
    router : Router
        Computes the shard values of rows.
    spec : ShardSpec
        The table's shard spec.
    """

    def __init__(self, store: ObjectStore, base: BaseTable, router: Router, spec: ShardSpec) -> None:
        self._store = store
        self._base = base
        self._router = router
        self._spec = spec
        self._ids = ShardIds.of(base.details, spec, base.identity, made_by_weir=base.has_id)
        self._known: dict[UUID, ShardValues | None] = {}
        # Ids that follow from the table and the values, so that no other shard can have them.
        self._assigned: dict[UUID, ShardValues] = {}
        self._may_be_first = True
        self._lock = threading.Lock()

    @property
    def spec(self) -> ShardSpec:
        """The shard spec that new shards are made with."""
        return self._spec

    def resolve(self, wanted: Collection[ShardValues]) -> dict[ShardValues, FoundShard]:
        """Return the shards that hold, or will hold, the rows with some shard values.

        An existing shard is found by the record in its manifest or, if another writer recorded nothing, by
        its rows. The id of a new one is derived from the table, the spec and the values, so that two writers
        that see new values at the same time agree on it, and one of them is fenced.

        However many are requested, it takes one listing, and a check of unknown shards, concurrently on an
        object store.

        Raises
        ------
        ShardConflictError
            If several shards own the rows: writing them to another one would let an older version of a row
            overwrite a newer one in a merge.
        ShardingError
            If the rows of a shard contradict each other.
        TableNotFoundError
            If there would be a new shard, and the table has been dropped.
        FencedError
            If there would be a new shard, and another table has come in its place.
        """
        resolved = {values: self._ids.of_values(values) for values in wanted}
        found: dict[ShardValues, list[UUID]] = {values: [] for values in wanted}
        derived = {self._ids.derived(values): values for values in wanted}
        with self._lock:
            if not self._ids.by_values:
                self._assigned.update((shard, values) for values, shard in resolved.items())
            wave = Wave()
            there, is_table_there = self._listed()
            for shard, held in self._held_by(there, derived):
                if held in found:
                    found[held].append(shard)
        if not is_table_there and not all(found.values()):
            # The table may have been dropped, and then a new shard would be all there is; or replaced.
            newest = self._base.latest()
            self._base.refuse_replaced(newest)
            self._base = newest
        for values, shards in found.items():
            if len(shards) > 1:
                # Those that were joined with another one are sealed.
                shards = self._not_sealed(shards)
            if len(shards) > 1:
                raise ShardConflictError(
                    f"{len(shards)} shards hold the rows with {values or 'no shard values'}: "
                    f"{', '.join(map(str, shards))}",
                    where=self._store.uri,
                    hint="Nothing was written. Join them: weir repair, or table.maintenance.repair()",
                )
            if shards:
                resolved[values] = shards[0]
        return {
            values: FoundShard(shard, None if shard in there else wave) for values, shard in resolved.items()
        }

    def _listed(self) -> tuple[tuple[UUID, ...], bool]:
        """Return the shards there are, and whether it was seen that the table is there. One round trip.

        But two once, where others have written to a table that was made here. Called with the lock held.
        """
        if self._may_be_first and self._base.is_made_here:
            self._may_be_first = False
            directories = self._store.list_directories("")
            if layout.MEM_WAL not in directories:
                return (), VERSIONS in directories
        return list_shards(self._store), False

    def _held_by(
        self, shards: Iterable[UUID], derived: Mapping[UUID | None, ShardValues]
    ) -> Iterator[tuple[UUID, ShardValues]]:
        """Yield the values of the shards that have any. Called with the lock held.

        What a shard records counts first, then its rows: a table whose rule has been changed by others may
        hold other rows under an id than it does now.
        """
        unknown = []
        for shard in shards:
            held = self._assigned.get(shard) or self._known.get(shard)
            if held is None:
                unknown.append(shard)
            else:
                yield shard, held
        for manifest in self._read_manifests(unknown):
            # Garbage collection records the values before it deletes the rows that show them.
            self._learn(manifest)
            held = self._known[manifest.shard_id] or self._derive(manifest)
            if held is None and manifest.shard_spec_id == self._spec.spec_id:
                held = derived.get(manifest.shard_id)
            if held is not None:
                yield manifest.shard_id, held

    def _not_sealed(self, shards: Sequence[UUID]) -> list[UUID]:
        manifests = self._read_manifests(shards)
        return [one.shard_id for one in manifests if one.status is not ShardStatus.SEALED] or list(shards)

    def _read_manifests(self, shards: Sequence[UUID]) -> list[ShardManifest]:
        read = partial(read_latest_manifest, self._store)
        found = concurrent_map(read, shards, is_local=self._store.is_local, engine=self._store.engine)
        return [manifest for manifest in found if manifest is not None]

    def values_of(self, manifests: Iterable[ShardManifest]) -> Mapping[UUID, ShardValues | None]:
        """Return the values of shards; None where they are not recorded or of another spec."""
        found = {}
        for manifest in manifests:
            if manifest.shard_id not in self._known:
                self._learn(manifest)
            found[manifest.shard_id] = self._known[manifest.shard_id]
        return found

    def fields_to_record(self, manifest: ShardManifest) -> tuple[ShardFieldValue, ...]:
        """Return the values that a manifest should record but does not, as far as its rows show them.

        In a shard created by the released library, the rows are the only evidence of which keys it owns.

        Raises
        ------
        ShardingError
            If the rows contradict each other.
        """
        if manifest.shard_spec_id != self._spec.spec_id:
            return ()
        if ShardValues.from_manifest(manifest.shard_fields, self._spec) is not None:
            return ()
        with self._lock:
            values = self._derive(manifest)
        return () if values is None else values.to_manifest()

    def _learn(self, manifest: ShardManifest) -> None:
        own = manifest.shard_spec_id == self._spec.spec_id
        self._known[manifest.shard_id] = (
            ShardValues.from_manifest(manifest.shard_fields, self._spec) if own else None
        )

    def _derive(self, manifest: ShardManifest) -> ShardValues | None:
        """Return the values that the rows of a shard have in common; None if it has no rows.

        The released library records no values. Nor is a null value recorded: such a shard is found
        by its id.
        """
        if manifest.shard_spec_id != self._spec.spec_id:
            return None
        seen = {values for rows in self._rows(manifest) for values in self._router.partition(rows).values}
        if len(seen) > 1:
            raise ShardingError(
                f"shard {manifest.shard_id} holds rows of several shard values: "
                f"{'; '.join(sorted(map(str, seen)))}",
                where=self._store.uri,
                hint="They do not follow the table's rule. Give it one that they follow: "
                "weir alter --shard-by 'bucket(id, 16)', or table.alter(shard_by=)",
            )
        values = next(iter(seen), None)
        if values is not None:
            self._known[manifest.shard_id] = values
        return values

    def _rows(self, manifest: ShardManifest) -> Iterable[Rows]:
        """Yield the columns that decide the shard, from the WAL tail and from generations."""
        columns: list[str] = sorted(self._router.source_columns)
        # A tombstone has its key and nothing else.
        tombstones_tell = set(columns) <= set(self._base.primary_key)
        wal = Wal(self._store, manifest.shard_id, namespace=self._base.namespace)
        for item in wal.read_tail(manifest):
            resolved = resolve(item.entry.schema, self._base.row_schema).select([*columns, TOMBSTONE])
            for batch in item.entry.batches:
                rows = resolved.apply(batch, where=wal.where(item.position))
                deciding = rows if tombstones_tell else _upserts(rows)
                if deciding.num_rows:
                    yield deciding.select(columns)
        options = library_options(self._store)
        for flushed in manifest.flushed_generations:
            uri = f"{self._store.uri}/{layout.generation_path(manifest.shard_id, flushed.path)}"
            dataset = lance.dataset(uri, storage_options=options)
            resolved = generation_columns(dataset, self._base.row_schema, lambda: None).select(columns)
            upserts = None if tombstones_tell else f"NOT {TOMBSTONE}"
            found = dataset.scanner(columns=resolved.source_names, filter=upserts).to_table()
            yield resolved.table(found, where=uri)


def _upserts(batch: Rows) -> Rows:
    return batch.filter(pc.invert(batch.column(TOMBSTONE)))

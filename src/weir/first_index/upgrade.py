"""Upgrade of a table with the first MemWAL index to the current form, in place or as a copy.

In place it takes two versions of the table. The first claims every unmerged MemWAL, so that its writers are
fenced and its list of entries stays as it is. Their rows are then written as generations of shards, which are
not visible yet. The second version has a current index instead of the regions, and is committed only if
nothing was committed since the claim. After a crash the call is repeated and claims again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any
from uuid import uuid4

from weir.base.details_commit import wait_for_turn
from weir.base.fresh_start import begun_anew
from weir.base.key_index import extend_key_index
from weir.base.publish import as_of_today, publish_details
from weir.base.table import BaseTable
from weir.engine import failpoint
from weir.engine.logs import get_logger
from weir.errors import ConflictError, TableExistsError
from weir.first_index.commit import MAX_ATTEMPTS, commit_regions, newest_manifest, regions_to_change
from weir.first_index.primary_key import mark_primary_key
from weir.first_index.protocol import claimed
from weir.first_index.regions import unmerged
from weir.first_index.view import RegionView, base_of, take_view
from weir.first_index.wal import WalReader, wal_store
from weir.format import layout
from weir.format.first_index_details import FirstIndexDetails
from weir.log.manifest_store import list_shards
from weir.maintenance.clone import clone_table, write_shards
from weir.notebook import ShownAsTable
from weir.sharding.router import Router
from weir.sharding.shard_by import ShardBy
from weir.sharding.shard_ids import RULE, VALUES
from weir.snapshots.snapshot import STRONG, ReadSnapshot, SnapshotReader
from weir.storage.interface import ObjectStore

__all__ = ["UpgradeReport", "upgrade_table"]

_UNDER_WAY = "_weir/upgrade_under_way"

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class UpgradeReport(ShownAsTable):
    """What an upgrade did, or would do in a dry run.

    Parameters
    ----------
    uri : str
        Where the upgraded table is, or will be.
    from_version : int
        The version of the table that was upgraded. In place: the last one with regions, for going back.
    version : int or None
        The first version of the upgraded table; None for a dry run.
    regions, mem_wals : int
        How many there were, including merged MemWALs.
    rows : int
        Rows of unmerged MemWALs, including deletes.
    wal_locations : tuple of str
        The WALs that are no longer read after an upgrade in place. They are left where they are.
    """

    uri: str
    from_version: int
    version: int | None
    regions: int
    mem_wals: int
    rows: int
    wal_locations: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values that JSON can hold."""
        return {**asdict(self), "wal_locations": list(self.wal_locations)}


def upgrade_table(
    store: ObjectStore,
    target: ObjectStore | None = None,
    *,
    primary_key: tuple[str, ...] | None = None,
    shard_by: Sequence[ShardBy] = (),
    reader: WalReader | None = None,
    dry_run: bool = False,
) -> UpgradeReport:
    """Upgrade a table with the first MemWAL index. A call that did not finish can be repeated.

    Parameters
    ----------
    store : ObjectStore
        Where the table is.
    target : ObjectStore, optional
        Where to put an upgraded copy; the table stays as it is, and its writers continue. Default: in place.
    primary_key : tuple of str, optional
        Key columns, for a table without marked ones: they are marked first, in a version that still has
        regions, also for a copy. For a table with a key, that key or nothing.
    shard_by : sequence of ShardBy, default ()
        How rows are split into shards. Default: one shard.
    reader : WalReader, optional
        Reads the WALs. Default: the form that Weir writes.
    dry_run : bool, default False
        Whether to read everything and write nothing.

    Raises
    ------
    TableExistsError
        The table already has the current form; there is something at the target; or a former table left
        shards.
    CorruptionError
        A listed entry cannot be read. A claim may have been made; no row is changed.
    ConflictError
        Others committed during every attempt.
    """
    if primary_key is not None:
        rows = mark_primary_key(store, primary_key, reader=reader, dry_run=dry_run)
        if dry_run and rows is not None:
            # A table without a key cannot be viewed yet.
            manifest = newest_manifest(store)
            details = regions_to_change(store, manifest)
            return _summary(store if target is None else target, manifest.version, details, rows, None)
    if target is not None and not dry_run:
        return _copied(_view(store, shard_by, reader), target)
    if dry_run:
        view = _view(store, shard_by, reader)
        return _report(view, store if target is None else target, None)
    return _in_place(store, shard_by, reader)


def _copied(view: RegionView, target: ObjectStore) -> UpgradeReport:
    snapshot, router = _state(view)
    clone, _ = clone_table(snapshot, target, router, {})
    return _report(view, target, extend_key_index(clone).version)


def _in_place(store: ObjectStore, shard_by: Sequence[ShardBy], reader: WalReader | None) -> UpgradeReport:
    # What cannot be read is found before anybody is fenced.
    _view(store, shard_by, reader)
    _refuse_leftovers(store)
    for attempt in range(MAX_ATTEMPTS):
        wait_for_turn(attempt)
        owner = f"weir-upgrade-{uuid4()}"

        def claim(details: FirstIndexDetails, version: int, owner: str = owner) -> FirstIndexDetails:
            return claimed(details, unmerged(details), owner, version=version)

        version, _ = commit_regions(store, claim)
        failpoint.reach("upgrade.after_claim")
        view = take_view(store, shard_by=shard_by, reader=reader)
        if view is None or view.version != version:
            continue
        manifest = newest_manifest(store)
        if manifest.version != version:
            continue
        store.put(_UNDER_WAY, owner.encode())
        # Shards that an earlier call has written. Its claim is older, so it cannot finish.
        store.delete(_left(store, view.details))
        failpoint.reach("upgrade.before_shards")
        snapshot, router = _state(view)
        details = begun_anew(snapshot.base.details, store.uri, {RULE: VALUES})
        write_shards(snapshot, store, details, router, {})
        failpoint.reach("upgrade.before_publish")
        if publish_details(store, as_of_today(manifest, view.details_of_today), details) is None:
            continue
        failpoint.reach("upgrade.after_publish")
        store.delete([_UNDER_WAY])
        base = extend_key_index(BaseTable.open(store))
        report = _report(view, store, base.version)
        _log.info("table.upgraded", where=store.uri, version=report.version, rows=report.rows)
        return report
    raise ConflictError(
        f"the table changed during each of {MAX_ATTEMPTS} attempts to upgrade it",
        where=store.uri,
        hint="Stop what claims its regions, then upgrade it",
    )


def _left(store: ObjectStore, details: FirstIndexDetails) -> list[str]:
    """Return what a crashed upgrade left of shards, never including a WAL."""
    wals = tuple(f"{directory}/" for directory in _wal_directories(store, details))
    listed = (one.path for shard in list_shards(store) for one in store.list(layout.shard_directory(shard)))
    return [path for path in listed if not path.startswith(wals)]


def _wal_directories(store: ObjectStore, details: FirstIndexDetails) -> list[str]:
    places = (wal_store(store, one.wal_location) for one in details.mem_wals)
    return [directory for place, directory in places if place is store]


def _refuse_leftovers(store: ObjectStore) -> None:
    shards = list_shards(store)
    if shards and store.head(_UNDER_WAY) is None:
        raise TableExistsError(
            f"there are {len(shards)} shards, which no interrupted upgrade has left",
            where=f"{store.uri}/{layout.MEM_WAL}",
            hint="Remove them if they are not needed, or upgrade into a copy",
        )


def _view(store: ObjectStore, shard_by: Sequence[ShardBy], reader: WalReader | None) -> RegionView:
    view = take_view(store, shard_by=shard_by, reader=reader)
    if view is None:
        # Raises if there is no table.
        BaseTable.open(store)
        # An upgrade that has died after its last step may have left that.
        store.delete([_UNDER_WAY])
        raise TableExistsError(
            "the table already has the current form",
            where=store.uri,
            hint="There is nothing to upgrade: use it as it is",
        )
    return view


def _state(view: RegionView) -> tuple[ReadSnapshot, Router]:
    base = base_of(view)
    snapshot = SnapshotReader(view, base).take(STRONG)
    return snapshot, Router(view.spec, base.schema, base.columns_of(view.spec))


def _report(view: RegionView, place: ObjectStore, version: int | None) -> UpgradeReport:
    snapshot, _ = _state(view)
    rows = sum(shard.tail_rows for shard in snapshot.shards)
    return _summary(place, view.version, view.details, rows, version)


def _summary(
    place: ObjectStore, from_version: int, details: FirstIndexDetails, rows: int, version: int | None
) -> UpgradeReport:
    listed = details.mem_wals
    return UpgradeReport(
        uri=place.uri,
        from_version=from_version,
        version=version,
        regions=len({one.region for one in listed}),
        mem_wals=len(listed),
        rows=rows,
        wal_locations=tuple(sorted(one.wal_location for one in listed)),
    )

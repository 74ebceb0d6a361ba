"""Repairs across shards: joining twins, and removing merge progress of another table.

**Twins** hold versions of the same keys without a common order. Their logs have one: every write was stored
in an entry when it was acknowledged, and the store records the time. One of the twins is kept, the one that
LanceDB would write; it receives the newest version of every key that both hold, as a normal write. The others
are flushed and sealed, and merged before it. At each step a read is correct or refused, and a crashed repair
is repeated: the versions given to the kept shard are then the newest.

**Foreign progress** counts generations as merged that were never flushed. In a clone or copy it is that of
the table that it came from, and all that the shard has flushed is not merged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar
from uuid import UUID

import numpy as np
import pyarrow as pa

from weir.base.details_commit import update_details
from weir.base.fresh_start import without_progress
from weir.base.table import BaseTable
from weir.engine import failpoint
from weir.engine.logs import get_logger
from weir.engine.runner import ThreadRunner
from weir.errors import ShardConflictError
from weir.format import layout
from weir.format.newest import key_codes
from weir.format.shard_manifest import ShardManifest, ShardStatus
from weir.log.manifest_store import list_shards, read_latest_manifest
from weir.log.wal import Wal
from weir.lsm.generation import Generation
from weir.maintenance.claimed_shard import claimed_shard, seal
from weir.maintenance.clone import rows_of
from weir.maintenance.clones import missing_shards
from weir.maintenance.closed_shards import refuse_live_writers
from weir.merge.service import merge_generations
from weir.read.shared_keys import SharedKeys, find_shared_keys, find_twins
from weir.sharding.router import Router
from weir.sharding.shard_ids import ShardIds
from weir.sharding.shard_values import ShardValues
from weir.snapshots.shard_view import ShardView
from weir.snapshots.snapshot import ReadSnapshot, SnapshotReader

__all__ = ["ForgetForeignProgress", "JoinShards", "ShardRepair", "TableShards", "repair_shards"]

_MAX_ROUNDS = 64

_log = get_logger(__name__)

ValuesOf = Callable[[Sequence[ShardManifest]], Mapping[UUID, ShardValues | None]]


@dataclass(frozen=True, slots=True)
class ShardRepair:
    """Something about shards that is put right.

    Parameters
    ----------
    where : str
        The object it is about.
    message : str
        The problem, and the repair.
    """

    kind: ClassVar[str] = "shards"

    where: str
    message: str

    def to_dict(self) -> dict[str, Any]:
        """Return the repair as plain values that JSON can hold."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True, slots=True)
class JoinShards(ShardRepair):
    """Shards that hold versions of the same keys are made one, or are merged in the order of their writes."""

    kind: ClassVar[str] = "shards in conflict"


@dataclass(frozen=True, slots=True)
class ForgetForeignProgress(ShardRepair):
    """The merge progress of another table is forgotten."""

    kind: ClassVar[str] = "foreign progress"


@dataclass(frozen=True, slots=True)
class TableShards:
    """The shards of a table, and the rule that assigns rows to them.

    Parameters
    ----------
    base : BaseTable
        The base table at any version.
    router : Router
        Computes the shard values of rows.
    values_of : callable
        Returns the values that shards record.
    """

    base: BaseTable
    router: Router
    values_of: ValuesOf

    def newest(self) -> ReadSnapshot:
        """Return the newest state."""
        return SnapshotReader(self.base.store, self.base).take_newest()

    def values(self, snapshot: ReadSnapshot) -> Mapping[UUID, ShardValues | None]:
        """Return the values that the shards of a state record."""
        return self.values_of([view.manifest for view in snapshot.shards])

    def groups(self, snapshot: ReadSnapshot) -> list[tuple[tuple[UUID, ...], bool]]:
        """Return the shards to join, and whether they are twins."""
        values = self.values(snapshot)
        twins = find_twins(snapshot, self.router, values)
        known = {shard for group in twins for shard in group}
        shared = find_shared_keys(snapshot, self.router, values)
        others = [one.shards for one in shared if not known & set(one.shards)]
        return [*((group, True) for group in twins), *((group, False) for group in others)]


def repair_shards(
    shards: TableShards, *, dry_run: bool = False, prefer: UUID | None = None, as_clone: bool = False
) -> list[ShardRepair]:
    """Repair problems between shards, or only report what would be done.

    Parameters
    ----------
    shards : TableShards
        The table.
    dry_run : bool
        Whether to change nothing.
    prefer : UUID, optional
        The shard whose version of a key wins, if the store's times do not show which was written later.
    as_clone : bool
        Whether merge progress that shards cannot have is known to be that of the table that this one was
        cloned from. A table that records its place and is elsewhere needs no such word.

    Raises
    ------
    LeaseHeldError
        A shard to be joined has an active writer.
    ShardConflictError
        Two versions of a key were written at the same moment, and no shard is preferred; or merge progress is
        foreign, and its table is unknown.
    """
    repairs: list[ShardRepair] = []
    foreign = _foreign(shards.base.latest())
    if foreign:
        repairs.append(_forget(shards.base, foreign, dry_run=dry_run, as_clone=as_clone))
        if dry_run:
            return repairs
    for _ in range(_MAX_ROUNDS):
        snapshot = shards.newest()
        groups = shards.groups(snapshot)
        if not groups:
            break
        for group, twins in groups:
            repairs.append(_described(shards, snapshot, group, twins=twins))
            if not dry_run:
                _join(shards, group, prefer=prefer, twins=twins)
        if dry_run:
            break
    return repairs


# --- Merge progress of another table -----------------------------------------------------------------


def _foreign(base: BaseTable) -> frozenset[UUID]:
    """Return the shards that cannot have merged what the base table says they have."""
    found = set()
    for shard_id in list_shards(base.store):
        merged = base.details.merged_generation(shard_id)
        manifest = read_latest_manifest(base.store, shard_id) if merged else None
        if manifest is not None and manifest.current_generation <= merged:
            found.add(shard_id)
    return frozenset(found)


def _forget(base: BaseTable, foreign: frozenset[UUID], *, dry_run: bool, as_clone: bool) -> ShardRepair:
    names = ", ".join(map(str, sorted(foreign)))
    elsewhere = base.has_place and not base.is_at_its_place
    if not (elsewhere or as_clone):
        raise ShardConflictError(
            f"shards {names} have flushed less than is recorded as merged. Either the table is a clone, "
            "or its shards are older than its base table",
            where=base.uri,
            hint="If it is a clone: weir repair --as-clone, or repair(as_clone=True). Otherwise restore the "
            "whole table",
        )
    missing, _ = missing_shards(base, base.details)
    if not dry_run:
        update_details(
            base, lambda details: without_progress(details, foreign | missing), takes_back_progress=True
        )
    return ForgetForeignProgress(
        base.uri, f"merge progress of shards {names} is that of another table: forgotten"
    )


# --- Shards with keys in common ----------------------------------------------------------------------


def _described(
    shards: TableShards, snapshot: ReadSnapshot, group: Sequence[UUID], *, twins: bool
) -> ShardRepair:
    kept = _kept(shards, snapshot, group)
    shared = _shared(shards, snapshot, group)
    count = 0 if shared is None else shared.keys.num_rows
    names = ", ".join(str(one) for one in group if one != kept)
    done = f"joined with shard {kept}, and sealed" if twins else f"merged before shard {kept}"
    where = f"{shards.base.uri}/{layout.shard_directory(kept)}"
    return JoinShards(where, f"shard {names}, with {count} keys in common: {done}")


def _shared(shards: TableShards, snapshot: ReadSnapshot, group: Sequence[UUID]) -> SharedKeys | None:
    found = find_shared_keys(snapshot, shards.router, shards.values(snapshot))
    return next((one for one in found if set(one.shards) & set(group)), None)


def _kept(shards: TableShards, snapshot: ReadSnapshot, group: Sequence[UUID]) -> UUID:
    """Return the shard to keep: the one that LanceDB writes, if it exists."""
    base = shards.base
    active = [view for view in snapshot.shards if view.shard_id in group]
    ids = ShardIds.of(base.details, shards.router.spec, base.identity, made_by_weir=base.has_id)
    wanted: set[UUID | None] = set()
    for view in active:
        for source in snapshot.shard_levels(view).sources:
            routed = shards.router.partition(rows_of(source, base.row_schema)).values
            wanted |= {ids.derived(one) for one in routed}
    derived = [view.shard_id for view in active if view.shard_id in wanted]
    open_ones = [view.shard_id for view in active if view.manifest.status is ShardStatus.ACTIVE]
    return next(iter([*sorted(derived), *sorted(open_ones), *sorted(group)]))


def _join(shards: TableShards, group: Sequence[UUID], *, prefer: UUID | None, twins: bool) -> None:
    base = shards.base.latest()
    if base.merge_engine is not None:
        raise ShardConflictError(
            f"shards {', '.join(map(str, group))} hold the same keys, and the merge engine "
            f"{base.merge_engine} needs the order of their versions, which is unknown",
            where=base.uri,
            hint="Copy the rows of each shard to another table, in the right order",
        )
    store = base.store
    kept = _kept(shards, shards.newest(), group)
    others = [one for one in group if one != kept]
    refuse_live_writers(store, group)
    for shard_id in others:
        _flush(base, shard_id, close=twins)
    failpoint.reach("join.before_rows")
    with claimed_shard(base, kept) as writer:
        snapshot = shards.newest()
        for batch in _newest_elsewhere(shards, snapshot, group, kept, prefer):
            writer.submit(batch).result()
        failpoint.reach("join.after_rows")
        writer.flush()
    for shard_id in (*others, kept):
        manifest = read_latest_manifest(store, shard_id)
        assert manifest is not None
        merge_generations(shards.base.latest(), [manifest], ThreadRunner())
        failpoint.reach("join.between_merges")
    _log.info("table.shards_joined", where=store.uri, kept=str(kept), shards=[str(one) for one in others])


def _flush(base: BaseTable, shard_id: UUID, *, close: bool) -> None:
    manifest = read_latest_manifest(base.store, shard_id)
    if manifest is None or manifest.status is ShardStatus.SEALED:
        return
    with claimed_shard(base, shard_id) as writer:
        writer.flush()
        if close:
            seal(base, writer)


def _newest_elsewhere(
    shards: TableShards,
    snapshot: ReadSnapshot,
    group: Sequence[UUID],
    kept: UUID,
    prefer: UUID | None,
) -> Iterator[pa.RecordBatch]:
    """Yield the newest version of every key for which the kept shard has an older one."""
    shared = _shared(shards, snapshot, group)
    if shared is None:
        return
    base = snapshot.base
    views = {view.shard_id: view for view in snapshot.shards if view.shard_id in shared.shards}
    written = {shard_id: _written_at(snapshot, view, shared.keys) for shard_id, view in views.items()}
    ids = sorted(views)
    times = np.stack([written[one] for one in ids])
    latest = times.max(axis=0)
    best = times.argmax(axis=0)
    tied = (times == latest).sum(axis=0) > 1
    if tied.any():
        if prefer not in views:
            key = shared.keys.slice(int(np.flatnonzero(tied)[0]), 1).to_pylist()[0]
            raise ShardConflictError(
                f"{int(tied.sum())} keys, {key} among them, went to several shards at the same moment",
                where=base.uri,
                hint=f"Choose the shard that counts: prefer= one of {', '.join(map(str, ids))}",
            )
        at = ids.index(prefer)
        best[tied & (times[at] == latest)] = at
    for number, shard_id in enumerate(ids):
        wanted = np.flatnonzero(best == number)
        if shard_id != kept and wanted.size:
            rows = _newest_rows(snapshot, views[shard_id], shared.keys.take(pa.array(wanted)))
            yield from rows.to_batches()


def _written_at(
    snapshot: ReadSnapshot, view: ShardView, keys: pa.Table
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return when the shard's newest version of each key was stored, in microseconds; 0 if it has none."""
    base = snapshot.base
    store, names = base.store, keys.schema.names
    found, exact = np.zeros(keys.num_rows, dtype=np.int64), np.zeros(keys.num_rows, dtype=np.int64)
    for source in snapshot.shard_levels(view).sources:
        if isinstance(source, Generation):
            meta = store.head(layout.page_lookup_path(view.shard_id, source.flushed.path))
            # For staged generations the log has no rows.
            noted = found if source.flushed.published_after is None else exact
            if meta is not None:
                _raise(noted, keys, pa.table(list(source.index.keys.columns), names), _micros(meta))
    # The log says it exactly, for as long as it has the entries.
    entries = {}
    for meta in store.list(layout.wal_directory(view.shard_id)):
        try:
            entries[layout.parse_wal_name(meta.path.rsplit("/", 1)[-1])] = meta
        except ValueError:
            continue
    wal = Wal(store, view.shard_id, namespace=base.namespace)
    for position in sorted(entries):
        entry = wal.read(position, remember=False)
        for batch in () if entry is None else entry.batches:
            rows = pa.table([batch.column(name) for name in names], names)
            _raise(exact, keys, rows, _micros(entries[position]))
    return np.where((exact > 0) & (found > 0), exact, np.maximum(exact, found))


def _micros(meta: Any) -> int:
    return int(meta.last_modified.timestamp() * 1_000_000)


def _raise(found: np.ndarray[Any, np.dtype[np.int64]], keys: pa.Table, rows: pa.Table, when: int) -> None:
    """Note a time for those of ``keys`` that are among some rows."""
    if not rows.num_rows:
        return
    columns = [
        pa.chunked_array([*keys.column(name).chunks, *rows.column(name).cast(keys.column(name).type).chunks])
        for name in keys.schema.names
    ]
    codes, _ = key_codes(columns)
    hit = np.isin(codes[: keys.num_rows], codes[keys.num_rows :])
    found[hit] = np.maximum(found[hit], when)


def _newest_rows(snapshot: ReadSnapshot, view: ShardView, keys: pa.Table) -> pa.Table:
    """Return the shard's newest version of some keys, in the schema of log entries."""
    base = snapshot.base
    rows = pa.concat_tables(
        rows_of(source, base.row_schema) for source in snapshot.shard_levels(view).sources
    )
    columns = [
        pa.chunked_array([*rows.column(name).chunks, *keys.column(name).cast(rows.column(name).type).chunks])
        for name in keys.schema.names
    ]
    codes, count = key_codes(columns)
    last = np.full(count, -1, dtype=np.int64)
    last[codes[: rows.num_rows]] = np.arange(rows.num_rows)
    return rows.take(pa.array(np.sort(last[codes[rows.num_rows :]]))).combine_chunks()

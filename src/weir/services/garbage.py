"""Garbage collection: deleting what no reader, token, consumer, writer or retained version can need.

Lance MemWAL spec, "Garbage Collector"; what is garbage is decided in :mod:`weir.services.garbage_policy`.
A collection looks at the marks first and then at the roots; takes generations that nobody needs off the
lists of the shard manifests; marks what is garbage, by compare-and-swap on ``_weir/garbage/marks.json``;
and deletes what was marked a horizon before and is garbage still. So nothing is deleted that was not
found to be garbage twice, a horizon apart (invariant I9). The horizon is the time that whoever was reading
an older state is given to finish.

Any number of collections may run at once, and die anywhere: each step may be repeated, and what a mark
says stays true. Shards are looked at and swept in tasks; manifests and marks are changed here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from weir import failpoint
from weir.base.table import BaseTable
from weir.base.versions import TableVersion, latest_at, list_versions, remove_versions, tagged_versions
from weir.errors import OptionError, ShardingError
from weir.format.garbage_marks import Marks
from weir.format.shard_manifest import ShardFieldValue, ShardManifest
from weir.logs import get_logger
from weir.read.tokens import expired_pins, live_roots
from weir.services.garbage_marks import read_marks, store_time, update_marks
from weir.services.garbage_policy import (
    ShardPlan,
    ShardRoots,
    ShardState,
    Terms,
    off_the_list,
    plan_shard,
    without_deleted,
)
from weir.services.garbage_roots import Alive, progress_of, shard_roots
from weir.services.garbage_survey import Survey, survey_shard
from weir.services.garbage_sweep import Sweep, sweep_shard
from weir.services.runner import Runner
from weir.shard.manifest_store import list_shards, update_manifest
from weir.storage.interface import ObjectStore

__all__ = [
    "DEFAULT_FENCE_HORIZON",
    "DEFAULT_HORIZON",
    "GarbageItem",
    "GarbageReport",
    "KeptItem",
    "collect_garbage",
]

_log = get_logger(__name__)

DEFAULT_HORIZON = timedelta(minutes=15)
"""For how long something has to be marked before it is deleted: longer than any read should take."""

DEFAULT_FENCE_HORIZON = timedelta(days=1)
"""How old a fence entry has to be; see the fence argument in :mod:`weir.services.garbage_policy`."""


@dataclass(frozen=True, slots=True)
class GarbageItem:
    """Something that is garbage.

    Parameters
    ----------
    kind : str
        ``"generation"``, ``"log entries"``, ``"shard manifests"``, ``"base table version"`` or
        ``"expired pin"``.
    shard_id : UUID or None
        The shard it belongs to.
    name : str
        What it is.
    objects, nbytes : int
        How many objects, and their size in bytes. 0 where only the library knows.
    reason : str
        Why it is garbage.
    deleted : bool
        Whether this collection has deleted it, or would have; otherwise it is marked, and waits for
        the horizon.
    """

    kind: str
    shard_id: UUID | None
    name: str
    objects: int
    nbytes: int
    reason: str
    deleted: bool


@dataclass(frozen=True, slots=True)
class KeptItem:
    """Something old that is not garbage.

    Parameters
    ----------
    shard_id : UUID
        The shard it belongs to.
    name : str
        What it is.
    reason : str
        Why it is kept.
    """

    shard_id: UUID
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class GarbageReport:
    """What a garbage collection did, or would have done.

    Parameters
    ----------
    dry_run : bool
        Whether nothing was written.
    items : tuple of GarbageItem
        What is garbage.
    kept : tuple of KeptItem
        What is not, although it is old.
    """

    dry_run: bool
    items: tuple[GarbageItem, ...]
    kept: tuple[KeptItem, ...]

    @property
    def deleted_objects(self) -> int:
        """Objects deleted; in a dry run, those that would have been."""
        return sum(item.objects for item in self.items if item.deleted)

    @property
    def deleted_bytes(self) -> int:
        """Their size in bytes."""
        return sum(item.nbytes for item in self.items if item.deleted)

    @property
    def waiting_objects(self) -> int:
        """Objects that are marked and wait for the horizon."""
        return sum(item.objects for item in self.items if not item.deleted)

    @property
    def waiting_bytes(self) -> int:
        """Their size in bytes."""
        return sum(item.nbytes for item in self.items if not item.deleted)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values that JSON can hold."""
        plain = asdict(self)
        for one in (*plain["items"], *plain["kept"]):
            one["shard_id"] = None if one["shard_id"] is None else str(one["shard_id"])
        totals = {
            "deleted_objects": self.deleted_objects,
            "deleted_bytes": self.deleted_bytes,
            "waiting_objects": self.waiting_objects,
            "waiting_bytes": self.waiting_bytes,
        }
        return {"dry_run": self.dry_run, **totals, "items": list(plain["items"]), "kept": list(plain["kept"])}


FieldsToRecord = Callable[[ShardManifest], tuple[ShardFieldValue, ...]]
"""Returns the shard values that a manifest lacks and its generations tell; none if it lacks none."""


def collect_garbage(
    base: BaseTable,
    runner: Runner,
    *,
    horizon: timedelta = DEFAULT_HORIZON,
    fence_horizon: timedelta = DEFAULT_FENCE_HORIZON,
    version_retention: timedelta | None = None,
    dry_run: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
    clock: Callable[[], datetime] | None = None,
    fields_to_record: FieldsToRecord | None = None,
) -> GarbageReport:
    """Delete what was garbage a horizon ago and still is, and mark what is garbage now.

    Parameters
    ----------
    base : BaseTable
        The base table at any version.
    runner : Runner
        Executes one task per shard to look at it, and one to delete what is due.
    horizon : timedelta
        For how long something has to be marked before it is deleted. Readers, flushes and snapshots
        that are under way for longer may fail.
    fence_horizon : timedelta
        How old fence entries have to be; at least an hour.
    version_retention : timedelta, optional
        For how long a version of the base table is retained after it was superseded, with all
        generations above its merge progress; older versions are removed. None leaves the versions
        alone, and lets each keep the generations that its own MemWAL index lists.
    dry_run : bool
        Whether to write nothing at all.
    on_progress : callable, optional
        Called with (steps done, steps in all); every shard is two steps.
    clock : callable, optional
        Returns the time, in UTC. Default: the clock of the store.
    fields_to_record : callable, optional
        Tells what a shard's manifest has to record before the rows are gone that tell it.

    Raises
    ------
    OptionError
        If a length of time is negative or too short.
    ConflictError
        If other collections or flushes got in the way of every attempt.
    CorruptionError
        If marks, a pin, a consumer, a shard manifest or a MemWAL index cannot be read. Nothing more is
        deleted than what is certainly garbage.
    """
    _check_option("horizon", horizon, timedelta(0))
    _check_option("fence_horizon", fence_horizon, _LEAST_FENCE_HORIZON)
    if version_retention is not None:
        _check_option("version_retention", version_retention, horizon)
    if clock is None:
        # A dry run writes nothing, and asking the store for its time takes a write.
        store = base.store
        clock = (lambda: datetime.now(UTC)) if dry_run else (lambda: store_time(store))
    return _Collection(
        base,
        runner,
        clock,
        horizon,
        fence_horizon,
        version_retention,
        dry_run,
        fields_to_record or (lambda manifest: ()),
        on_progress or (lambda done, total: None),
    ).run()


_LEAST_FENCE_HORIZON = timedelta(hours=1)


def _check_option(name: str, value: timedelta, least: timedelta) -> None:
    if not isinstance(value, timedelta) or value < least:
        raise OptionError(f"{name} must be a timedelta of at least {least}, got {value!r}", where=name)


@dataclass(frozen=True, slots=True)
class _Shard:
    """A shard, what is needed of it, and what goes off its list."""

    state: ShardState
    roots: ShardRoots
    off_the_list: frozenset[str]
    fields: tuple[ShardFieldValue, ...]

    @property
    def afterwards(self) -> ShardState:
        """The shard once nothing is listed that nobody needs."""
        return replace(self.state, latest=self.shortened(self.state.latest))

    def shortened(self, manifest: ShardManifest) -> ShardManifest:
        """Return a manifest without what nobody needs."""
        left = tuple(one for one in manifest.flushed_generations if one.path not in self.off_the_list)
        if len(left) == len(manifest.flushed_generations):
            return manifest
        fields = manifest.shard_fields or self.fields
        return replace(manifest, flushed_generations=left, shard_fields=fields)


class _NothingToDoError(Exception):
    """Another collection has shortened the list already."""


@dataclass(frozen=True, slots=True)
class _Collection:
    """One call of :func:`collect_garbage`."""

    base: BaseTable
    runner: Runner
    clock: Callable[[], datetime]
    horizon: timedelta
    fence_horizon: timedelta
    version_retention: timedelta | None
    dry_run: bool
    fields_to_record: FieldsToRecord
    on_progress: Callable[[int, int], None]

    def run(self) -> GarbageReport:
        # The order matters. What is due is due by a time and by marks from before everything else is
        # looked at. The base table is looked at before the shards: what it lacks they still list. And
        # what is newly marked gets a time from after everything was looked at.
        store = self.base.store
        now = self.clock()
        marks = read_marks(store)
        alive, removable = self._alive(now)
        shards = self._shards(alive)
        if not self.dry_run:
            self._shorten_lists(shards)
        terms = Terms(now, now if self.dry_run else self.clock(), self.horizon, self.fence_horizon)
        plans = {
            shard_id: plan_shard(shard.afterwards, shard.roots, marks.of(shard_id), terms)
            for shard_id, shard in shards.items()
        }
        pins = expired_pins(store, now - self.horizon)
        if not self.dry_run:
            self._mark(shards, terms)
            remove_versions(store, [one.version for one in removable])
            if pins:
                store.delete(pins)
            self._sweep(shards, plans)
        report = _report(self.dry_run, shards, plans, removable, pins)
        _log.info(
            "table.garbage_collected",
            dry_run=self.dry_run,
            deleted=report.deleted_objects,
            deleted_bytes=report.deleted_bytes,
            waiting=report.waiting_objects,
        )
        return report

    def _alive(self, now: datetime) -> tuple[Alive, tuple[TableVersion, ...]]:
        """Return what is alive, and the versions of the base table to remove."""
        store = self.base.store
        base = self.base.latest()
        versions = list_versions(store)
        roots = live_roots(store, now)
        if self.version_retention is None or not versions:
            return Alive(base, tuple(one.version for one in versions), None, roots), ()
        # What was the newest version then is the oldest that anybody can have begun to read since.
        retained = latest_at(versions, now - self.version_retention) or versions[0]
        kept = tagged_versions(store) | {base.version} | {root.base_version for root in roots}
        removable = tuple(
            one for one in versions if one.version < retained.version and one.version not in kept
        )
        left = tuple(one.version for one in versions if one not in removable)
        return Alive(base, left, retained.version, roots), removable

    def _shards(self, alive: Alive) -> dict[UUID, _Shard]:
        """Look at every shard, and decide what goes off its list."""
        shard_ids = list_shards(self.base.store)
        merged = progress_of(alive.base, shard_ids)
        surveys = [
            Survey(self.base.store, shard_id, merged[shard_id].merged, alive.named_manifests(shard_id))
            for shard_id in shard_ids
        ]
        states = {}
        for done, state in enumerate(self.runner.run(survey_shard, surveys), start=1):
            if state is not None:
                states[state.shard_id] = state
            self.on_progress(done, 2 * len(shard_ids))
        roots = shard_roots(alive, merged, states)
        return {shard_id: self._shard(states[shard_id], roots[shard_id]) for shard_id in sorted(states)}

    def _shard(self, state: ShardState, roots: ShardRoots) -> _Shard:
        off = frozenset(one.path for one in off_the_list(state.latest, roots))
        if not off:
            return _Shard(state, roots, off, ())
        try:
            return _Shard(state, roots, off, self.fields_to_record(state.latest))
        except ShardingError as error:
            # The rows are all that tells which keys the shard owns, and they contradict each other.
            needed = dict.fromkeys(off, f"its rows have to tell what the shard holds: {error.message}")
            return _Shard(state, replace(roots, generations={**roots.generations, **needed}), frozenset(), ())

    def _shorten_lists(self, shards: Mapping[UUID, _Shard]) -> None:
        for shard_id, shard in shards.items():
            if not shard.off_the_list:
                continue

            def shorten(latest: ShardManifest, shard: _Shard = shard) -> ShardManifest:
                shortened = shard.shortened(latest)
                if shortened is latest:
                    raise _NothingToDoError
                return shortened

            failpoint.reach("garbage.before_manifest")
            with contextlib.suppress(_NothingToDoError):
                update_manifest(self.base.store, shard_id, shorten)
            failpoint.reach("garbage.after_manifest")

    def _mark(self, shards: Mapping[UUID, _Shard], terms: Terms) -> None:
        def marked(marks: Marks) -> Marks:
            # Other collections may have marked something since; what they have marked stays marked.
            found = {
                shard_id: plan_shard(shard.afterwards, shard.roots, marks.of(shard_id), terms).marks
                for shard_id, shard in shards.items()
            }
            return Marks(found)

        failpoint.reach("garbage.before_mark")
        update_marks(self.base.store, marked)
        failpoint.reach("garbage.after_mark")

    def _sweep(self, shards: Mapping[UUID, _Shard], plans: Mapping[UUID, ShardPlan]) -> None:
        sweeps = [_sweep_of(self.base.store, shard, plans[shard_id]) for shard_id, shard in shards.items()]
        due = [sweep for sweep in sweeps if sweep]
        total = 2 * len(sweeps)
        self.on_progress(total - len(due), total)
        for done, _ in enumerate(self.runner.run(sweep_shard, due), start=1):
            self.on_progress(total - len(due) + done, total)
        if due:
            update_marks(
                self.base.store,
                lambda marks: Marks(
                    {
                        shard_id: without_deleted(one, plans[shard_id]) if shard_id in plans else one
                        for shard_id, one in marks.shards.items()
                    }
                ),
            )


def _sweep_of(store: ObjectStore, shard: _Shard, plan: ShardPlan) -> Sweep:
    state = shard.state
    return Sweep(
        store,
        state.shard_id,
        log=tuple(path for position in plan.due_log for path in state.log[position].paths),
        directories={name: state.directories[name].paths for name in plan.due_directories},
        manifests=plan.due_manifests,
        newest_manifest=state.latest.version,
    )


def _report(
    dry_run: bool,
    shards: Mapping[UUID, _Shard],
    plans: Mapping[UUID, ShardPlan],
    removable: Sequence[TableVersion],
    pins: Sequence[str],
) -> GarbageReport:
    items: list[GarbageItem] = []
    kept: list[KeptItem] = []
    for shard_id, plan in plans.items():
        items += _items_of(shards[shard_id].state, plan)
        kept += [KeptItem(shard_id, one.name, one.reason) for one in plan.kept]
    for version in removable:
        name = f"version {version.version} of the base table"
        items.append(
            GarbageItem("base table version", None, name, 1, version.nbytes, "not to be retained", True)
        )
    items += [GarbageItem("expired pin", None, path, 1, 0, "its time is over", True) for path in pins]
    return GarbageReport(dry_run, tuple(items), tuple(kept))


def _items_of(state: ShardState, plan: ShardPlan) -> Iterator[GarbageItem]:
    shard_id = state.shard_id
    for name, reason in plan.directories.items():
        found = state.directories[name]
        text = f"generation {found.generation} in {name}"
        due = name in plan.due_directories
        yield GarbageItem("generation", shard_id, text, len(found.paths), found.nbytes, reason, due)
    for positions, due in _parted(plan.log, plan.due_log):
        entries = [state.log[position] for position in positions]
        yield GarbageItem(
            "log entries",
            shard_id,
            f"{len(entries)} log entries, positions {positions[0]} to {positions[-1]}",
            sum(len(one.paths) for one in entries),
            sum(one.nbytes for one in entries),
            f"covered by generations that are merged, up to position {state.coverage.position}",
            due,
        )
    for versions, due in _parted(plan.manifests, plan.due_manifests):
        yield GarbageItem(
            "shard manifests",
            shard_id,
            f"{len(versions)} shard manifests, versions {versions[0]} to {versions[-1]}",
            len(versions),
            sum(state.manifests[version] for version in versions),
            f"superseded; the newest is version {state.latest.version}",
            due,
        )


def _parted(garbage: Sequence[int], due: Sequence[int]) -> Iterator[tuple[Sequence[int], bool]]:
    """Yield those that are due and those that wait, if there are any, and whether they are due."""
    if due:
        yield due, True
    waiting = garbage[len(due) :]
    if waiting:
        yield waiting, False

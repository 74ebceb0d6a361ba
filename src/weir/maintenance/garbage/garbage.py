"""Garbage collection: deletes what no reader, token, consumer, writer or retained version can need.

Lance MemWAL spec, "Garbage Collector"; what is garbage is decided in :mod:`weir.maintenance.garbage.policy`.
A collection reads the marks first and then the roots; removes unneeded generations from the lists of the
shard manifests; marks garbage, by compare-and-swap on ``_weir/garbage/marks.json``; and deletes what was
marked a horizon ago and is still garbage. So nothing is deleted that was not found to be garbage twice, a
horizon apart (invariant I9). The horizon gives readers of an older state time to finish. A consumer of the
change feed that begins with the oldest changes may need just these: see :mod:`weir.snapshots.swept`.

Any number of collections may run at once, and crash anywhere: each step may be repeated, and a mark stays
valid. Shards are surveyed and swept in tasks; manifests and marks are changed here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from weir.base.durability import make_durable
from weir.base.table import BaseTable
from weir.base.torn_versions import is_history_torn, is_torn_size, set_history_aside, unreadable_history
from weir.base.versions import TableVersion, latest_at, list_versions, remove_versions, tagged_versions
from weir.engine import failpoint
from weir.engine.logs import get_logger
from weir.engine.runner import Runner
from weir.errors import CorruptionError, OptionError, ShardingError
from weir.format import layout
from weir.format.garbage_marks import Marks
from weir.format.shard_manifest import ShardFieldValue, ShardManifest
from weir.format.version_hint import VersionHint
from weir.log.manifest_store import list_shards, update_manifest
from weir.maintenance.garbage.marks import update_marks
from weir.maintenance.garbage.policy import (
    ShardPlan,
    Terms,
    off_the_list,
    plan_shard,
    with_due,
    without_deleted,
    without_due,
)
from weir.maintenance.garbage.report import GarbageReport, report_of
from weir.maintenance.garbage.roots import Alive, progress_of, shard_roots
from weir.maintenance.garbage.state import ShardRoots, ShardState
from weir.maintenance.garbage.survey import Survey, survey_shard
from weir.maintenance.garbage.sweep import Sweep, sweep_shard
from weir.snapshots.swept import read_marks, swept_part
from weir.snapshots.tokens import expired_pins, live_roots
from weir.storage.interface import ObjectStore
from weir.storage.store_time import store_time

__all__ = [
    "DEFAULT_FENCE_HORIZON",
    "DEFAULT_HORIZON",
    "collect_garbage",
]

_log = get_logger(__name__)

DEFAULT_HORIZON = timedelta(minutes=15)
"""For how long something has to be marked before it is deleted: longer than any read should take."""

DEFAULT_FENCE_HORIZON = timedelta(days=1)
"""How old a fence entry has to be; see the fence argument in :mod:`weir.maintenance.garbage.policy`."""


FieldsToRecord = Callable[[ShardManifest], tuple[ShardFieldValue, ...]]
"""Returns the shard values that a manifest lacks and its generations show; empty if it lacks none."""


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
    """Delete what was garbage a horizon ago and still is, and mark current garbage.

    Parameters
    ----------
    base : BaseTable
        The base table at any version.
    runner : Runner
        Executes one task per shard to survey it, and one to delete what is due.
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
        Returns what a shard's manifest has to record before the rows that show it are deleted.

    Raises
    ------
    OptionError
        If a duration is negative or too short.
    ConflictError
        If other collections or flushes got in the way of every attempt.
    CorruptionError
        If marks, a pin, a consumer, a shard manifest or a MemWAL index cannot be read. Only what is certainly
        garbage is deleted.
    """
    _check_option("horizon", horizon, timedelta(0))
    _check_option("fence_horizon", fence_horizon, _LEAST_FENCE_HORIZON)
    if version_retention is not None:
        _check_option("version_retention", version_retention, horizon)
    if clock is None:
        # A dry run writes nothing, and asking the store for its time takes a write.
        store = base.store
        clock = (lambda: datetime.now(UTC)) if dry_run else (lambda: store_time(store))
    collection = _Collection(
        base,
        runner,
        clock,
        horizon,
        fence_horizon,
        version_retention,
        dry_run,
        fields_to_record or (lambda manifest: ()),
        on_progress or (lambda done, total: None),
    )
    try:
        return collection.run()
    except CorruptionError:
        # A manifest that a loss of power has torn may have all its bytes, and zeros at its end.
        if not (base.store.is_local and is_history_torn(base.store)):
            raise
        return replace(collection, has_torn_history=True).run()


_LEAST_FENCE_HORIZON = timedelta(hours=1)
# Longer than any table, and short enough to be taken from the time it is.
_LONGEST = timedelta(days=36_525)


def _check_option(name: str, value: timedelta, least: timedelta) -> None:
    if not isinstance(value, timedelta) or not least <= value <= _LONGEST:
        raise OptionError(
            f"{name} must be a timedelta of at least {least} and at most 100 years, got {value!r}", where=name
        )


@dataclass(frozen=True, slots=True)
class _Shard:
    """A shard, what is needed of it, and what is removed from its list."""

    state: ShardState
    roots: ShardRoots
    off_the_list: frozenset[str]
    fields: tuple[ShardFieldValue, ...]

    @property
    def afterwards(self) -> ShardState:
        """The shard after unneeded generations are removed from its list."""
        return replace(self.state, latest=self.shortened(self.state.latest))

    def shortened(self, manifest: ShardManifest) -> ShardManifest:
        """Return a manifest without unneeded generations."""
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
    has_torn_history: bool = False
    """Whether versions below the newest are torn without showing in their sizes."""

    def run(self) -> GarbageReport:
        # The order matters. What is due is determined by a time and marks read before everything else. The
        # base table is read before the shards: what it lacks they still list. And new marks get a time taken
        # after everything was read.
        store = self.base.store
        now = self.clock()
        marks = read_marks(store)
        alive, removable = self._alive(now)
        shards = self._shards(alive, now)
        if not self.dry_run:
            self._shorten_lists(shards)
        terms = Terms(now, now if self.dry_run else self.clock(), self.horizon, self.fence_horizon)
        plans = {
            shard_id: plan_shard(shard.afterwards, shard.roots, marks.of(shard_id), terms)
            for shard_id, shard in shards.items()
        }
        pins = expired_pins(store, now - self.horizon)
        removed, removed_bytes = removable, 0
        if not self.dry_run:
            marks = self._mark(shards, terms, plans, alive, removable)
            if (removable or any(plan.is_due for plan in plans.values())) and self._is_needed(
                alive, marks, now
            ):
                # The next collection sees who needs what, and deletes the rest.
                plans = {shard_id: without_due(plan) for shard_id, plan in plans.items()}
                removed = ()
            removed_bytes = remove_versions(store, [one.version for one in removed])
            if pins:
                store.delete(pins)
            self._sweep(shards, plans)
        states = [(shards[shard_id].state, plan) for shard_id, plan in plans.items()]
        former = sum(one < alive.base.version for one in alive.versions) + len(removable) - len(removed)
        report = report_of(self.dry_run, states, removed, removed_bytes, pins, former)
        _log.info(
            "table.garbage_collected",
            dry_run=self.dry_run,
            deleted=report.deleted_objects,
            deleted_bytes=report.deleted_bytes,
            waiting=report.waiting_objects,
            former_versions=report.former_versions,
        )
        return report

    def _alive(self, now: datetime) -> tuple[Alive, tuple[TableVersion, ...]]:
        """Return what is alive, and the versions of the base table to remove."""
        store = self.base.store
        # Collected rows exist only in this version: it has to survive a power loss.
        base = self.base.latest() if self.dry_run else self.base.latest_to_change()
        versions = list_versions(store)
        if not self.dry_run:
            make_durable(store, base.version)
        if self.has_torn_history or (store.is_local and any(is_torn_size(one.nbytes) for one in versions)):
            # Lance has to read the manifests of old versions to remove them, and pins may name them.
            look = unreadable_history if self.dry_run else set_history_aside
            torn = look(store, by_size=not self.has_torn_history)
            spent = {one.version for one in (*base.torn, *torn)}
            versions = tuple(one for one in list_versions(store) if one.version not in spent)
        roots = live_roots(store, now)
        # Every version that was the newest at some time since: readers that opened the table then still use
        # it.
        opened = latest_at(versions, now - self.horizon)
        recent = tuple(one.version for one in versions if opened is None or one.version >= opened.version)
        if self.version_retention is None or not versions:
            return Alive(base, tuple(one.version for one in versions), recent, None, roots), ()
        # What was the newest version then is the oldest that anybody can have begun to read since.
        retained = latest_at(versions, now - self.version_retention) or versions[0]
        kept = tagged_versions(store) | {base.version} | {root.base_version for root in roots}
        removable = tuple(
            one for one in versions if one.version < retained.version and one.version not in kept
        )
        left = tuple(one.version for one in versions if one not in removable)
        return Alive(base, left, recent, retained.version, roots), removable

    def _shards(self, alive: Alive, now: datetime) -> dict[UUID, _Shard]:
        """Look at every shard, and decide what goes off its list."""
        store, shard_ids = self.base.store, list_shards(self.base.store)
        merged = progress_of(alive.base, shard_ids)
        fences_since = now - self.fence_horizon
        surveys = [
            Survey(store, shard_id, merged[shard_id].merged, fences_since, alive.named_manifests(shard_id))
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
            # Only the rows show which keys the shard owns, and they contradict each other.
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

    def _mark(
        self,
        shards: Mapping[UUID, _Shard],
        terms: Terms,
        plans: Mapping[UUID, ShardPlan],
        alive: Alive,
        removable: tuple[TableVersion, ...],
    ) -> Marks:
        """Mark garbage, and announce what is about to be deleted."""
        removed = {one.version for one in removable}

        def marked(marks: Marks) -> Marks:
            # Other collections may have added marks since, which are kept.
            found = {
                shard_id: plan_shard(shard.afterwards, shard.roots, marks.of(shard_id), terms).marks
                for shard_id, shard in shards.items()
            }
            found = {
                shard_id: replace(one, swept=with_due(one.swept, plans[shard_id]))
                for shard_id, one in found.items()
            }
            swept = removed.union(removed.union(alive.versions).intersection(marks.swept_versions))
            return Marks(found, swept_versions=tuple(sorted(swept)))

        failpoint.reach("garbage.before_mark")
        now_marked = update_marks(self.base.store, marked)
        failpoint.reach("garbage.after_mark")
        return now_marked

    def _is_needed(self, alive: Alive, marks: Marks, now: datetime) -> bool:
        """Whether something about to be deleted has become needed since the roots were read."""
        begun = set(live_roots(self.base.store, now)).difference(alive.roots)
        return any(swept_part(alive.base, root, marks) is not None for root in begun)

    def _sweep(self, shards: Mapping[UUID, _Shard], plans: Mapping[UUID, ShardPlan]) -> None:
        plans = {shard_id: self._without_published(plan, shard_id) for shard_id, plan in plans.items()}
        sweeps = [_sweep_of(self.base.store, shard, plans[shard_id]) for shard_id, shard in shards.items()]
        due = [sweep for sweep in sweeps if sweep]
        total = 2 * len(sweeps)
        self.on_progress(total - len(due), total)
        for done, _ in enumerate(self.runner.run(sweep_shard, due), start=1):
            self.on_progress(total - len(due) + done, total)
        if due:
            update_marks(
                self.base.store,
                lambda marks: replace(
                    marks,
                    shards={
                        shard_id: without_deleted(one, plans[shard_id]) if shard_id in plans else one
                        for shard_id, one in marks.shards.items()
                    },
                ),
            )

    def _without_published(self, plan: ShardPlan, shard_id: UUID) -> ShardPlan:
        """Return a plan without staged directories that were published after all."""
        staged = {name for name in plan.due_directories if layout.is_staged_name(name)}
        if not staged:
            return plan
        published: set[str] = set()

        def look(latest: ShardManifest) -> ShardManifest:
            # Readers of the earlier state of the shard find its version taken, and read again.
            published.update(staged & {one.path for one in latest.flushed_generations})
            return latest

        update_manifest(self.base.store, shard_id, look)
        due = tuple(name for name in plan.due_directories if name not in published)
        return replace(plan, due_directories=due)


def _sweep_of(store: ObjectStore, shard: _Shard, plan: ShardPlan) -> Sweep:
    state = shard.state
    return Sweep(
        store,
        state.shard_id,
        log=tuple(path for position in plan.due_log for path in state.log[position].paths),
        directories={name: state.directories[name].paths for name in plan.due_directories},
        manifests=plan.due_manifests,
        hint=VersionHint(state.latest.version, state.latest.write_id),
    )

"""Which objects of a shard are garbage: decided from a listing, the roots and the marks, without I/O.

Lance MemWAL spec, "Garbage Collector". Every rule here is monotonic: garbage stays garbage, since no new
reader, token, flush or claim can come to need it. So an object may be deleted once it has been garbage for
the horizon, which gives earlier users time to finish.

**Generations.** A listed generation is garbage when the base table contains it, every maintained index of the
base table has caught up with it, and no root needs it. It is removed from the manifest's list first, and its
directory is deleted once it has been unlisted and marked for the horizon. An unlisted directory with a number
below the manifest's ``current_generation`` was removed from the list or left by a failed flush. No flush can
publish it any more: a flush publishes the number in ``current_generation`` and advances it, in one
compare-and-swap that checks the epoch and that the log is not covered up to the end of its MemTable. A
directory with the number ``current_generation`` or above stays, however old: a sleeping flush may still
publish it.

A staged directory (:mod:`weir.write.flush.staged_generations`) has no number. One that the newest manifest
lists is garbage once it is removed from the list; an unlisted one is garbage when everything in it is too old
to be published.

**Log entries.** An entry is garbage when a generation that the base table contains covers it and no root
needs it; merged, not only flushed as in the spec. A reader asks for the position after the last one it knows,
and must not mistake "collected" for "not written yet": the entries it misses are merged, which shows in the
version of the base table it reads afterwards (:mod:`weir.snapshots.snapshot`). Marks of writes that changed
nothing are covered without a generation, and no version of the base table shows a reader that it misses some.
They are kept for the fence horizon, which is far longer than readers go without rereading the manifest.

**The fence argument (invariant I2).** Take a sleeping writer whose epoch has been superseded. It can write
only to one position, the one after its last entry. An entry there has a higher epoch, because the writer
itself has not written there and positions are taken one after the other; and since the entry before it is the
sleeper's own, it is the *first entry of its epoch*: the fence entry of a claim, or a data entry from the
released library, which writes no fence when it finds no tail. So the first entry of every epoch is a guard.
As long as it exists, the sleeper's append collides with it, whatever else has been collected, and the sleeper
learns that it is fenced. No other entry is needed for that.

Guards are kept for the fence horizon, by the time stamp of the object, and the guard of the newest epoch for
good. After that, Weir's writers are stopped in another way: a writer knows since when its next position was
certainly free, by a clock that counts sleep. If that is longer ago than
:data:`~weir.write.fencing.MAX_UNCERTAIN_SECONDS`, or if its last append may have succeeded although its
answer was lost, it reads the newest manifest before it appends, and refuses if the epoch is no longer its
own. If the append itself returns that late, it reads the manifest again, and does not acknowledge a covered
position: positions are only collected when covered, and coverage never shrinks, so an uncovered position was
never collected, and the append is valid. The fence horizon is far longer than that limit. An entry left by
such an append is below ``replay_after_wal_entry_position``, where it is never read, and is collected like a
fence entry, since it may look like one.

A claim that sleeps between raising the epoch and writing its fence may find the fence's position collected
too. Only a claim with a higher epoch can have covered it, so the claim reads the newest epoch after writing
its fence, and gives up if that is no longer its own. Writers of the released library check nothing; for them
the fence horizon is how long they may sleep.

**Shard manifests.** They are deleted from the lowest version up, one by one, so that a version that exists
proves that none above it was collected (:mod:`weir.log.manifest_store`). Kept are the newest, those that
roots name and everything above them, and the two at the end of the merged generations, which say up to where
the log may be collected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from weir.format import layout
from weir.format.garbage_marks import ShardMarks, Step, Swept
from weir.format.shard_manifest import FlushedGeneration, ShardManifest
from weir.maintenance.garbage.state import Directory, ShardRoots, ShardState
from weir.write.flush.staged_generations import LEFT_BEHIND_AFTER

__all__ = [
    "KeptObjects",
    "ShardPlan",
    "Terms",
    "off_the_list",
    "plan_shard",
    "with_due",
    "without_deleted",
    "without_due",
]

_STEPS_PER_HORIZON = 8
"""How many steps of marks are kept per horizon; more would only make the object larger."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The reference times of a collection.

    Parameters
    ----------
    now : datetime
        The time before anything was read, in UTC, which decides what is due.
    marked_at : datetime
        The time after everything was read, used for new marks.
    horizon : timedelta
        For how long something has to be marked before it is deleted.
    fence_horizon : timedelta
        How old a fence entry has to be.
    """

    now: datetime
    marked_at: datetime
    horizon: timedelta
    fence_horizon: timedelta


@dataclass(frozen=True, slots=True)
class KeptObjects:
    """Objects that look like garbage but are needed.

    Parameters
    ----------
    name : str
        What it is.
    reason : str
        Why it stays.
    """

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """What a collection does in one shard.

    Parameters
    ----------
    log, manifests : tuple of int
        Positions and versions that are garbage, ascending.
    directories : mapping of str to str
        Directories that are garbage, and why.
    due_log, due_manifests, due_directories
        Those of them whose horizon has passed.
    marks : ShardMarks
        The marks for all garbage, with their times.
    kept : tuple of KeptObjects
        What stays, and why.
    """

    log: tuple[int, ...]
    manifests: tuple[int, ...]
    directories: Mapping[str, str]
    due_log: tuple[int, ...]
    due_manifests: tuple[int, ...]
    due_directories: tuple[str, ...]
    marks: ShardMarks
    kept: tuple[KeptObjects, ...]

    @property
    def is_due(self) -> bool:
        """Whether there is anything to delete now."""
        return bool(self.due_log or self.due_manifests or self.due_directories)


def off_the_list(manifest: ShardManifest, roots: ShardRoots) -> tuple[FlushedGeneration, ...]:
    """Return the unneeded generations that ``manifest`` lists, ascending."""
    return tuple(
        sorted(
            (one for one in manifest.flushed_generations if not _why_listed(one, roots)),
            key=lambda one: one.generation,
        )
    )


def _why_listed(flushed: FlushedGeneration, roots: ShardRoots) -> str:
    """Return why a listed generation stays on the list; empty if it does not."""
    if flushed.generation > roots.merged:
        return "not merged yet"
    if flushed.generation > roots.caught_up:
        return f"the index {roots.lagging_index!r} has caught up with generation {roots.caught_up} only"
    if _is_to_be_read(flushed, roots):
        return roots.position_reason
    return roots.generations.get(flushed.path, "")


def _is_to_be_read(flushed: FlushedGeneration, roots: ShardRoots) -> bool:
    """Whether a root needs the place of the log where the rows of a published generation stand."""
    if roots.first_position is None or not layout.is_staged_name(flushed.path):
        return False
    # Where the released library has dropped the place, it may be any.
    return flushed.published_after is None or roots.first_position <= flushed.published_after + 1


def plan_shard(state: ShardState, roots: ShardRoots, marks: ShardMarks, terms: Terms) -> ShardPlan:
    """Decide what is garbage in a shard, what of it is due, and what to mark.

    Parameters
    ----------
    state : ShardState
        The shard, after unneeded generations were removed from its list.
    roots : ShardRoots
        What is needed, read after the marks.
    marks : ShardMarks
        What has been marked so far. Nothing else can be due.
    terms : Terms
        The times.
    """
    kept: list[KeptObjects] = []
    directories = _garbage_directories(state, roots, marks, terms, kept)
    log = _garbage_log(state, roots, terms, kept)
    manifests = _garbage_manifests(state, roots, kept)
    return ShardPlan(
        log=log,
        manifests=manifests,
        directories=directories,
        due_log=_due(marks.wal, log, terms),
        due_manifests=_due(marks.manifests, manifests, terms),
        due_directories=tuple(
            name
            for name in directories
            if name in marks.directories and terms.now - marks.directories[name] >= terms.horizon
        ),
        marks=ShardMarks(
            _marked(marks.wal, log, terms),
            _marked(marks.manifests, manifests, terms),
            {
                name: min(marks.directories.get(name, terms.marked_at), terms.marked_at)
                for name in directories
            },
            marks.swept,
        ),
        kept=tuple(kept),
    )


def with_due(swept: Swept, plan: ShardPlan) -> Swept:
    """Return what collections are about to delete, including what is due in a plan."""
    return Swept(
        max((swept.log, *plan.due_log)),
        max((swept.manifests, *plan.due_manifests)),
        swept.directories.union(plan.due_directories),
    )


def without_due(plan: ShardPlan) -> ShardPlan:
    """Return the plan with its marks but without deletions."""
    return replace(plan, due_log=(), due_manifests=(), due_directories=())


def without_deleted(marks: ShardMarks, plan: ShardPlan) -> ShardMarks:
    """Return the marks that are left when everything that was due has been deleted."""
    return ShardMarks(
        _steps_above(marks.wal, plan.due_log),
        _steps_above(marks.manifests, plan.due_manifests),
        {name: since for name, since in marks.directories.items() if name not in plan.due_directories},
        replace(marks.swept, directories=marks.swept.directories.difference(plan.due_directories)),
    )


def _garbage_directories(
    state: ShardState, roots: ShardRoots, marks: ShardMarks, terms: Terms, kept: list[KeptObjects]
) -> dict[str, str]:
    listed = {one.path: one for one in state.latest.flushed_generations}
    garbage = {}
    for name, directory in sorted(state.directories.items(), key=lambda item: (item[1].generation, item[0])):
        if name in listed:
            reason = _why_listed(listed[name], roots)
            if reason and listed[name].generation <= roots.merged:
                kept.append(KeptObjects(f"generation {directory.generation} in {name}", reason))
        elif name in roots.generations:
            kept.append(KeptObjects(f"generation {directory.generation} in {name}", roots.generations[name]))
        elif not directory.generation:
            # Staged. If it is marked it was found to be garbage before, by its age or off the list.
            if name in marks.directories:
                garbage[name] = "staged, and on no list"
            elif _age(directory, terms) >= LEFT_BEHIND_AFTER:
                garbage[name] = "staged by a write that failed, or merged"
            else:
                kept.append(KeptObjects(name, "a write may still publish it"))
        elif directory.generation >= state.latest.current_generation:
            kept.append(KeptObjects(name, "a flush may still publish it"))
        elif directory.generation <= roots.merged:
            garbage[name] = "merged, and no manifest lists it"
        else:
            garbage[name] = "left behind by a flush that failed"
    return garbage


def _age(directory: Directory, terms: Terms) -> timedelta:
    return timedelta(0) if directory.last_modified is None else terms.now - directory.last_modified


def _garbage_log(
    state: ShardState, roots: ShardRoots, terms: Terms, kept: list[KeptObjects]
) -> tuple[int, ...]:
    coverage, limit = state.coverage, state.coverage.end
    covered = [
        position
        for position in sorted(state.log)
        if position <= coverage.position
        or (position <= limit and terms.now - state.log[position].last_modified >= terms.fence_horizon)
    ]
    if roots.first_position is not None and roots.first_position <= limit:
        held = [position for position in covered if position >= roots.first_position]
        if held:
            kept.append(KeptObjects(f"{_entries(held)} from position {held[0]} on", roots.position_reason))
        covered = covered[: len(covered) - len(held)]
    places = [position for position in covered if position in roots.places]
    kept += [KeptObjects(_entries([one]), roots.places[one]) for one in places]
    covered = [position for position in covered if position not in roots.places]
    guards = _guards_to_keep(state, terms)
    fences = [position for position in covered if position in guards]
    if fences:
        kept.append(KeptObjects(_entries(fences, "fence"), "they fence writers that may be asleep"))
    return tuple(position for position in covered if position not in guards)


def _entries(positions: Sequence[int], kind: str = "log") -> str:
    return f"{len(positions)} {kind} {'entry' if len(positions) == 1 else 'entries'}"


def _guards_to_keep(state: ShardState, terms: Terms) -> set[int]:
    guards = {
        position
        for position in state.guards
        if terms.now - state.log[position].last_modified < terms.fence_horizon
    }
    return guards | ({max(state.guards)} if state.guards else set())


def _garbage_manifests(state: ShardState, roots: ShardRoots, kept: list[KeptObjects]) -> tuple[int, ...]:
    lowest = min(state.latest.version, state.coverage.told_by)
    if roots.first_manifest is not None and roots.first_manifest < lowest:
        kept.append(KeptObjects(f"shard manifests from {roots.first_manifest} on", roots.manifest_reason))
        lowest = roots.first_manifest
    return tuple(version for version in sorted(state.manifests) if version < lowest)


def _marked(steps: Iterable[Step], garbage: Sequence[int], terms: Terms) -> tuple[Step, ...]:
    """Return the marks, without what is no longer garbage and with new garbage.

    Marks from the future were made while the clock was wrong. They count from now on: otherwise nothing
    would be due until the clock has caught up with them.
    """
    if not garbage:
        return ()
    limit = garbage[-1]
    marked: list[Step] = []
    for step in sorted(steps, key=lambda one: (one.since, one.up_to)):
        up_to = min(step.up_to, limit)
        if up_to >= garbage[0] and (not marked or up_to > marked[-1].up_to):
            marked.append(Step(up_to, min(step.since, terms.marked_at)))
    if not marked:
        return (Step(limit, terms.marked_at),)
    if limit > marked[-1].up_to and terms.marked_at - marked[-1].since >= terms.horizon / _STEPS_PER_HORIZON:
        marked.append(Step(limit, terms.marked_at))
    return tuple(marked)


def _due(steps: Iterable[Step], garbage: Sequence[int], terms: Terms) -> tuple[int, ...]:
    limit = max((step.up_to for step in steps if terms.now - step.since >= terms.horizon), default=-1)
    return tuple(number for number in garbage if number <= limit)


def _steps_above(steps: Iterable[Step], deleted: Sequence[int]) -> tuple[Step, ...]:
    return tuple(step for step in steps if not deleted or step.up_to > deleted[-1])

"""Which objects of a shard are garbage: decided from a listing, the roots and the marks, without I/O.

Lance MemWAL spec, "Garbage Collector". Every rule here is monotonic: what is garbage stays garbage, since
no new reader, token, flush or claim can come to need it. So an object may be deleted once it has been
garbage for the horizon, which is the time that whoever needed it before is given to finish.

**Generations.** A listed generation is garbage when the base table contains it, every maintained index of
the base table has caught up with it, and no root needs it. It is taken off the manifest's list first, and
its directory goes when it has been off the list, and marked, for the horizon. A directory that no list
has and whose number is below the manifest's ``current_generation`` is one that was taken off, or what a
flush left behind that failed. No flush can publish it any more: a flush publishes the number that
``current_generation`` says and moves that on, in one compare-and-swap that checks the epoch and that the
log is not covered up to the end of its MemTable. A directory whose number is ``current_generation`` or
above stays, however old: a flush that sleeps may still publish it.

A staged directory (:mod:`weir.write.flush.staged_generations`) has no number by which to tell. One that the
newest manifest lists has that manifest's, and is garbage once it is taken off the list; one that is on no
list when it is everything in it is old enough that nobody publishes it any more.

**Log entries.** An entry is garbage when a generation that the base table contains covers it and no root
needs it; merged, not only flushed, as the spec has it. A reader asks for the position after the last one
it knows, and must not take "collected" for "not written yet": what it is missing is merged, and that
shows in the version of the base table it looks at afterwards (:mod:`weir.snapshots.snapshot`).
Marks of writes that have changed nothing are covered without a generation, and no version of the base table
tells a reader that it is missing some. They are kept for the fence horizon, which is far longer than readers
go without a look at the manifest.

**The fence argument (invariant I2).** Take a writer whose epoch has been superseded and that sleeps. It has
one place to write to, the position after its last entry. Whoever holds that position has a higher epoch,
because the writer itself has not written there and positions are taken one after the other; and since the
entry before it is the sleeper's own, it is the *first entry of its epoch*: the fence entry of a claim, or,
from the released library, which writes no fence when it finds no tail, a data entry. So the first entry of
every epoch is a guard. As long as it stands, the sleeper's append collides with it, whatever else has been
collected, and the sleeper learns from it that it is fenced. No other entry is needed for that.

Guards are kept for the fence horizon, by the time stamp of the object, and the guard of the newest epoch
for good. After that, Weir's writers are stopped in another way: a writer knows since when its next
position was certainly free, by a clock that counts sleep. If that is longer ago than
:data:`~weir.write.fencing.MAX_UNCERTAIN_SECONDS`, or if its last append may have been made
although its answer was lost, it looks at the newest manifest before it appends, and refuses if the epoch is
not its own any more. If the append itself comes back that late, it looks once more, and does not acknowledge
a position that is covered: positions are only collected when they are covered, and coverage never goes back,
so an uncovered position was never collected, and the append was in its place. The fence horizon is far longer
than that limit. What such an append has left lies below ``replay_after_wal_entry_position``, where nobody
looks, and is collected like a fence entry, since it may look like one.

A claim that sleeps between raising the epoch and writing its fence may find the fence's place collected
too. Only a claim with a higher epoch can have covered it, so the claim looks at the newest epoch once its
fence stands, and gives up if it is not its own any more. Writers of the released library check nothing;
for them the fence horizon is how long they may sleep.

**Shard manifests.** They are deleted from the lowest version up, one by one, so that a version that exists
proves that none above it was collected (:mod:`weir.log.manifest_store`). The newest stays, those that
roots name and everything above them, and the two at the place where the merged generations end, which say
up to where the log may be collected.
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
    """The times a collection goes by.

    Parameters
    ----------
    now : datetime
        The time before anything was looked at, in UTC: what is due is due by this time.
    marked_at : datetime
        The time after everything was looked at: since when something newly found is garbage.
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
    """What is not garbage although one might think so.

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
        What is to be marked, and since when: everything that is garbage.
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
        """Whether anything is to be deleted now."""
        return bool(self.due_log or self.due_manifests or self.due_directories)


def off_the_list(manifest: ShardManifest, roots: ShardRoots) -> tuple[FlushedGeneration, ...]:
    """Return the generations that ``manifest`` lists and nobody needs, by ascending number."""
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
        The shard. What is to go off the list is off the list already.
    roots : ShardRoots
        What is needed, looked at after the marks were read.
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
    """Return what collections have set out to delete, together with what is due in a plan."""
    return Swept(
        max((swept.log, *plan.due_log)),
        max((swept.manifests, *plan.due_manifests)),
        swept.directories.union(plan.due_directories),
    )


def without_due(plan: ShardPlan) -> ShardPlan:
    """Return a plan that marks what it marks, and deletes nothing."""
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
    """Return the steps, without what is no garbage any more, and with what has become garbage.

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

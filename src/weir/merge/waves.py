"""Merging runs of generations by many tasks and one commit, exactly once.

1. **New rows** (:mod:`weir.merge.new_rows`): one task per run, or for several small ones, writes the newest
   row of every key into new fragments, and passes the keys on.
2. **Replaced rows** (:mod:`weir.merge.replaced_rows`): one task per group of fragments of the base table,
   or of the key index, finds the rows that have one of these keys, and deletes them in new deletion files.
   Beside them, tasks build the segments of the key indexes over many new rows
   (:mod:`weir.base.early_segments`).
3. **One commit** (:mod:`weir.base.row_commit`): new fragments, deletion files and the marks of all shards
  become the version after the one that was read. Until then none of these files is referenced.

A concurrent commit takes the number of that version. Then the work that is still valid is kept, and the rest
is repeated: new fragments, or those that have lost rows, are searched again; runs with merged generations, or
all of them if columns have changed, are rewritten. With a merge engine, whose rows depend on those of the
base table, all are rewritten after any commit that has changed rows. What was written in vain is deleted.

Runs of several shards have no key in common. Should they all the same, the library merges them, by whose
order the last one counts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import pyarrow as pa

from weir.base.details_commit import wait_for_turn
from weir.base.early_segments import (
    EarlySegment,
    EarlySegmentTask,
    build_early_segment,
    early_segment_tasks,
)
from weir.base.merge_guard import guard_id
from weir.base.row_commit import FragmentLeft, RowChange, commit_rows, deletion_files, fragments_of
from weir.base.table import BaseTable
from weir.engine import failpoint
from weir.engine.logs import get_logger
from weir.engine.runner import Runner, in_one_go
from weir.errors import (
    ConflictError,
    CorruptionError,
    ObjectNotFoundError,
    RunnerError,
    SnapshotExpiredError,
    WeirError,
)
from weir.format.index_details import MergedGeneration
from weir.merge.merge_insert import merge_by_library
from weir.merge.merged_keys import MergedKeys, gathered_keys
from weir.merge.new_rows import NewRows, new_rows_tasks, write_new_rows
from weir.merge.plan import MergeTask
from weir.merge.replaced_rows import (
    ReplacedRows,
    ReplacedRowsTask,
    delete_replaced_rows,
    replaced_rows_tasks,
)
from weir.merge.result import MergeResult, named, unmerged_runs
from weir.merge.rows import Run

__all__ = ["merge_in_waves"]

_log = get_logger(__name__)
_MAX_ATTEMPTS = 64


def merge_in_waves(tasks: Sequence[MergeTask], base: BaseTable, runner: Runner) -> MergeResult:
    """Merge the generations of tasks and record it: see :func:`weir.merge.commit.merge_runs`.

    Parameters
    ----------
    tasks : sequence of MergeTask
        The runs, at least one, each of another shard.
    base : BaseTable
        The table at any version.
    runner : Runner
        Executes the tasks of the waves.
    """
    work = _Work(in_one_go(runner))
    try:
        for attempt in range(_MAX_ATTEMPTS):
            wait_for_turn(attempt)
            base = base.latest_to_change()
            merged = {task.shard_id: base.details.merged_generation(task.shard_id) for task in tasks}
            todo = unmerged_runs(tasks, merged, base)
            if not todo:
                return MergeResult(0, 0, (), base.version, True)
            try:
                work.prepare(base, todo)
                version = work.commit(base, merged)
            except (CorruptionError, SnapshotExpiredError, ObjectNotFoundError):
                # Nothing is wrong if others have merged it, or removed the version, meanwhile.
                if base.latest().version == base.version:
                    raise
                continue
            if work.repeats:
                return merge_by_library(tasks, base)
            if version is not None:
                numbers = tuple(one.generation for _, left in todo for one in left)
                segments = tuple(work.segments.values())
                return MergeResult(
                    work.rows, work.deletes, numbers, version, False, shards=len(todo), segments=segments
                )
    finally:
        work.clean_up(base)
    raise ConflictError(
        f"concurrent commits got in the way of {_MAX_ATTEMPTS} attempts to merge {named(tasks)}",
        where=base.uri,
        hint="Merge it again, and run fewer services on the table at once",
    )


@dataclass(slots=True)
class _Work:
    """What the tasks of a merge have done so far.

    Parameters
    ----------
    runner : Runner
        Executes them.
    """

    runner: Runner
    written: list[NewRows] = field(default_factory=list)
    looked_at: dict[int, tuple[str, ReplacedRows]] = field(default_factory=dict)
    """By fragment, with its description then."""
    segments: dict[tuple[str, tuple[int, ...]], EarlySegment] = field(default_factory=dict)
    """By index and the fragments that they expect to cover: a guess, until the commit."""
    keys: tuple[MergedKeys, ...] | None = None
    """The columns of everything written, as passed to tasks."""
    schema: pa.Schema | None = None
    fragments: dict[int, str] = field(default_factory=dict)
    repeats: bool = False
    in_vain: list[str] = field(default_factory=list)
    is_open: bool = True
    """Whether the written files are unreferenced: False once they may have been published."""

    @property
    def rows(self) -> int:
        """Rows that were written."""
        return sum(one.rows for one in self.written)

    @property
    def deletes(self) -> int:
        """Rows that were deleted and have no new one in their place."""
        return sum(found.deletes.get(number, 0) for number, (_, found) in self.looked_at.items())

    def prepare(self, base: BaseTable, todo: Sequence[Run]) -> None:
        """Do what is missing or no longer valid for a version."""
        base.refuse_damaged_deletions()
        fragments = fragments_of(base.dataset)
        moved = base.merge_engine is not None and fragments != self.fragments
        if base.row_schema != self.schema or moved:
            self._forget(self.written)
        self.schema, self.fragments = base.row_schema, fragments
        wanted = {task.shard_id: (task, left) for task, left in todo}
        # By what is merged: a task that ran elsewhere returns with another store object.
        runs = {shard: left for shard, (_, left) in wanted.items()}
        self._forget(
            [one for one in self.written if any(runs.get(task.shard_id) != left for task, left in one.runs)]
        )
        there = {task.shard_id for one in self.written for task, _ in one.runs}
        missing = [run for shard, run in wanted.items() if shard not in there]
        if missing:
            self._look_again(list(self.looked_at))
            for written in self.runner.run(write_new_rows, new_rows_tasks(base, missing)):
                self._take_rows(written)
            there = {task.shard_id for one in self.written for task, _ in one.runs}
            _check_answered(wanted.keys() - there, "writes the rows of shards", base)
        failpoint.reach("merge.between_waves")
        self._look_again(
            [number for number, (then, _) in self.looked_at.items() if fragments.get(number) != then]
        )
        unseen = [number for number in fragments if number not in self.looked_at]
        if unseen or missing:
            if missing or self.keys is None:
                self.keys = gathered_keys(base.store, [one.keys for one in self.written])
                paths = {one.keys.path for one in self.written}
                self.in_vain += [
                    one.path for one in self.keys if one.path is not None and one.path not in paths
                ]
            self._second_wave(base, unseen, are_new=bool(missing))
            lost = fragments.keys() - self.looked_at.keys()
            _check_answered(lost, "looks for replaced rows in fragments", base)

    def _second_wave(self, base: BaseTable, unseen: Sequence[int], *, are_new: bool) -> None:
        assert self.keys is not None
        tasks = replaced_rows_tasks(base, unseen, self.keys)
        early: tuple[EarlySegmentTask, ...] = ()
        if are_new:
            self._forget_segments()
            early = early_segment_tasks(base, self._new_fragments(), self.rows)
        if not early:
            for found in self.runner.run(delete_replaced_rows, tasks):
                self._take_deletions(found, self.fragments)
            return
        # The longest first.
        both: list[ReplacedRowsTask | EarlySegmentTask] = [*tasks, *early]
        for answer in self.runner.run(delete_or_index, both):
            if isinstance(answer, ReplacedRows):
                self._take_deletions(answer, self.fragments)
            elif answer is not None:
                self._take_segment(answer)

    def commit(self, base: BaseTable, merged: dict[UUID, int]) -> int | None:
        """Publish the version after ``base``; None if another commit came first."""
        failpoint.reach("merge.before_commit")
        if self.repeats:
            return None
        left = [
            one
            for number, (_, found) in self.looked_at.items()
            for one in found.left
            if one.fragment_id == number
        ]
        new = self._new_fragments()
        marks = []
        for task in (task for one in self.written for task, _ in one.runs):
            marks.append(MergedGeneration(task.shard_id, task.last_generation))
            # The library's merges of the same generations are refused by it (weir.base.merge_guard).
            marks.append(MergedGeneration(guard_id(task.shard_id), merged[task.shard_id] + 1))
        manifest = base.manifest()
        self.is_open = False
        version = commit_rows(base.store, manifest, RowChange(left, new), marks)
        self.is_open = version is None
        failpoint.reach("merge.after_commit")
        return version

    def clean_up(self, base: BaseTable) -> None:
        """Delete unreferenced files."""
        if self.is_open:
            self._forget(self.written)
            self._look_again(list(self.looked_at))
            self._forget_segments()
        else:
            keys = (one.keys.path for one in self.written)
            self.in_vain += [path for path in keys if path is not None]
        if not self.in_vain:
            return
        try:
            base.store.delete(self.in_vain)
        except WeirError as error:
            # The library's cleanup deletes it some day.
            _log.warning("merge.left_behind", where=base.uri, files=len(self.in_vain), error=str(error))

    def _take_rows(self, written: NewRows) -> None:
        """Take the answer of a task, unless one has come before: a runner may have run it twice."""
        there = {task.shard_id for one in self.written for task, _ in one.runs}
        if any(task.shard_id in there for task, _ in written.runs):
            files = {path for one in self.written for path in one.files}
            self.in_vain += [path for path in written.files if path not in files]
        else:
            self.written.append(written)

    def _take_deletions(self, found: ReplacedRows, fragments: dict[int, str]) -> None:
        """Take the answer of a task, unless one has come before."""
        if any(number in self.looked_at for number in found.fragment_ids):
            files = {path for number in self.looked_at for path in deletion_files(self._left_of(number))}
            self.in_vain += [path for path in deletion_files(found.left) if path not in files]
            return
        self.repeats = self.repeats or found.repeats
        for number in found.fragment_ids:
            self.looked_at[number] = (fragments[number], found)

    def _take_segment(self, segment: EarlySegment) -> None:
        """Take the answer of a task, unless one has come before."""
        known = self.segments.setdefault((segment.index.name, tuple(segment.fragments)), segment)
        if known.index.uuid != segment.index.uuid:
            self.in_vain += segment.files

    def _forget_segments(self) -> None:
        self.in_vain += [path for one in self.segments.values() for path in one.files]
        self.segments.clear()

    def _new_fragments(self) -> list[str]:
        """Return what was written, in the order in which it is committed."""
        return [text for one in self.written for text in one.fragments]

    def _forget(self, spoilt: Sequence[NewRows]) -> None:
        for one in spoilt:
            self.in_vain += one.files
        if spoilt:
            gone = set(map(id, spoilt))
            self.written = [one for one in self.written if id(one) not in gone]
            self.keys = None
            self._look_again(list(self.looked_at))

    def _look_again(self, fragments: Sequence[int]) -> None:
        for number in fragments:
            self.in_vain += deletion_files(self._left_of(number))
            del self.looked_at[number]

    def _left_of(self, fragment: int) -> list[FragmentLeft]:
        _, found = self.looked_at[fragment]
        return [one for one in found.left if one.fragment_id == fragment]


def delete_or_index(task: ReplacedRowsTask | EarlySegmentTask) -> ReplacedRows | EarlySegment | None:
    """Run a task of the second wave."""
    if isinstance(task, EarlySegmentTask):
        return build_early_segment(task)
    return delete_replaced_rows(task)


def _check_answered(lost: Collection[object], doing: str, base: BaseTable) -> None:
    """Refuse to continue without missing results of a runner: rows would be duplicated or lost."""
    if lost:
        some = ", ".join(sorted(map(str, lost))[:3])
        raise RunnerError(
            f"a task that {doing} has not answered: {some}{', ...' if len(lost) > 3 else ''}",
            where=base.uri,
            hint="Nothing was committed: merge again. A runner must yield a result for every task",
        )

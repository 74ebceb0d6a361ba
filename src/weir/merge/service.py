"""Merging flushed generations into the base table: plan on one machine, tasks for some shards each.

Lance MemWAL spec, "MemTable Merger". Each task commits its own data and progress together (invariant I7), so
there is nothing left to commit at the end. They run one after the other, since of two that insert rows at the
same time one has to start over (:mod:`weir.merge.commit`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any
from uuid import UUID

from weir.base.column_marks import mark_columns
from weir.base.details_commit import may_have_dropped_fields, note_unknown_fields, restore_unknown_fields
from weir.base.early_segments import EarlySegment, usable_segments
from weir.base.key_index import build_missing_segments, extend_key_index, is_behind_merges
from weir.base.published import commit_shards, is_left_behind
from weir.base.table import BaseTable
from weir.engine.concurrent_map import Wave
from weir.engine.logs import get_logger
from weir.engine.runner import Runner, ThreadRunner, is_distributed
from weir.errors import ConflictError, WeirError
from weir.format.index_details import IndexDetails
from weir.format.shard_manifest import ShardManifest
from weir.format.unknown_fields import has_unknown_fields
from weir.merge.bounds import have_new_keys
from weir.merge.commit import (
    MergeResult,
    can_be_divided,
    has_work_for_many,
    merge_runs,
    pays_to_divide,
)
from weir.merge.plan import DEFAULT_MAX_TASK_BYTES, MergeTask, plan_merge
from weir.merge.policy import ALWAYS, MergePolicy
from weir.notebook import ShownAsTable
from weir.sharding.shard_values import field_types

__all__ = [
    "MergeGroup",
    "MergeReport",
    "MergedGroup",
    "group_merges",
    "merge_generations",
    "merge_rounds",
    "run_merge_group",
]

_log = get_logger(__name__)
_ROWS_OF_A_ROUND = 16_000_000


@dataclass(frozen=True, slots=True)
class MergeGroup:
    """Merges that one runner's task does. Picklable, stateless.

    Parameters
    ----------
    steps : tuple of tuple of MergeTask
        What to merge in one commit, one after the other: once each of several shards, or one shard in
        ascending order of generation.
    """

    steps: tuple[tuple[MergeTask, ...], ...]

    @property
    def shards(self) -> int:
        """How many shards it merges."""
        return len({task.shard_id for step in self.steps for task in step})


@dataclass(frozen=True, slots=True)
class MergedGroup:
    """What came of a group.

    Parameters
    ----------
    group : MergeGroup
        The group.
    applied : tuple of MergeResult
        What was merged; others may have merged the rest.
    """

    group: MergeGroup
    applied: tuple[MergeResult, ...]


@dataclass(frozen=True, slots=True)
class MergeReport(ShownAsTable):
    """What a merge did.

    What other merges did meanwhile is not counted, nor what a lost task merged before it was run again
    (:class:`weir.spark.SparkRunner`).

    Parameters
    ----------
    shards, generations : int
        Shards and generations that this call merged.
    rows_upserted, rows_deleted : int
        Rows written to the base table and keys deleted from it.
    version : int
        Version of the base table afterwards.
    rows_left : int, default 0
        Stored rows of generations that the policy left unmerged, to wait for more.
    in_conflict : tuple of UUID, default ()
        Shards that were left alone, because several of them hold versions of one key.
    """

    shards: int
    generations: int
    rows_upserted: int
    rows_deleted: int
    version: int
    rows_left: int = 0
    in_conflict: tuple[UUID, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values that JSON can hold."""
        return {**asdict(self), "in_conflict": list(map(str, self.in_conflict))}


def group_merges(
    tasks: Sequence[MergeTask], *, max_bytes: int = DEFAULT_MAX_TASK_BYTES
) -> tuple[MergeGroup, ...]:
    """Put the tasks of several shards together, up to a size; those of a shard with many stay alone.

    Every merge reads all keys of the base table, so a few merges of many shards cost far less than one per
    shard; larger merges are better divided.

    Parameters
    ----------
    tasks : sequence of MergeTask
        By shard and ascending generation.
    max_bytes : int, default 256 MiB
        Arrow bytes that are merged in one commit, unless a single task has more.
    """
    groups: list[MergeGroup] = []
    together: list[MergeTask] = []
    for _, of_shard in groupby(tasks, key=lambda task: task.shard_id):
        own = tuple(of_shard)
        if len(own) > 1:
            groups.append(MergeGroup(tuple((task,) for task in own)))
            continue
        if together and sum(task.nbytes for task in (*together, *own)) > max_bytes:
            groups.append(MergeGroup((tuple(together),)))
            together = []
        together += own
    if together:
        groups.append(MergeGroup((tuple(together),)))
    return tuple(groups)


def merge_rounds(tasks: Sequence[MergeTask], *, max_rows: int = _ROWS_OF_A_ROUND) -> tuple[MergeGroup, ...]:
    """Put the next run of every shard together, for merges that many tasks do: each of one is a task.

    Parameters
    ----------
    tasks : sequence of MergeTask
        By shard and ascending generation.
    max_rows : int, default 16,000,000
        Rows that are merged in one commit, unless a single run has more: every task has all their keys in
        memory.
    """
    of_shards = [list(own) for _, own in groupby(tasks, key=lambda task: task.shard_id)]
    rounds: list[MergeGroup] = []
    for number in range(max(map(len, of_shards), default=0)):
        together: list[MergeTask] = []
        for task in (own[number] for own in of_shards if number < len(own)):
            if together and sum(one.rows for one in (*together, task)) > max_rows:
                rounds.append(MergeGroup((tuple(together),)))
                together = []
            together.append(task)
        rounds.append(MergeGroup((tuple(together),)))
    return tuple(rounds)


def _run_divided(group: MergeGroup) -> MergedGroup:
    """Run the merges of a group where this is called, divided into tasks on threads."""
    return run_merge_group(group, ThreadRunner())


def run_merge_group(
    group: MergeGroup,
    runner: Runner | None = None,
    *,
    base: BaseTable | None = None,
    planned: bool = False,
) -> MergedGroup:
    """Run the merges of a group in order, with pauses in between while this process reads and writes.

    Parameters
    ----------
    group : MergeGroup
        The group.
    runner : Runner, optional
        Executes the tasks that each merge is divided into. Default: none is divided.
    base : BaseTable, optional
        The table at any version, to save opening it.
    planned : bool, default False
        Whether the group was planned a moment ago from just that version.
    """
    results: list[MergeResult] = []
    worked = 0.0
    for number, step in enumerate(group.steps):
        step[0].store.engine.throttle.rest(worked)
        began = time.monotonic()
        merged = merge_runs(step, base=base, runner=runner, planned=planned and not number)
        worked = time.monotonic() - began
        # The session is not used further elsewhere.
        results.append(merged if base is not None else replace(merged, base=None))
        if not merged.was_already_merged:
            metrics = step[0].store.engine.metrics
            metrics.merges.add()
            metrics.merge_seconds.record(worked)
            metrics.merged_generations.add(sum(len(task.generations) for task in step))
    return MergedGroup(group, tuple(result for result in results if not result.was_already_merged))


def _merged(
    base: BaseTable, groups: Sequence[MergeGroup], runner: Runner, *, divided: bool, spread: bool
) -> Iterator[MergedGroup]:
    elsewhere = _run_divided if divided else run_merge_group
    for number, group in enumerate(groups):
        # What comes first begins with the version that all was planned from.
        run = partial(run_merge_group, base=base, planned=not number)
        if divided and spread:
            yield run(group, runner)
        else:
            # Elsewhere the version would be opened, only to look for a newer one.
            yield from runner.run(elsewhere if is_distributed(runner) else run, (group,))


def _index_and_publish(
    base: BaseTable,
    before: IndexDetails,
    manifests: Sequence[ShardManifest],
    early: Sequence[EarlySegment],
) -> int:
    """Update the key index and publish the shards, as one version if there is no concurrent commit.

    Parameters
    ----------
    base : BaseTable
        The newest version, with the merged rows.
    before : IndexDetails
        What was stored before they were merged.
    manifests : sequence of ShardManifest
        The shards.
    early : sequence of EarlySegment
        What was built of the key indexes before their rows were committed.
    """
    types = field_types(base.details.shard_specs)
    wave = Wave()
    at_once = not may_have_dropped_fields(base, before) and not has_unknown_fields(base.details)
    segments = build_missing_segments(base, usable_segments(base, early)) if at_once else None
    used = set() if segments is None else set(segments.files)
    in_vain = [path for one in early for path in one.files if path not in used]
    if in_vain:
        try:
            base.store.delete(in_vain)
        except WeirError as error:
            # The library's cleanup deletes it some day.
            _log.warning("merge.left_behind", where=base.uri, files=len(in_vain), error=str(error))
    if segments is not None:
        with suppress(ConflictError):
            short = wave.was_short()
            return commit_shards(base, manifests, types, segments=segments, is_newest=short)[1]
        base.store.delete(segments.files)
    after = restore_unknown_fields(extend_key_index(base), before)
    return commit_shards(after, manifests, types)[1]


def merge_generations(
    base: BaseTable,
    manifests: Sequence[ShardManifest],
    runner: Runner,
    *,
    policy: MergePolicy = ALWAYS,
    in_conflict: Collection[UUID] = (),
    on_progress: Callable[[int, int], None] | None = None,
    divided: bool | None = None,
    max_task_bytes: int = DEFAULT_MAX_TASK_BYTES,
) -> MergeReport:
    """Merge every flushed generation that the base table does not contain yet.

    Afterwards the key index covers the merged rows and the MemWAL index publishes the shards' state.

    Parameters
    ----------
    base : BaseTable
        The base table.
    manifests : sequence of ShardManifest
        The newest manifest of every shard.
    runner : Runner
        Executes one task at a time, for as many shards as are merged in one commit.
    policy : MergePolicy
        Says whether to merge them now. Default: always.
    in_conflict : collection of UUID
        Shards with versions of the same keys whose order is unknown: they are left alone.
    on_progress : callable, optional
        Called with (shards done, shards in all).
    divided : bool, optional
        Whether each merge is divided into tasks that the runner executes in parallel
        (:mod:`weir.merge.waves`), where that is possible. Default: where it pays
        (:func:`~weir.merge.commit.pays_to_divide`).
    max_task_bytes : int, default 256 MiB
        As for :func:`~weir.merge.plan.plan_merge`.

    Raises
    ------
    ConflictError
        If concurrent commits did not settle.
    CorruptionError
        If a generation is missing or unreadable.
    """
    clear = [manifest for manifest in manifests if manifest.shard_id not in in_conflict]
    if in_conflict:
        _log.warning("table.shards_in_conflict", where=base.uri, shards=sorted(map(str, in_conflict)))
    tasks = plan_merge(base.store, base.details, clear, max_task_bytes=max_task_bytes)
    base_rows = base.dataset.count_rows()
    is_due = policy.is_due(tasks, base_rows=base_rows)
    rows = sum(task.rows for task in tasks)
    spread = True
    if divided is None:
        are_new = partial(have_new_keys, base, tasks)
        pays = partial(pays_to_divide, base, rows, base_rows, are_new=are_new)
        # A job for each wave takes longer than a small merge does: that is one task, which divides itself.
        spread = not is_distributed(runner) or has_work_for_many(rows, base_rows)
        divided = is_due and pays(is_distributed=is_distributed(runner))
    divided = divided and is_due and can_be_divided(base)
    groups = (merge_rounds(tasks) if divided else group_merges(tasks)) if is_due else ()
    total = sum(group.shards for group in groups)
    if groups:
        # While the versions that show when its columns were added still exist.
        base = mark_columns(base)
    # Also where a merge has died between its commit and the end.
    base = note_unknown_fields(base)
    applied: list[MergeResult] = []
    last: BaseTable | None = None
    done = shards = 0
    for merged in _merged(base, groups, runner, divided=divided, spread=spread):
        applied += merged.applied
        last = merged.applied[-1].base if merged.applied else None
        shards += max((result.shards for result in merged.applied), default=0)
        for _ in range(merged.group.shards):
            done += 1
            if on_progress is not None:
                on_progress(done, total)
    # Where others have committed since, that is found out when the index and the shards are published.
    after = last or base.latest()
    # Also if others were faster: that may be an earlier run of a task whose result was lost, or a process
    # that died after its commit. While the index lags, merged generations are not collected.
    if groups or is_left_behind(after) or is_behind_merges(after):
        early = [segment for result in applied for segment in result.segments]
        version = _index_and_publish(after, base.details, manifests, early)
    else:
        version = restore_unknown_fields(after, base.details).version
    report = MergeReport(
        shards=shards,
        generations=sum(len(result.generations) for result in applied),
        rows_upserted=sum(result.rows_upserted for result in applied),
        rows_deleted=sum(result.rows_deleted for result in applied),
        version=version,
        rows_left=0 if is_due else rows,
        in_conflict=tuple(sorted(in_conflict)),
    )
    _log.info(
        "table.merged",
        generations=report.generations,
        rows_upserted=report.rows_upserted,
        rows_deleted=report.rows_deleted,
        version=report.version,
    )
    return report

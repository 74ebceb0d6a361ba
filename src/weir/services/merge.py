"""Merging flushed generations into the base table: plan on one machine, one task per run of a shard.

Lance MemWAL spec, "MemTable Merger". Each task commits its own data and progress together
(invariant I7), so there is nothing left to commit at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from uuid import UUID

from weir.base.details_commit import note_unknown_fields, restore_unknown_fields
from weir.base.key_index import extend_key_index
from weir.base.merge import MergeResult, merge_run
from weir.base.merge_plan import MergeTask, plan_merge
from weir.base.published import is_left_behind, publish_shards
from weir.base.table import BaseTable
from weir.format.shard_manifest import ShardManifest
from weir.logs import get_logger
from weir.services.runner import Runner
from weir.sharding.shard_values import field_types
from weir.throttle import background

__all__ = ["MergeReport", "ShardMerge", "merge_generations"]

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ShardMerge:
    """All tasks of one shard, in ascending order of generation.

    Parameters
    ----------
    shard_id : UUID
        The shard.
    tasks : tuple of MergeTask
        To be run one after the other.
    """

    shard_id: UUID
    tasks: tuple[MergeTask, ...]


@dataclass(frozen=True, slots=True)
class MergeReport:
    """What a merge did.

    What others have merged meanwhile is not counted, nor what a task had merged that was lost before it
    could tell, and was run again (:class:`weir.spark.SparkRunner`).

    Parameters
    ----------
    shards, generations : int
        Shards and generations that were merged by this call.
    rows_upserted, rows_deleted : int
        Rows written to the base table and keys deleted from it.
    version : int
        Version of the base table afterwards.
    """

    shards: int
    generations: int
    rows_upserted: int
    rows_deleted: int
    version: int


def run_shard_merge(merge: ShardMerge) -> tuple[MergeResult, ...]:
    """Run the tasks of one shard in order, with rests in between while reads and writes go on here."""
    results: list[MergeResult] = []
    worked = 0.0
    for task in merge.tasks:
        background.rest(worked)
        began = time.monotonic()
        results.append(merge_run(task))
        worked = time.monotonic() - began
    return tuple(results)


def merge_generations(
    base: BaseTable,
    manifests: Sequence[ShardManifest],
    runner: Runner,
    *,
    on_progress: Callable[[int, int], None] | None = None,
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
        Executes one task per shard.
    on_progress : callable, optional
        Called with (shards done, shards in all).

    Raises
    ------
    ConflictError
        If concurrent commits did not settle.
    CorruptionError
        If a generation is missing or unreadable.
    """
    merges = [
        ShardMerge(shard_id, tuple(tasks))
        for shard_id, tasks in groupby(
            plan_merge(base.store, base.details, manifests), key=lambda task: task.shard_id
        )
    ]
    # Also where a merge has died between its commit and the end.
    base = note_unknown_fields(base)
    applied: list[MergeResult] = []
    shards = 0
    for done, results in enumerate(runner.run(run_shard_merge, merges), start=1):
        own = [result for result in results if not result.was_already_merged]
        applied += own
        shards += bool(own)
        if on_progress is not None:
            on_progress(done, len(merges))
    after = base.latest()
    # Also if others were faster: they may be an earlier run of a task, of which nobody has heard again.
    changed = bool(merges) or is_left_behind(after)
    if changed:
        after = extend_key_index(after)
    after = restore_unknown_fields(after, base.details)
    if changed:
        after = publish_shards(after, manifests, field_types(after.details.shard_specs))
    report = MergeReport(
        shards=shards,
        generations=sum(len(result.generations) for result in applied),
        rows_upserted=sum(result.rows_upserted for result in applied),
        rows_deleted=sum(result.rows_deleted for result in applied),
        version=after.version,
    )
    _log.info(
        "table.merged",
        generations=report.generations,
        rows_upserted=report.rows_upserted,
        rows_deleted=report.rows_deleted,
        version=report.version,
    )
    return report

"""The result of a merge, and what remains of its tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from weir.base.early_segments import EarlySegment
from weir.base.merge_guard import deletes_id, half_merged
from weir.base.table import BaseTable
from weir.errors import ConflictError
from weir.merge.plan import MergeTask
from weir.merge.rows import Run

__all__ = ["MergeResult", "named", "unmerged_runs"]


@dataclass(frozen=True, slots=True)
class MergeResult:
    """What a merge did.

    Parameters
    ----------
    rows_upserted : int
        Rows inserted or replaced.
    rows_deleted : int
        Rows of the base table deleted. A tombstone whose key the base table lacks counts nothing.
    generations : tuple of int
        The generations this merge merged, ascending per shard; empty if other merges had merged all of them.
    version : int
        The version of the base table that contains the whole task.
    was_already_merged : bool
        Whether others had merged all of it, so that nothing was done.
    shards : int, default 0
        How many shards it took generations of.
    base : BaseTable, optional
        That version, where who has committed it need not look for it.
    segments : tuple of EarlySegment, default ()
        Segments of the key indexes over its new fragments, which no version has yet.
    """

    rows_upserted: int
    rows_deleted: int
    generations: tuple[int, ...]
    version: int
    was_already_merged: bool
    shards: int = 0
    base: BaseTable | None = field(default=None, repr=False, compare=False)
    segments: tuple[EarlySegment, ...] = field(default=(), repr=False, compare=False)


def unmerged_runs(tasks: Sequence[MergeTask], merged: Mapping[UUID, int], base: BaseTable) -> list[Run]:
    """Return what of each task is not merged yet.

    Parameters
    ----------
    tasks : sequence of MergeTask
        The tasks.
    merged : mapping of UUID to int
        The last merged generation of each shard in ``base``.
    base : BaseTable
        The version to merge into.

    Raises
    ------
    ConflictError
        A task cannot be merged into that version: it has to be planned anew.
    """
    todo: list[Run] = []
    deleted = {} if base.merge_engine is None else half_merged(base.details.merged_generations)
    for task in tasks:
        up_to = merged[task.shard_id]
        if up_to < task.after_generation:
            raise ConflictError(
                f"shard {task.shard_id} is merged up to generation {up_to}, and this task starts after "
                f"{task.after_generation}: a backup was restored in place of the table, or the merge tasks "
                "of the shard are not run in order",
                where=base.uri,
                hint="Plan the merge again, and run the tasks of a shard in order",
            )
        left = tuple(one for one in task.generations if one.generation > up_to)
        if left:
            deleted_up_to = deleted.get(deletes_id(task.shard_id), 0)
            if deleted_up_to > task.last_generation:
                raise ConflictError(
                    f"another merge has deleted what generations up to {deleted_up_to} of shard "
                    f"{task.shard_id} delete, and this task ends with {task.last_generation}: it would "
                    "combine versions of a key without the row that was there",
                    where=base.uri,
                    hint="Plan the merge again: these generations then stay together",
                )
            todo.append((task, left))
    return todo


def named(tasks: Sequence[MergeTask]) -> str:
    """Return what tasks are called in messages."""
    return f"shard {tasks[0].shard_id}" if len(tasks) == 1 else f"{len(tasks)} shards"

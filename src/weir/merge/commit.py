"""Merging runs of generations, of one shard or of several, into the base table, exactly once.

Lance MemWAL spec, section "MemTable Merger" and Appendix 2. The rows and the merge progress of the shard are
one commit, so a merge either happened or did not, and a repeated merge finds out from the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weir.base.row_commit import fragment_sizes, rows_can_be_committed
from weir.base.table import BaseTable
from weir.engine.runner import Runner
from weir.format.plain_keys import is_number
from weir.merge.append import append_runs
from weir.merge.merge_insert import merge_by_library
from weir.merge.new_rows import ROWS_PER_NEW_FRAGMENT
from weir.merge.plan import MergeTask
from weir.merge.replaced_rows import ROWS_PER_LOOK, searched_index
from weir.merge.result import MergeResult
from weir.merge.waves import merge_in_waves

__all__ = ["MergeResult", "can_be_divided", "has_work_for_many", "merge_runs", "pays_to_divide"]

_ROWS_TO_DIVIDE = 1_000
_BASE_ROWS_PER_ROW = 4
_BASE_ROWS_PER_TEXT = 50
"""Keys that are no single integers underneath are compared byte by byte, which costs many times as much."""


def merge_runs(
    tasks: Sequence[MergeTask],
    *,
    base: BaseTable | None = None,
    runner: Runner | None = None,
    planned: bool = False,
) -> MergeResult:
    """Merge the generations of tasks into the base table and record that they are merged.

    Safe to call again after any failure, and at the same time from several processes: the generations are
    merged once (invariant I7). Merges of different shards, compaction and index builds may run concurrently.

    Parameters
    ----------
    tasks : sequence of MergeTask
        The runs (:func:`~weir.merge.plan.plan_merge`), at least one, each of another shard.
    base : BaseTable, optional
        The table at any version, to save opening it.
    runner : Runner, optional
        Executes the tasks that the merge is divided into, where it can be (:func:`can_be_divided`).
        Default: it is not divided.
    planned : bool, default False
        Whether the tasks were just planned from that very version of the table, so that the first attempt can
        rely on it.

    Returns
    -------
    MergeResult
        What was done. A race lost to another merge of the same generations is no error.

    Raises
    ------
    ConflictError
        The generations before a run are not merged yet, or concurrent commits got in the way of
        every attempt.
    CorruptionError
        A generation is missing or unreadable. The table is unchanged.
    """
    if base is None:
        base, planned = BaseTable.open(tasks[0].store), True
    if base.append_only is not None:
        return append_runs(tasks, base)
    if runner is not None and can_be_divided(base):
        return merge_in_waves(tasks, base, runner)
    return merge_by_library(tasks, base, is_newest=planned)


def can_be_divided(base: BaseTable) -> bool:
    """Whether many tasks can merge into the table together; otherwise the library does it in one process.

    The library has to do what Weir knows of it, rows have to be where their addresses are, and to have keys.
    """
    plain = base.append_only is None and not base.dataset.has_stable_row_ids
    return plain and rows_can_be_committed()


def has_work_for_many(rows: int, base_rows: int) -> bool:
    """Whether a merge of some rows has tasks for several machines.

    Parameters
    ----------
    rows : int
        Rows to merge.
    base_rows : int
        Rows of the base table.
    """
    return rows >= ROWS_PER_NEW_FRAGMENT or base_rows >= 2 * ROWS_PER_LOOK


def pays_to_divide(
    base: BaseTable,
    rows: int,
    base_rows: int,
    *,
    is_distributed: bool = False,
    are_new: Callable[[], bool] = lambda: False,
) -> bool:
    """Whether tasks merge some rows at least as fast as the library does.

    They are if they find the rows to replace through the key index alone, and there are enough rows to make
    up for the cost of planning and committing. Without an index both ways read all keys, and the library is
    faster; if most of the table is replaced, the library reads and writes in one pass, unless nothing is
    replaced, in which case tasks need not hold the rows in memory. Separate machines are faster as soon as
    there is work for several of them.

    Parameters
    ----------
    base : BaseTable
        The table.
    rows : int
        Rows to merge.
    base_rows : int
        Rows of the base table.
    is_distributed : bool, default False
        Whether the tasks run on separate machines.
    are_new : callable, optional
        Returns whether the base table has none of the rows' keys, as far as bounds show. Called only for many
        rows. Default: it may have.
    """
    if rows < _ROWS_TO_DIVIDE or not can_be_divided(base):
        return False
    if is_distributed and has_work_for_many(rows, base_rows):
        return True
    index = searched_index(base, rows)
    if index is None:
        return False
    kind = base.schema.field(index.column).type
    is_one_number = len(base.primary_key) == 1 and is_number(kind)
    least = _BASE_ROWS_PER_ROW if is_one_number else _BASE_ROWS_PER_TEXT
    if rows * least > base_rows:
        return rows >= ROWS_PER_NEW_FRAGMENT and not index.lacking and are_new()
    unindexed = sum(size for number, size in fragment_sizes(base.dataset).items() if number in index.lacking)
    return unindexed * _BASE_ROWS_PER_ROW <= base_rows

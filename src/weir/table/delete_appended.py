"""Deletes by filter from an append-only table.

Rows without a key cannot be named in the log. So the log is flushed and merged first, and then one commit
removes the rows from the base table. Rows added meanwhile stay.
"""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

import lance

from weir.base.library_commit import commit_with_library
from weir.base.library_errors import LIBRARY_ERRORS
from weir.base.table import BaseTable
from weir.engine.runner import ThreadRunner
from weir.errors import FilterError, LeaseHeldError
from weir.lsm.filters import check_filter, is_of_a_filter, reason
from weir.lsm.fitted_filter import fitted_filter
from weir.maintenance.expire import expire_rows
from weir.maintenance.recover import recover_shards
from weir.merge.service import merge_generations
from weir.snapshots.snapshot import ReadSnapshot
from weir.table.reader import TableReader

__all__ = ["delete_appended"]


def delete_appended(
    reader: TableReader, where: str, limit: int | None, held: Collection[UUID]
) -> tuple[int, int]:
    """Delete the rows that match a filter; return how many were deleted, and how many matching rows are left.

    Parameters
    ----------
    reader : TableReader
        The table.
    where : str
        The filter.
    limit : int or None
        The most rows to delete.
    held : collection of UUID
        The shards that this process writes and has flushed.

    Raises
    ------
    FilterError
        If the filter cannot be used. Nothing was deleted.
    LeaseHeldError
        If matching rows wait for a flush by a writer of another process. Nothing was deleted.
    """
    check_filter(reader.base.schema, where)
    where = fitted_filter(where, reader.base.schema)
    snapshot = reader.take_newest()
    store = snapshot.base.store
    waiting = [view for view in snapshot.shards if view.tail_rows and view.shard_id not in held]
    if waiting:
        recover_shards(store, waiting, ThreadRunner())
        snapshot = reader.take_newest()
    merge_generations(snapshot.base, [view.manifest for view in snapshot.shards], ThreadRunner())
    _refuse_unmerged(reader.take_newest().shown_to(where), where, held)
    # A row that no read shows is none of those to delete, and the filter may fail on it.
    expire_rows(reader.base)
    deleted = remaining = 0

    def delete(base: BaseTable, dataset: lance.LanceDataset) -> None:
        nonlocal deleted, remaining
        try:
            deleted, remaining = _delete(dataset, where, limit)
        except LIBRARY_ERRORS as error:
            if not is_of_a_filter(error):
                raise
            raise FilterError(
                f"the filter {where!r} cannot be evaluated on every row: {reason(error)}", where="filter"
            ) from error

    reader.follow(commit_with_library(reader.base, delete, doing="deleting by filter"))
    return deleted, remaining


def _delete(dataset: lance.LanceDataset, where: str, limit: int | None) -> tuple[int, int]:
    if limit is None:
        return int(dataset.delete(where)["num_deleted_rows"]), 0
    found = (
        dataset.scanner(columns=[], filter=where, with_row_id=True).to_table().column("_rowid").to_pylist()
    )
    chosen = found[:limit]
    if chosen:
        # The library would make it again where a compaction has moved the rows, and find none of them.
        dataset.delete(f"_rowid IN ({','.join(map(str, chosen))})", conflict_retries=0)
    return len(chosen), len(found) - len(chosen)


def _refuse_unmerged(snapshot: ReadSnapshot, where: str, held: Collection[UUID]) -> None:
    condition = snapshot.live_filter(where)
    for view in snapshot.shards:
        if view.shard_id in held:
            continue  # any rows there now were added after the call began
        levels = snapshot.shard_levels(view).levels
        if any(level.matching(condition).any() for level in levels):
            raise LeaseHeldError(
                f"rows that match are in the log of shard {view.shard_id}, and another writer has its lease",
                where=snapshot.base.uri,
                hint="Delete them through that writer, or after it has flushed",
            )

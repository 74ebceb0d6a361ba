"""Compaction of the base table: fewer, larger fragments without deleted rows.

The library plans which fragments to rewrite, each task writes new ones wherever the runner executes it, and
the planning process commits. Indexes are remapped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile

import lance
from lance.optimize import Compaction, CompactionOptions, CompactionTask, RewriteResult

from weir.base.file_checksums import fragment_files, refuse_damaged
from weir.base.index_files import refuse_damaged_indexes
from weir.base.index_list import existing_indexes
from weir.base.index_upkeep import RebuildTask, rebuild_of, record_catchup, unite_segments
from weir.base.library_commit import commit_with_library
from weir.base.library_errors import LIBRARY_ERRORS, storage_failure
from weir.base.maintained_indexes import maintained_indexes
from weir.base.table import BaseTable
from weir.config import DEFAULT_ROWS_PER_FRAGMENT
from weir.engine.logs import get_logger
from weir.engine.runner import Runner
from weir.errors import ConflictError, OptionError, StorageError, TableError
from weir.indexing.describe import ExistingIndex
from weir.maintenance.sorted_compaction import compact_sorted
from weir.notebook import ShownAsTable
from weir.storage.interface import ObjectStore

__all__ = ["CompactReport", "CompactTask", "compact", "rewrite"]

_log = get_logger(__name__)

_DEFAULT_MAX_DELETED = 0.1
_LARGE_SHARE = 0.5
"""Share of the target rows at which a fragment is large enough not to be rewritten."""


@dataclass(frozen=True, slots=True)
class CompactTask:
    """Rewrite some fragments of the base table into new ones. Picklable, stateless.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    version : int
        The version of the base table to read.
    task : CompactionTask
        What to rewrite, as the library has planned it.
    """

    store: ObjectStore
    version: int
    task: CompactionTask


@dataclass(frozen=True, slots=True)
class CompactReport(ShownAsTable):
    """What a compaction did.

    Parameters
    ----------
    fragments_removed, fragments_added : int
        Fragments that were rewritten, and their replacements.
    tasks, tasks_lost : int
        Rewrites that were planned, and those that were discarded because a merge had changed their fragments
        meanwhile; the next compaction plans them again.
    version : int
        Version of the base table afterwards.
    """

    fragments_removed: int
    fragments_added: int
    tasks: int
    tasks_lost: int
    version: int


def rewrite(task: CompactTask) -> RewriteResult:
    """Write the new fragments of one task; nothing references them yet.

    Raises
    ------
    SnapshotExpiredError
        If the version has been cleaned up.
    CorruptionError
        A file to be rewritten is damaged, as far as checksums show.
    StorageError
        If the library fails.
    """
    base = BaseTable.open(task.store, version=task.version)
    base.refuse_damaged_deletions()
    refuse_damaged(task.store, fragment_files(task.task.fragments), doing="compaction")
    try:
        return task.task.execute(base.dataset)
    except LIBRARY_ERRORS as error:
        raise storage_failure(error, "rewriting fragments", where=base.uri) from error


def compact(
    base: BaseTable,
    runner: Runner,
    *,
    rows_per_fragment: int = DEFAULT_ROWS_PER_FRAGMENT,
    max_deleted: float = _DEFAULT_MAX_DELETED,
    on_progress: Callable[[int, int], None] | None = None,
) -> CompactReport:
    """Rewrite small fragments, and those with many deleted rows, into large ones without deleted rows.

    Safe to run concurrently with writers, readers, merges and other compactions: if two change the same
    fragments, the first to commit wins, and a compaction that loses has only wasted its own work.

    Parameters
    ----------
    base : BaseTable
        The base table.
    runner : Runner
        Writes the new fragments.
    rows_per_fragment : int, default 1,048,576
        Target rows per fragment; a fragment with half as many is left as it is.
    max_deleted : float, default 0.1
        Share of a fragment's rows that may be deleted before it is rewritten, from 0 to 1.
    on_progress : callable, optional
        Called with (rewrites done, rewrites in all).

    Raises
    ------
    OptionError
        If an option is out of range.
    TableError
        The table was branched or cloned, and its source has an index of a kind that Weir does not build.
    CorruptionError
        A data or index file is damaged, as far as checksums show.
    """
    if not isinstance(rows_per_fragment, int) or isinstance(rows_per_fragment, bool) or rows_per_fragment < 1:
        raise OptionError(
            f"rows_per_fragment must be a whole number of at least 1, got {rows_per_fragment!r}",
            where="rows_per_fragment",
        )
    if not 0 <= max_deleted <= 1:
        raise OptionError(f"max_deleted must be from 0 to 1, got {max_deleted!r}", where="max_deleted")
    if base.sort_by:
        return _compact_sorted(base.latest(), runner, rows_per_fragment, max_deleted, on_progress)
    base = _with_own_segments(_with_common_segments(base.latest(), rows_per_fragment))
    options = CompactionOptions(
        target_rows_per_fragment=rows_per_fragment,
        materialize_deletions_threshold=max_deleted,
        excluded_fragment_ids=_left_alone(base, rows_per_fragment, max_deleted),
    )
    try:
        planned = Compaction.plan(base.dataset, options).tasks
    except LIBRARY_ERRORS as error:
        raise storage_failure(error, "planning a compaction", where=base.uri) from error
    if planned:
        # The library rewrites them for the rows' new addresses.
        refuse_damaged_indexes(base, doing="compaction")
    tasks = [CompactTask(base.store, base.version, task) for task in planned]
    results: list[RewriteResult] = []
    for result in runner.run(rewrite, tasks):
        results.append(result)
        if on_progress is not None:
            on_progress(len(results), len(tasks))
    after, committed = _commit(base, results, options)
    if committed:
        # The library forgets how far indexes are when it moves them along.
        after = record_catchup(after, maintained_indexes(after))
    report = CompactReport(
        fragments_removed=sum(one.metrics.fragments_removed for one in committed),
        fragments_added=sum(one.metrics.fragments_added for one in committed),
        tasks=len(tasks),
        tasks_lost=len(results) - len(committed),
        version=after.version,
    )
    return _told(report)


def _compact_sorted(
    base: BaseTable,
    runner: Runner,
    rows_per_fragment: int,
    max_deleted: float,
    on_progress: Callable[[int, int], None] | None,
) -> CompactReport:
    after, committed, tasks = compact_sorted(
        base,
        runner,
        rows_per_fragment=rows_per_fragment,
        max_deleted=max_deleted,
        on_progress=on_progress,
    )
    return _told(
        CompactReport(
            fragments_removed=sum(len(one.task.fragments) for one in committed),
            fragments_added=sum(len(one.written) for one in committed),
            tasks=tasks,
            tasks_lost=tasks - len(committed),
            version=after.version,
        )
    )


def _told(report: CompactReport) -> CompactReport:
    _log.info(
        "table.compacted",
        fragments_removed=report.fragments_removed,
        fragments_added=report.fragments_added,
        version=report.version,
    )
    return report


def _left_alone(base: BaseTable, rows_per_fragment: int, max_deleted: float) -> list[int]:
    """Return the fragments that are large enough and have few deleted rows."""
    return [
        one.fragment_id
        for one in base.dataset.get_fragments()
        if _is_large(one.count_rows(), rows_per_fragment)
        and one.num_deletions <= max_deleted * one.physical_rows
    ]


def _is_large(rows: int, rows_per_fragment: int) -> bool:
    return rows >= _LARGE_SHARE * rows_per_fragment


def _with_common_segments(base: BaseTable, rows_per_fragment: int) -> BaseTable:
    """Make each index cover small fragments with a single segment.

    The library combines only fragments that the same segments cover, and every merge leaves a fragment with
    its own segment.
    """
    rows = {one.fragment_id: one.count_rows() for one in base.dataset.get_fragments()}
    small = {one for one, count in rows.items() if not _is_large(count, rows_per_fragment)}
    if len(small) < 2:
        return base
    for index in existing_indexes(base.dataset, base.engine.cache):
        newest = takewhile(lambda segment: segment.fragment_ids & rows.keys() <= small, index.segments[::-1])
        count = sum(1 for _ in newest)
        if count > 1:
            try:
                base = unite_segments(base, index.name, count)
            except StorageError as error:
                # Its fragments stay apart; those that it does not keep apart are combined.
                _log.warning("table.index_not_caught_up", table=base.uri, index=index.name, error=str(error))
    return base


def _with_own_segments(base: BaseTable) -> BaseTable:
    """Rewrite indexes of a branch or a shallow clone whose files belong to its source.

    The library writes remapped index files below this table but keeps looking for them below the source,
    which would make every query that uses the index fail.
    """
    for index in _borrowed(base):
        base = unite_segments(base, index.name, len(index.segments))
    # An index of one segment that covers everything is not united with anything.
    for index in _borrowed(base):
        if index.definition is None:
            raise TableError(
                f"the index {index.name!r} lies below the table that this one was branched or cloned from, "
                f"and Weir cannot build its kind ({index.library_kind})",
                where=base.uri,
                hint="Rebuild it with the library, or drop it, and compact again",
            )
        rebuild_of(RebuildTask.of(base, index))
    return base.latest()


def _borrowed(base: BaseTable) -> list[ExistingIndex]:
    indexes = existing_indexes(base.dataset, base.engine.cache) if base.dataset.base_paths() else ()
    return [one for one in indexes if any(segment.is_borrowed for segment in one.segments)]


def _commit(
    base: BaseTable, results: list[RewriteResult], options: CompactionOptions
) -> tuple[BaseTable, list[RewriteResult]]:
    """Commit rewrites, all together if there is no conflict, otherwise one by one."""
    if not results:
        return base.latest(), []

    def committing(chosen: list[RewriteResult]) -> Callable[[BaseTable, lance.LanceDataset], None]:
        def commit(_: BaseTable, dataset: lance.LanceDataset) -> None:
            Compaction.commit(dataset, chosen, options)

        return commit

    try:
        return commit_with_library(base, committing(results), doing="compaction", attempts=2), results
    except ConflictError:
        base.refuse_restored(base.latest())
        committed = []
        for result in results:
            try:
                base = commit_with_library(base, committing([result]), doing="compaction", attempts=2)
            except ConflictError:
                continue
            committed.append(result)
        return base.latest(), committed

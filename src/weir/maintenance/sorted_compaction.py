"""Compaction of a sorted table: fewer, larger fragments, each of which is sorted.

The library's own compaction concatenates rows and would lose their order. Here neighbouring small fragments,
and those with many deleted rows, are read together, sorted and rewritten; one commit replaces them. Indexes
cover the new fragments after the next catch-up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import lance
import pyarrow as pa
from lance.dataset import LanceOperation
from lance.fragment import FragmentMetadata

from weir.base.dataset import library_options
from weir.base.durability import sync_objects
from weir.base.file_checksums import fragment_files, refuse_damaged
from weir.base.library_commit import commit_with_library
from weir.base.library_errors import LIBRARY_ERRORS, storage_failure
from weir.base.row_commit import append_fragments
from weir.base.table import BaseTable
from weir.engine.runner import Runner
from weir.errors import ConflictError
from weir.format.sorted_rows import sorted_rows
from weir.storage.interface import ObjectStore

__all__ = ["SortTask", "SortedFragments", "compact_sorted", "plan_sorted", "sort_fragments"]

_MAX_BYTES = 512 * 1024 * 1024
"""Bytes of data files that one task reads, and sorts in memory, unless a single fragment has more."""


@dataclass(frozen=True, slots=True)
class SortTask:
    """Rewrite some fragments of the base table as a sorted one. Picklable and stateless.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    version : int
        The version of the base table to read.
    fragments : tuple of int
        Their ids.
    """

    store: ObjectStore
    version: int
    fragments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SortedFragments:
    """What came of a task.

    Parameters
    ----------
    task : SortTask
        The task.
    written : tuple of FragmentMetadata
        The new fragments, to which nothing refers yet.
    """

    task: SortTask
    written: tuple[FragmentMetadata, ...]


def plan_sorted(base: BaseTable, *, rows_per_fragment: int, max_deleted: float) -> list[SortTask]:
    """Return the groups of fragments to rewrite together.

    Parameters
    ----------
    rows_per_fragment : int
        Rows to make fragments of.
    max_deleted : float
        Share of a fragment's rows that may be deleted.
    """
    groups: list[list[lance.LanceFragment]] = []
    rows = nbytes = 0
    open_group = False
    for fragment in base.dataset.get_fragments():
        live, own = fragment.count_rows(), _nbytes(fragment)
        if live >= rows_per_fragment and not _is_worn(fragment, max_deleted):
            open_group = False
            continue
        if not open_group or rows + live > rows_per_fragment or nbytes + own > _MAX_BYTES:
            groups.append([])
            rows = nbytes = 0
        groups[-1].append(fragment)
        open_group = True
        rows, nbytes = rows + live, nbytes + own
    return [
        SortTask(base.store, base.version, tuple(one.fragment_id for one in group))
        for group in groups
        if len(group) > 1 or _is_worn(group[0], max_deleted)
    ]


def _is_worn(fragment: lance.LanceFragment, max_deleted: float) -> bool:
    deleted = fragment.num_deletions
    return bool(deleted and deleted > max_deleted * (fragment.count_rows() + deleted))


def _nbytes(fragment: lance.LanceFragment) -> int:
    return sum(file.file_size_bytes or 0 for file in fragment.metadata.files)


def sort_fragments(task: SortTask) -> SortedFragments:
    """Rewrite the fragments of one task; the new ones are unreferenced until the commit.

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
    found = (base.dataset.get_fragment(number) for number in task.fragments)
    chosen = [fragment for fragment in found if fragment is not None]
    refuse_damaged(task.store, fragment_files(one.metadata for one in chosen), doing="compaction")
    try:
        rows: pa.Table = base.dataset.scanner(fragments=chosen, scan_in_order=True).to_table()
        written: Sequence[FragmentMetadata] = ()
        if rows.num_rows:
            written = append_fragments(
                lambda: sorted_rows(rows, base.sort_by),
                base.dataset,
                max_rows_per_file=max(rows.num_rows, 1),
                storage_options=library_options(base.store),
            )
    except LIBRARY_ERRORS as error:
        raise storage_failure(error, "rewriting fragments", where=base.uri) from error
    sync_objects(base.store, [f"data/{file.path}" for one in written for file in one.files])
    return SortedFragments(task, tuple(written))


def compact_sorted(
    base: BaseTable,
    runner: Runner,
    *,
    rows_per_fragment: int,
    max_deleted: float,
    on_progress: Callable[[int, int], None] | None = None,
) -> tuple[BaseTable, list[SortedFragments], int]:
    """Compact a sorted table; see :func:`weir.maintenance.compact.compact`.

    Returns
    -------
    base : BaseTable
        The newest version of the table.
    committed : list of SortedFragments
        What was replaced.
    tasks : int
        How many rewrites were planned.
    """
    tasks = plan_sorted(base, rows_per_fragment=rows_per_fragment, max_deleted=max_deleted)
    committed: list[SortedFragments] = []
    for done, result in enumerate(runner.run(sort_fragments, tasks), 1):
        try:
            base = commit_with_library(base, _replacing(result), doing="compaction", attempts=2)
            committed.append(result)
        except ConflictError:
            planned, base = base, base.latest()
            planned.refuse_restored(base)
            if _is_committed(base, result):
                committed.append(result)
        if on_progress is not None:
            on_progress(done, len(tasks))
    return base.latest(), committed, len(tasks)


def _is_committed(base: BaseTable, result: SortedFragments) -> bool:
    """Whether an apparent conflict was our own commit, whose answer was lost.

    Otherwise the new fragments are deleted, if that is certain: nothing has taken the place of the old ones.
    Where others have, the library's cleanup deletes them some day.
    """
    written = {f"data/{file.path}" for one in result.written for file in one.files}
    there = base.dataset.get_fragments()
    if written.intersection(fragment_files(one.metadata for one in there)):
        return True
    if {one.fragment_id for one in there}.issuperset(result.task.fragments):
        base.store.delete(written)
    return False


def _replacing(result: SortedFragments) -> Callable[[BaseTable, lance.LanceDataset], None]:
    def commit(base: BaseTable, dataset: lance.LanceDataset) -> None:
        columns = [field.id() for field in dataset.lance_schema.fields()]
        operation = LanceOperation.Update(
            removed_fragment_ids=list(result.task.fragments),
            updated_fragments=[],
            new_fragments=list(result.written),
            fields_modified=[],
            fields_for_preserving_frag_bitmap=columns,
            update_mode="rewrite_rows",
        )
        lance.LanceDataset.commit(
            dataset, operation, read_version=result.task.version, storage_options=library_options(base.store)
        )

    return commit

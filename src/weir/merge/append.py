"""Merging an append-only table: fragments are appended, nothing is looked up.

The rows are written as unreferenced fragments. Fragments and marks then become one version, published with
one put-if-absent (:mod:`weir.base.publish`): the loser of a race checks the marks of the winner, and
publishes the same fragments again if they are still missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

import pyarrow as pa
from lance.dataset import LanceOperation
from lance.fragment import FragmentMetadata

from weir.base.dataset import library_options
from weir.base.details_commit import wait_for_turn
from weir.base.durability import sync_objects
from weir.base.library_errors import LIBRARY_ERRORS, storage_failure
from weir.base.merge_guard import guard_id
from weir.base.publish import publish_schema
from weir.base.row_commit import append_fragments
from weir.base.table import BaseTable
from weir.engine import failpoint
from weir.errors import ConflictError, CorruptionError, ObjectNotFoundError, WeirError
from weir.format.index_details import IndexDetails, MergedGeneration
from weir.format.sorted_rows import sorted_rows
from weir.format.wal_entry import TOMBSTONE
from weir.merge.copied_generations import copied_generation, is_large
from weir.merge.plan import MergeTask
from weir.merge.result import MergeResult, named, unmerged_runs
from weir.merge.rows import Run, open_generation, read_rows

__all__ = ["AppendedRows", "append_runs"]

_MAX_ATTEMPTS = 32


@dataclass(frozen=True, slots=True)
class AppendedRows:
    """Rows of generations, as fragments that nothing refers to yet. Made by :meth:`write`.

    Parameters
    ----------
    fragments : tuple of FragmentMetadata
        The fragments.
    num_rows : int
        Their rows.
    """

    fragments: tuple[FragmentMetadata, ...]
    num_rows: int

    @classmethod
    def write(cls, base: BaseTable, runs: Sequence[Run]) -> AppendedRows:
        """Write the rows of some runs, sorted if the table is. They are durable, and count for nothing yet.

        Parameters
        ----------
        base : BaseTable
            The table.
        runs : sequence of Run
            The runs, at least one.

        Raises
        ------
        CorruptionError
            A generation is missing or unreadable.
        StorageError
            The library failed.
        """
        fragments: list[FragmentMetadata] = []
        rows = 0
        for whole, some in _parted(base, runs):
            if whole is not None:
                fragments += (FragmentMetadata.from_json(text) for text in whole)
                rows += sum(one.physical_rows for _, run in some for one in run)
            else:
                written, count = _written(base, some)
                fragments += written
                rows += count
        sync_objects(base.store, [f"data/{file.path}" for one in fragments for file in one.files])
        return cls(tuple(fragments), rows)

    def publish(self, base: BaseTable, reached: Mapping[UUID, int], merged: Mapping[UUID, int]) -> int | None:
        """Publish the fragments with their merge progress, as one version.

        Parameters
        ----------
        base : BaseTable
            The newest version, with the progress that the runs were planned after.
        reached : mapping of UUID to int
            For each shard, the last generation of its run.
        merged : mapping of UUID to int
            For each shard, the last generation that was merged before.

        Returns
        -------
        int or None
            The version, or None if another commit came first.
        """
        try:
            manifest = base.manifest()
        except ObjectNotFoundError:
            return None
        failpoint.reach("merge.before_commit")
        details = _with_progress(base.details, reached, merged)
        version = publish_schema(base.store, manifest, details, [LanceOperation.Append(list(self.fragments))])
        if version is not None:
            failpoint.reach("merge.after_commit")
        return version

    def discard(self, base: BaseTable) -> None:
        """Delete the fragments, which nothing refers to."""
        base.store.delete([f"data/{file.path}" for one in self.fragments for file in one.files])


def append_runs(tasks: Sequence[MergeTask], base: BaseTable) -> MergeResult:
    """Append the generations of tasks to the base table and record that they are merged.

    As :func:`weir.merge.commit.merge_runs`, of a table whose rows are only added.

    Parameters
    ----------
    tasks : sequence of MergeTask
        The runs, at least one, each of another shard.
    base : BaseTable
        The table at any version.
    """
    written: AppendedRows | None = None
    written_after: dict[UUID, int] = {}
    written_for: pa.Schema | None = None
    for attempt in range(_MAX_ATTEMPTS):
        wait_for_turn(attempt)
        base = base.latest_to_change()
        merged = {task.shard_id: base.details.merged_generation(task.shard_id) for task in tasks}
        # A column that was widened meanwhile has its id, and the files have its values as they were.
        if written is not None and (written_after != merged or written_for != base.row_schema):
            written.discard(base)
            written = None
        todo = unmerged_runs(tasks, merged, base)
        if not todo:
            return MergeResult(0, 0, (), base.version, True)
        try:
            if written is None:
                written, written_after = AppendedRows.write(base, todo), merged
                written_for = base.row_schema
        except CorruptionError:
            # Nothing is corrupt if others have merged it, so long ago that it has been collected.
            details = base.latest().details
            if all(details.merged_generation(shard_id) == before for shard_id, before in merged.items()):
                raise
            continue
        reached = {task.shard_id: task.last_generation for task, _ in todo}
        version = written.publish(base, reached, merged)
        if version is not None:
            numbers = tuple(one.generation for _, left in todo for one in left)
            return MergeResult(written.num_rows, 0, numbers, version, False, shards=len(todo))
    raise ConflictError(
        f"concurrent commits got in the way of {_MAX_ATTEMPTS} attempts to merge {named(tasks)}",
        where=base.uri,
        hint="Merge it again, and run fewer services on the table at once",
    )


def _parted(base: BaseTable, runs: Sequence[Run]) -> Iterator[tuple[tuple[str, ...] | None, list[Run]]]:
    """Yield generations whose files were copied, with their fragments, and runs of others between them."""
    held: list[Run] = []
    for task, run in runs:
        for flushed in run:
            copied = None
            # Sorting applies across generations.
            if is_large(flushed) and not base.sort_by:
                copied = copied_generation(base, open_generation(task, flushed))
            if copied is None:
                held.append((task, (flushed,)))
                continue
            if held:
                yield None, held
                held = []
            yield copied, [(task, (flushed,))]
    if held:
        yield None, held


def _written(base: BaseTable, runs: Sequence[Run]) -> tuple[list[FragmentMetadata], int]:
    """Write rows as fragments, and return them with the number of rows."""
    schema = base.row_schema
    columns = schema.remove(schema.get_field_index(TOMBSTONE))
    rows, failure = 0, None

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal rows, failure
        try:
            for batch in base.engine.throttle.paced(read_rows(runs, columns)):
                rows += batch.num_rows
                yield batch
        except WeirError as error:
            # The library would pass on no more than its text.
            failure = error
            raise

    plain = base.schema
    left = batches()
    data = (
        sorted_rows(pa.Table.from_batches(list(left), schema=plain), base.sort_by) if base.sort_by else None
    )

    def rows_left() -> pa.Table | pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(plain, left) if data is None else data

    try:
        fragments = append_fragments(rows_left, base.dataset, storage_options=library_options(base.store))
    except LIBRARY_ERRORS as error:
        if failure is not None:
            raise failure from error
        raise storage_failure(error, "appending rows", where=base.uri) from error
    return (fragments if rows else []), rows


def _with_progress(
    details: IndexDetails, reached: Mapping[UUID, int], merged: Mapping[UUID, int]
) -> IndexDetails:
    marks = {one.shard_id: one.generation for one in details.merged_generations}
    for shard_id, last in reached.items():
        marks[shard_id] = last
        marks[guard_id(shard_id)] = merged[shard_id] + 1
    return replace(
        details,
        merged_generations=tuple(MergedGeneration(mark, number) for mark, number in marks.items()),
    )

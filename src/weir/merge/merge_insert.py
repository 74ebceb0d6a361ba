"""Merging runs of generations by the library's ``merge_insert``: one process, one shard or several.

Where tasks cannot do it together (:mod:`weir.merge.waves`).

Lance MemWAL spec, section "MemTable Merger" and Appendix 2. The rows and the merge progress of the shard are
one commit of the library's ``merge_insert``, so a merge either happened or did not, and a repeated merge
finds out from the table.

A run that has deletes as well as rows takes two commits, since one ``merge_insert`` cannot do both:

1. The deletes, marked only as such (:mod:`weir.base.merge_guard`). They are pinned: the library looks up
   the keys in the version whose merge progress was read, deletes exactly those physical rows, and fails
   if another commit has touched one of them. A row that a newer generation has put there since is
   another physical row. Where columns have changed by then, the merge starts over.
   After a crash here the run is still unmerged, and its tombstones hide the same keys anyway.
2. The rows, with the mark (:mod:`weir.base.merge_guard` says why the mark is two numbers). If the library
  refuses it, another process has merged in between and this merge has changed nothing.

A run with only deletes, or with nothing at all, is one commit with the mark.

Runs of several shards are merged like one. ``merge_insert`` reads all keys of the base table, which costs as
much for few rows as for many, and their marks can be in one commit.

Concurrent merges conflict, even those of different shards: a commit has a Bloom filter of the keys it
inserts, sized for 8,192 of them, and the library treats filters with common bits as the same key inserted
twice. The later one starts over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

import lance
import pyarrow as pa
from lance import CompactedSsTable
from lance.dataset import MergeInsertBuilder

from weir.base.details_commit import wait_for_turn
from weir.base.durability import committing
from weir.base.file_checksums import refuse_damaged_version
from weir.base.key_index import key_index_names
from weir.base.key_index_files import refuse_damaged_key_index
from weir.base.library_errors import LIBRARY_ERRORS, LibraryFailure, classify, is_panic, storage_failure
from weir.base.merge_guard import deletes_id, guard_id
from weir.base.schema import all_field_ids
from weir.base.table import BaseTable
from weir.engine import failpoint
from weir.errors import ConflictError, CorruptionError, WeirError
from weir.format.wal_entry import TOMBSTONE
from weir.merge.plan import MergeTask
from weir.merge.result import MergeResult, named, unmerged_runs
from weir.merge.rows import RunRows, SettledRuns, read_runs, settle_runs

__all__ = ["merge_by_library"]

_MAX_ATTEMPTS = 32
_STREAM_FROM_BYTES = 1024 * 1024 * 1024
_LOOKUP_BELOW = 50_000
"""Base rows per merged row from which on looking keys up in the index beats scanning the keys: with
5,000,000 rows and a warm index, 100 lookups took 28 ms, 1,000 took 145 ms, the scan 35 to 46 ms."""


def merge_by_library(tasks: Sequence[MergeTask], base: BaseTable, *, is_newest: bool = False) -> MergeResult:
    """Merge the generations of tasks into the base table and record that they are merged.

    Safe to call again after any failure, and at the same time from several processes: the generations are
    merged once (invariant I7). Merges of different shards, compaction and index builds may run concurrently.

    Parameters
    ----------
    tasks : sequence of MergeTask
        The runs (:func:`~weir.merge.plan.plan_merge`), at least one, each of another shard.
    base : BaseTable
        The table at any version.
    is_newest : bool, default False
        Whether that was the newest a moment ago: for the first attempt no newer one is looked for. If there
        is one all the same, the library finds out when it commits.

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
    if base.torn or not is_newest:
        base = base.latest_to_change()
    run: RunRows | SettledRuns | None = None
    read_after: dict[UUID, int] = {}
    deleted = 0
    for attempt in range(_MAX_ATTEMPTS):
        if attempt:
            wait_for_turn(attempt)
            base = base.latest_to_change()
        merged = {task.shard_id: base.details.merged_generation(task.shard_id) for task in tasks}
        todo = unmerged_runs(tasks, merged, base)
        if not todo:
            return MergeResult(0, deleted, (), base.version, True)
        merge: _Merge | None = None
        base.refuse_damaged_deletions()
        try:
            if base.merge_engine is not None:
                run = settle_runs(todo, base, base.merge_engine)
            elif run is None or read_after != merged:
                keys = pa.schema([base.row_schema.field(name) for name in base.primary_key])
                run, read_after = read_runs(todo, keys), merged
            with committing(base.store, base.dataset) as dataset:
                merge = _Merge(base, dataset, [task for task, _ in todo], merged, run)
                upserted, now_deleted = merge.commit()
        except _LostRaceError:
            pass
        except CorruptionError:
            # Nothing is corrupt if others have merged it, so long ago that it has been collected.
            details = base.latest().details
            if all(details.merged_generation(shard_id) == before for shard_id, before in merged.items()):
                raise
        else:
            numbers = tuple(one.generation for _, left in todo for one in left)
            deleted += now_deleted
            after = base.after(dataset)
            return MergeResult(upserted, deleted, numbers, merge.version, False, len(todo), after)
        deleted += 0 if merge is None else merge.deleted_before_race
    raise ConflictError(
        f"concurrent commits got in the way of {_MAX_ATTEMPTS} attempts to merge {named(tasks)}",
        where=base.uri,
        hint="Merge it again, and run fewer services on the table at once",
    )


class _LostRaceError(Exception):
    """Another commit got in the way; nothing but pinned deletes may have been committed."""


class _Merge:
    """One attempt to merge runs, planned against one version of the base table."""

    def __init__(
        self,
        base: BaseTable,
        dataset: lance.LanceDataset,
        tasks: Sequence[MergeTask],
        merged: Mapping[UUID, int],
        run: RunRows | SettledRuns,
    ) -> None:
        self._base = base
        self._tasks = tasks
        self._merged = merged
        self._run = run
        self._dataset = dataset
        self._read_failure: WeirError | None = None
        self.deleted_before_race = 0

    @property
    def version(self) -> int:
        """The version last committed."""
        return self._dataset.version

    def commit(self) -> tuple[int, int]:
        """Return the number of rows upserted and deleted."""
        run = self._run
        deleted = 0
        failpoint.reach("merge.before_deletes")
        if run.deletes.num_rows and run.num_upserts:
            pinned = self._builder(run.deletes.num_rows).when_matched_delete()
            if marks := self._deletes_marks():
                pinned = pinned.mark_sstables_as_compacted(marks)
            deleted = self._execute(pinned, run.deletes)["num_deleted_rows"]
            self.deleted_before_race = deleted
            if not self._has_the_columns_of_its_rows():
                raise _LostRaceError
        failpoint.reach("merge.between_passes")
        if run.num_upserts:
            final = self._builder(run.num_upserts).when_matched_update_all().when_not_matched_insert_all()
            source = self._upserts()
        else:
            final = self._builder(run.deletes.num_rows).when_matched_delete()
            source = run.deletes
        final = final.mark_sstables_as_compacted(self._marks())
        failpoint.reach("merge.before_commit")
        counts = self._execute(final, source)
        failpoint.reach("merge.after_commit")
        return (
            counts["num_inserted_rows"] + counts["num_updated_rows"],
            deleted + counts["num_deleted_rows"],
        )

    def _has_the_columns_of_its_rows(self) -> bool:
        """Whether the version that the deletes have made has the columns that rows are read for.

        The library uses their names, and has committed the deletes after concurrent commits.
        """
        before, now = self._base.dataset, self._dataset
        same_ids = all_field_ids(before.lance_schema) == all_field_ids(now.lance_schema)
        return same_ids and before.schema.equals(now.schema, check_metadata=True)

    def _marks(self) -> list[CompactedSsTable]:
        return [
            mark
            for task in self._tasks
            for mark in (
                CompactedSsTable(str(task.shard_id), task.last_generation),
                CompactedSsTable(str(guard_id(task.shard_id)), self._merged[task.shard_id] + 1),
            )
        ]

    def _deletes_marks(self) -> list[CompactedSsTable]:
        """Return the marks of the deletes, except those left by an earlier merge."""
        reached = self._base.details.merged_generation
        marks = ((deletes_id(task.shard_id), task.last_generation) for task in self._tasks)
        return [CompactedSsTable(str(mark), last) for mark, last in marks if reached(mark) < last]

    def _builder(self, rows: int) -> MergeInsertBuilder:
        key = self._base.primary_key
        look_up = (
            len(key) == 1
            and rows * _LOOKUP_BELOW < self._dataset.count_rows()
            and bool(key_index_names(self._dataset, key))
        )
        if look_up:
            refuse_damaged_key_index(self._base)
        # The library would wait for seconds before it tries again, and then with the same marks.
        return self._dataset.merge_insert(list(key)).use_index(look_up).conflict_retries(0)

    def _upserts(self) -> pa.Table | pa.RecordBatchReader:
        schema = self._base.schema
        # With rests, so that reads and writes of this process get their turn.
        batches = self._base.engine.throttle.paced(self._batches())
        if sum(task.nbytes for task in self._tasks) < _STREAM_FROM_BYTES:
            # The library joins against the smaller side only if it knows how large they are.
            return pa.Table.from_batches(list(batches), schema=schema)
        return pa.RecordBatchReader.from_batches(schema, batches)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            rows = self._base.row_schema
            yield from self._run.upserts(rows.remove(rows.get_field_index(TOMBSTONE)))
        except WeirError as error:
            # The library would pass on no more than its text.
            self._read_failure = error
            raise

    def _execute(
        self, builder: MergeInsertBuilder, source: pa.Table | pa.RecordBatchReader
    ) -> dict[str, int]:
        try:
            counts: dict[str, int] = builder.execute(source)
        except BaseException as error:
            if not (isinstance(error, LIBRARY_ERRORS) or is_panic(error)):
                raise
            if self._read_failure is not None:
                raise self._read_failure from error
            if classify(error) in (LibraryFailure.CONFLICT, LibraryFailure.STALE_PROGRESS):
                raise _LostRaceError from error
            # The library may have taken a damaged deletion file for a sound one, and failed by that.
            refuse_damaged_version(self._base.store, self._dataset.version, doing="merging")
            raise storage_failure(error, f"merging {named(self._tasks)}", where=self._base.uri) from error
        return counts

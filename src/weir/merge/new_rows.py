"""The first wave of a merge: writes the newest row per key into fragments outside any version.

A large run has its own task. Small ones share one, so that a merge of a few rows of many shards leaves one
fragment, and not one per shard.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from weir.base.library_errors import LIBRARY_ERRORS, storage_failure
from weir.base.row_commit import fragment_files, write_fragment_files
from weir.base.table import BaseTable
from weir.engine import failpoint
from weir.errors import WeirError
from weir.format.wal_entry import TOMBSTONE
from weir.merge.copied_generations import copied_generations
from weir.merge.merged_keys import MergedKeys, write_keys
from weir.merge.plan import estimated_bytes
from weir.merge.rows import Run, RunRows, SettledRuns, read_runs, settle_runs

__all__ = ["ROWS_PER_NEW_FRAGMENT", "NewRows", "NewRowsTask", "new_rows_tasks", "write_new_rows"]

ROWS_PER_NEW_FRAGMENT = 100_000
"""Runs with more rows, or more than 32 MiB, are written in parallel."""
_BYTES_PER_TASK = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class NewRowsTask:
    """Write the rows of some runs. Picklable and stateless; duplicate output is unreferenced.

    Parameters
    ----------
    base : BaseTable
        The version whose columns the rows have; with a merge engine, whose rows they are settled with.
    runs : tuple of tuple of MergeTask and sequence of FlushedGeneration
        The runs, each of another shard.
    """

    base: BaseTable
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class NewRows:
    """What was written of some runs. Can be pickled.

    Parameters
    ----------
    runs : tuple of tuple of MergeTask and sequence of FlushedGeneration
        The runs.
    fragments : tuple of str
        The library's descriptions of the fragments with the rows.
    keys : MergedKeys
        The keys that lose the row that the base table has of them.
    """

    runs: tuple[Run, ...]
    fragments: tuple[str, ...]
    keys: MergedKeys

    @property
    def rows(self) -> int:
        """How many rows were written."""
        return self.keys.rows - self.keys.deletes

    @property
    def files(self) -> list[str]:
        """Paths of all files that were written."""
        own = [] if self.keys.path is None else [self.keys.path]
        return [*own, *fragment_files(self.fragments)]


def new_rows_tasks(base: BaseTable, runs: Sequence[Run]) -> tuple[NewRowsTask, ...]:
    """Return the tasks that write some runs: as few as there are fragments worth having.

    Parameters
    ----------
    base : BaseTable
        The version, as for :class:`NewRowsTask`.
    runs : sequence of tuple of MergeTask and sequence of FlushedGeneration
        The runs, each of another shard.
    """
    groups: list[list[Run]] = []
    rows = size = 0
    for run in runs:
        own_rows = sum(one.physical_rows for one in run[1])
        own_size = sum(map(estimated_bytes, run[1]))
        if not groups or rows + own_rows > ROWS_PER_NEW_FRAGMENT or size + own_size > _BYTES_PER_TASK:
            groups.append([])
            rows = size = 0
        groups[-1].append(run)
        rows, size = rows + own_rows, size + own_size
    return tuple(NewRowsTask(base, tuple(group)) for group in groups)


def write_new_rows(task: NewRowsTask) -> NewRows:
    """Write the newest row of every key of some runs into new fragments, as they are read.

    In memory are the keys of the runs, and some of its rows; with a merge engine, all of them.

    Raises
    ------
    CorruptionError
        A generation is missing or unreadable.
    StorageError
        The store failed.
    """
    base = task.base
    failpoint.reach("merge.before_rows")
    rows: RunRows | SettledRuns
    if base.merge_engine is not None:
        rows = settle_runs(task.runs, base, base.merge_engine)
    else:
        rows = read_runs(task.runs, pa.schema([base.row_schema.field(name) for name in base.primary_key]))
    fragments = copied_generations(base, rows) if isinstance(rows, RunRows) else ()
    if rows.num_upserts:
        fragments += _write(base, rows)
    keys = write_keys(base.store, rows.upserted, rows.deletes)
    failpoint.reach("merge.after_rows")
    return NewRows(task.runs, fragments, keys)


def _write(base: BaseTable, rows: RunRows | SettledRuns) -> tuple[str, ...]:
    failures: list[WeirError] = []

    def batches() -> Iterator[pa.RecordBatch]:
        schema = base.row_schema
        try:
            yield from rows.upserts(schema.remove(schema.get_field_index(TOMBSTONE)))
        except WeirError as error:
            # The library would pass on no more than its text.
            failures.append(error)
            raise

    try:
        # With rests, so that reads and writes of this process get their turn.
        return write_fragment_files(base.dataset, base.schema, base.engine.throttle.paced(batches()))
    except LIBRARY_ERRORS as error:
        if failures:
            raise failures[0] from error
        raise storage_failure(error, "writing merged rows", where=base.uri) from error

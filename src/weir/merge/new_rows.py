"""The first wave of a merge: the newest row per key of a run, in fragments that no version has yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from weir.base.library_errors import LIBRARY_ERRORS, storage_failure
from weir.base.row_commit import fragment_files, write_fragment_files
from weir.base.table import BaseTable
from weir.engine import failpoint
from weir.errors import WeirError
from weir.format.wal_entry import TOMBSTONE
from weir.merge.merged_keys import MergedKeys, write_keys
from weir.merge.rows import Run, RunRows, SettledRuns, read_runs, settle_runs

__all__ = ["NewRows", "NewRowsTask", "write_new_rows"]


@dataclass(frozen=True, slots=True)
class NewRowsTask:
    """Write the rows of a run. Picklable, stateless; what it writes twice nobody refers to.

    Parameters
    ----------
    base : BaseTable
        The version whose columns the rows have; with a merge engine, whose rows they are settled with.
    run : tuple of MergeTask and sequence of FlushedGeneration
        The run.
    """

    base: BaseTable
    run: Run


@dataclass(frozen=True, slots=True)
class NewRows:
    """What was written of a run. Can be pickled.

    Parameters
    ----------
    run : tuple of MergeTask and sequence of FlushedGeneration
        The run.
    fragments : tuple of str
        The library's descriptions of the fragments with the rows.
    keys : MergedKeys
        The keys that lose the row that the base table has of them.
    """

    run: Run
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


def write_new_rows(task: NewRowsTask) -> NewRows:
    """Write the newest row of every key of a run into new fragments, as they are read.

    In memory are the keys of the run, and some of its rows; with a merge engine, all of them.

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
        rows = settle_runs([task.run], base, base.merge_engine)
    else:
        rows = read_runs([task.run], pa.schema([base.row_schema.field(name) for name in base.primary_key]))
    fragments = _write(base, rows) if rows.num_upserts else ()
    keys = write_keys(base.store, rows.upserted, rows.deletes)
    failpoint.reach("merge.after_rows")
    return NewRows(task.run, fragments, keys)


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

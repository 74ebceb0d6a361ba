"""Late materialisation: rows are chosen by a few columns, and the others are read for these rows only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.read.kept_columns import KeptColumns
from weir.read.plan import DatasetTask, ScanPlan, ScanTask
from weir.schema.relabel import as_schema

__all__ = ["Choose", "chosen_rows"]

Choose = Callable[[pa.Table], npt.NDArray[np.int64]]
"""Returns the offsets of the rows that are wanted, in the order in which they are."""

_ROW_ID = "_rowid"


@dataclass(frozen=True, slots=True)
class _First:
    """The columns read first from a source: those to choose by, or all if that costs no more."""

    rows: pa.Table
    kept: KeptColumns | None = None

    def fetch(self, offsets: npt.NDArray[np.int64], columns: Sequence[str], threads: Executor) -> pa.Table:
        known = self.rows.take(pa.array(offsets))
        left = [name for name in columns if name not in known.column_names]
        if self.kept is None or not left:
            return known.select(list(columns))
        found = self.kept.take(_row_ids(known), left, threads)
        return pa.table([(found if name in left else known).column(name) for name in columns], list(columns))


def chosen_rows(plan: ScanPlan, first: Sequence[str], choose: Choose) -> pa.Table:
    """Return rows of a scan.

    Parameters
    ----------
    plan : ScanPlan
        The scan, without a limit.
    first : sequence of str
        The columns that are read of all its rows; they are among those of the scan.
    choose : callable
        Takes these columns, and returns the offsets of the rows that are wanted.
    """
    wanted = pa.schema([plan.schema.field(name) for name in first])
    threads = plan.store.executors.scans
    read = list(threads.map(lambda task: _first_of(task, first), plan.tasks))
    narrow = [wanted.empty_table(), *(as_schema(one.rows.select(list(first)), wanted) for one in read)]
    chosen = choose(pa.concat_tables(narrow))
    ends = np.cumsum([one.rows.num_rows for one in read])
    of_source = np.searchsorted(ends, chosen, side="right")
    parts, places = [plan.schema.empty_table()], []
    for at in np.unique(of_source).tolist():
        mine = np.flatnonzero(of_source == at)
        before = int(ends[at - 1]) if at else 0
        parts.append(
            as_schema(read[at].fetch(chosen[mine] - before, plan.schema.names, threads), plan.schema)
        )
        places.append(mine)
    whole = pa.concat_tables(parts)
    return whole if len(places) < 2 else whole.take(pa.array(np.argsort(np.concatenate(places))))


def _first_of(task: ScanTask, first: Sequence[str]) -> _First:
    if not isinstance(task, DatasetTask) or task.resolution is not None:
        return _First(task.table())
    kept = KeptColumns(task.source)
    if task.filter is None:
        return _First(task.first_columns(first), kept)
    columns = kept.kept(first)
    if len(columns) < len(first):
        rows = task.first_columns(first)
        kept.note(rows.select(list(first)))
        return _First(rows, kept)
    rows = task.first_columns(())
    return _First(kept.rows_of(columns, _row_ids(rows)).append_column(_ROW_ID, rows.column(_ROW_ID)), kept)


def _row_ids(rows: pa.Table) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = rows.column(_ROW_ID).to_numpy().astype(np.int64)
    return found

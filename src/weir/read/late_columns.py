"""Late materialisation: rows are chosen by a few columns, and the others are read for these rows only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.lsm.rows_by_id import take_row_ids
from weir.read.plan import DatasetTask, ScanPlan, ScanTask
from weir.schema.relabel import as_schema

__all__ = ["Choose", "chosen_rows"]

Choose = Callable[[pa.Table], npt.NDArray[np.int64]]
"""Returns the offsets of the rows that are wanted, in the order in which they are."""

_ROW_ID = "_rowid"
_WORTH_SHARING = 256


@dataclass(frozen=True, slots=True)
class _First:
    """The columns read first from a source: those to choose by, or all if that costs no more."""

    task: ScanTask
    rows: pa.Table

    def fetch(self, offsets: npt.NDArray[np.int64], columns: Sequence[str]) -> pa.Table:
        if _ROW_ID not in self.rows.column_names:
            return self.rows.take(pa.array(offsets)).select(list(columns))
        assert isinstance(self.task, DatasetTask)
        known = self.rows.take(pa.array(offsets))
        left = [name for name in columns if name not in known.column_names]
        if not left:
            return known.select(list(columns))
        row_ids = known.column(_ROW_ID).to_numpy().astype(np.int64)
        found = take_row_ids(self.task.source.opened(), row_ids, left)
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
    read = list(plan.store.executors.scans.map(lambda task: _first_of(task, first), plan.tasks))
    narrow = [wanted.empty_table(), *(as_schema(one.rows.select(list(first)), wanted) for one in read)]
    chosen = choose(pa.concat_tables(narrow))
    ends = np.cumsum([one.rows.num_rows for one in read])
    of_source = np.searchsorted(ends, chosen, side="right")
    parts, places = [plan.schema.empty_table()], []
    for at in np.unique(of_source).tolist():
        mine = np.flatnonzero(of_source == at)
        before = int(ends[at - 1]) if at else 0
        parts += [as_schema(one, plan.schema) for one in _fetched(read[at], chosen[mine] - before, plan)]
        places.append(mine)
    whole = pa.concat_tables(parts)
    return whole if len(places) < 2 else whole.take(pa.array(np.argsort(np.concatenate(places))))


def _fetched(first: _First, offsets: npt.NDArray[np.int64], plan: ScanPlan) -> Iterator[pa.Table]:
    """Yield some rows of a source, in their order; of more than a few two threads read half each."""
    shares = np.array_split(offsets, 2 if len(offsets) >= _WORTH_SHARING else 1)
    yield from plan.store.executors.scans.map(lambda share: first.fetch(share, plan.schema.names), shares)


def _first_of(task: ScanTask, first: Sequence[str]) -> _First:
    if not isinstance(task, DatasetTask) or task.resolution is not None:
        return _First(task, task.table())
    return _First(task, task.first_columns(first))

"""A scan: rows of the merged view, by column, condition and limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TypeVar

import pyarrow as pa

from weir.errors import SnapshotExpiredError
from weir.read.begun_scan import BegunScan
from weir.read.late_columns import Choose, chosen_rows
from weir.read.plan import DatasetTask, Purpose, ScanPlan
from weir.read.result import RowResult
from weir.schema.relabel import as_schema

__all__ = ["Scan"]

Result = TypeVar("Result")


class Scan(RowResult):
    """A scan that has not run yet. Each of its methods runs it again, on a new snapshot.

    Made by :meth:`weir.Table.scan`. The order of rows is not defined. Pickling it takes a token of the
    current state of the table, kept for an hour, so that every process that unpickles it reads the same rows.

    Parameters
    ----------
    plan : callable
        Takes the snapshot and plans the scan for a purpose.
    reading : callable, optional
        Returns the context that everything is read in.
    attempts : int
        How often to retry on a newer snapshot if garbage collection has passed the one being read. A partly
        streamed result cannot be restarted.
    remade : callable, optional
        Returns what makes the scan in another process, and its arguments.
    asked : mapping, optional
        The request by argument, for display.
    """

    def __init__(
        self,
        plan: Callable[[Purpose], ScanPlan],
        reading: Callable[[], AbstractContextManager[None]] = nullcontext,
        attempts: int = 1,
        remade: Callable[[], tuple[object, ...]] | None = None,
        asked: Mapping[str, object] | None = None,
    ) -> None:
        self._asked = asked or {}
        self._remade = remade
        self._plan = plan
        self._reading = reading
        self._attempts = attempts

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the table's location, the read and its snapshot."""
        if self._remade is None:
            raise TypeError("this scan cannot be pickled: it was not made by Table.scan")
        return self._remade()

    def plan(self) -> ScanPlan:
        """Return the plan: every source that would be read, and what was pruned."""
        return self._planned(Purpose.EXPLAIN)

    def _planned(self, purpose: Purpose = Purpose.ROWS) -> ScanPlan:
        with self._reading():
            return self._plan(purpose)

    def explain(self) -> str:
        """Return the plan as text, one source per line."""
        return self.plan().describe()

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows as record batches, source by source."""
        yield from self._stream(self._planned())

    def to_table(self) -> pa.Table:
        """Return the rows as a table. Sources are read in parallel."""
        return self._run(self._table)

    def _table(self) -> pa.Table:
        with self._reading():
            plan = self._plan(Purpose.TABLE)
            if plan.limit is not None:
                return pa.Table.from_batches(list(self._stream(plan)), plan.schema)
            tables = _tables(plan) if plan.begun is None else _with_begun(plan, plan.begun)
        return pa.concat_tables([as_schema(table, plan.schema) for table in tables])

    def chosen(self, first: Sequence[str], choose: Choose) -> pa.Table:
        """Return some of the rows, chosen by a few of their columns; the others are read for these rows only.

        Parameters
        ----------
        first : sequence of str
            The columns of the scan to choose by.
        choose : callable
            Takes a table of these columns and returns the offsets of the wanted rows, as a NumPy array in
            result order. It may be called more than once.
        """

        def read() -> pa.Table:
            plan = self._planned()
            with self._reading():
                return chosen_rows(plan, first, choose)

        return self._run(read)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream of record batches, source by source."""
        plan = self._planned()
        return pa.RecordBatchReader.from_batches(plan.schema, self._stream(plan))

    def count(self) -> int:
        """Return the number of rows, without reading the columns."""
        return self._run(self._count)

    def _count(self) -> int:
        with self._reading():
            plan = self._plan(Purpose.COUNT)
            total = sum(task.count() for task in plan.tasks)
        return total if plan.limit is None else min(total, plan.limit)

    def _run(self, read: Callable[[], Result]) -> Result:
        for _ in range(self._attempts - 1):
            with suppress(SnapshotExpiredError):
                return read()
        return read()

    def _stream(self, plan: ScanPlan) -> Iterator[pa.RecordBatch]:
        left = plan.limit
        for task in plan.tasks:
            if left is not None and left <= 0:
                return
            batches = task.batches(left)
            while True:
                # Not around the whole loop: what the caller does with a batch is not reading.
                with self._reading():
                    batch = next(batches, None)
                if batch is None:
                    break
                if batch.num_rows:
                    yield from as_schema(pa.Table.from_batches([batch]), plan.schema).to_batches()
                    if left is not None:
                        left -= batch.num_rows


def _tables(plan: ScanPlan) -> list[pa.Table]:
    """Return the rows of each task of a plan."""
    known = [task.known() for task in plan.tasks]
    unknown = [task for task, rows in zip(plan.tasks, known, strict=True) if rows is None]
    # Only what reads has something to wait for.
    each = plan.store.executors.scans.map if len(unknown) > 1 else map
    read = iter(each(lambda task: task.table(), unknown))
    return [next(read) if rows is None else rows for rows in known]


def _with_begun(plan: ScanPlan, begun: BegunScan) -> list[pa.Table]:
    """Return the rows of each task of a plan, of which the first is being read already."""
    threads = plan.store.executors.scans
    first, *others = plan.tasks
    assert isinstance(first, DatasetTask)
    try:
        found = threads.map(lambda task: task.table(), others)
        # By this thread: what waits for one of those threads must not be one of them.
        return [first.table_of(begun, threads), *found]
    finally:
        begun.end()

"""Partitions of a scan for Spark's executors, as independent values that can be pickled.

The base table is read in groups of fragments. Newer rows are in small pieces, generations and the log;
consecutive pieces are read together. Rows of the log travel with the task: they have already been read, to
know what they supersede.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from weir.base.table import BaseTable
from weir.errors import CorruptionError, SnapshotExpiredError, WeirError
from weir.read.plan import DatasetTask, ScanPlan, ScanTask
from weir.spark.options import TableLocation
from weir.storage.open import open_store

__all__ = ["ScanPartition", "bounded", "scan_partitions"]

_BATCH_BYTES = 16 * 1024 * 1024
"""Most bytes of a batch. Spark holds one in Java's memory for every task."""

_TASK_BYTES = 8 * 1024 * 1024
"""Most bytes of rows that travel with a task: Spark refuses messages of more than 128 MiB."""

_FRESH_SHARE = 16
"""Factor by which a task for newer rows has fewer of them: they are in more places and cost more to read."""


@dataclass(frozen=True, slots=True)
class ScanPartition(InputPartition):
    """The part of a scan that one Spark task reads.

    Parameters
    ----------
    location : TableLocation
        The table.
    version : int
        The version of its base table to read.
    tasks : tuple of DatasetTask or RowsTask
        The parts of the scan.
    """

    location: TableLocation
    version: int
    tasks: tuple[ScanTask, ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, in batches of a size that suits Spark.

        Raises
        ------
        SnapshotExpiredError
            If garbage collection has removed a file since the scan was planned.
        CorruptionError
            If a file is damaged.
        """
        try:
            for task in self.tasks:
                for batch in task.batches():
                    yield from bounded(batch)
        except CorruptionError as error:
            raise self._explained(error) from error

    def _explained(self, error: CorruptionError) -> WeirError:
        """Return the error to raise if a file is missing or damaged."""
        newest = self.version
        with suppress(WeirError):
            store = open_store(self.location.uri, self.location.storage_options or None)
            newest = BaseTable.open(store).version
        if newest == self.version:
            return error
        return SnapshotExpiredError(
            f"garbage collection has removed what version {self.version} of the table was being read "
            f"from, or something is damaged: {error.message}",
            where=error.where,
            hint="Read again; for jobs that take long, collect with a longer horizon, or keep the state that "
            "is read with the option retainSeconds",
        )


def scan_partitions(location: TableLocation, plan: ScanPlan, rows: int) -> list[ScanPartition]:
    """Return the parts of a scan.

    Parameters
    ----------
    location : TableLocation
        The table.
    plan : ScanPlan
        The scan, without a limit, planned in this process.
    rows : int
        Rows of the base table after which a part ends. A fragment is never divided.
    """
    base, fresh = plan.tasks[0], list(plan.tasks[1:])
    groups: list[tuple[ScanTask, ...]] = []
    version = 0
    if isinstance(base, DatasetTask):
        groups += [(part,) for part, count in base.split(rows) if count]
        version = base.source.version
    else:
        fresh.insert(0, base)  # what look-ups have found
    group: list[ScanTask] = []
    total = 0
    for piece, count in _pieces(fresh):
        if group and total + count > max(rows // _FRESH_SHARE, 1):
            groups.append(tuple(group))
            group, total = [], 0
        group.append(piece)
        total += count
    if group:
        groups.append(tuple(group))
    return [ScanPartition(location, version, group) for group in groups]


def _pieces(tasks: list[ScanTask]) -> Iterator[tuple[ScanTask, int]]:
    """Yield tasks, each with its number of rows."""
    for task in tasks:
        if isinstance(task, DatasetTask):
            yield from task.split(sys.maxsize)
        else:
            yield from ((part, part.rows.num_rows) for part in task.split(_TASK_BYTES))


def bounded(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch, in slices if it is large."""
    if batch.nbytes <= _BATCH_BYTES:
        yield batch
        return
    length = max(batch.num_rows * _BATCH_BYTES // batch.nbytes, 1)
    for start in range(0, batch.num_rows, length):
        yield batch.slice(start, length)

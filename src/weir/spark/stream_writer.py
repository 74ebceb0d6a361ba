"""Streaming writes of the format ``"weir"``."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from weir.errors import WeirError
from weir.spark.kept_tables import process_tables
from weir.spark.kept_writers import process_writers
from weir.spark.sink import abort, commit_batch_of_stream
from weir.spark.staging import TaskResult, TaskRows
from weir.spark.write_options import WriteOptions
from weir.table.table import Table

__all__ = ["StreamWriter", "inline_bytes", "query_id_of_task", "task_number"]

# Spark documents neither; it sets both for every task of a micro-batch.
_QUERY_ID = "sql.streaming.queryId"

_MAX_INLINE_BYTES = 8 * 1024 * 1024
_SHARED_INLINE_BYTES = 64 * 1024 * 1024
_LEAST_INLINE_BYTES = 1024 * 1024


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of a streaming query, each batch once.

    Parameters
    ----------
    options : WriteOptions
        The options of the write.
    rows : TaskRows
        How tasks read their rows.
    table : Table, optional
        The open table. Not pickled: Spark recreates the writer in the process that commits.
    """

    def __init__(self, options: WriteOptions, rows: TaskRows, table: Table | None = None) -> None:
        self._options = options
        self._rows = rows
        self._table = table

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle what tasks need."""
        return StreamWriter, (self._options, self._rows)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Read the rows of a partition, on an executor."""
        return self._rows.result(
            iterator, inline_bytes=inline_bytes(task_number()), query_id=query_id_of_task()
        )

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Write the rows of all partitions, on the driver."""
        results = [message for message in messages if isinstance(message, TaskResult)]
        table = self._opened()
        with process_tables.in_use(table):
            commit_batch_of_stream(table, results, batchId, self._options, kept=process_writers)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Delete what the tasks staged, on the driver."""
        abort(self._opened(), messages)

    def _opened(self) -> Table:
        return self._table or process_tables.newest(self._options.location, fsync=self._options.fsync)


def inline_bytes(task: int) -> int:
    """Return how many bytes of rows a task may send to the driver.

    A log entry costs a fraction of a staged generation and combines the small shares of many tasks. A task
    knows only its own number, not how many tasks there are, so those with low numbers may send more.

    Examples
    --------
    >>> [inline_bytes(number) // 1024**2 for number in (0, 7, 15, 31, 63, 1000)]
    [8, 8, 4, 2, 1, 1]
    >>> sum(inline_bytes(number) for number in range(200)) // 1024**2
    329
    """
    return min(_MAX_INLINE_BYTES, max(_SHARED_INLINE_BYTES // (task + 1), _LEAST_INLINE_BYTES))


def task_number() -> int:
    """Return the partition number of a task; 0 outside of one."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def query_id_of_task() -> str:
    """Return the streaming query of a task.

    Raises
    ------
    WeirError
        If Spark does not say.
    """
    context = TaskContext.get()
    query_id = None if context is None else context.getLocalProperty(_QUERY_ID)
    if not query_id:
        raise WeirError(
            f"Spark does not say which streaming query a task belongs to ({_QUERY_ID})",
            hint="This version of Spark cannot write a stream to Weir exactly once; use foreachBatch with "
            "the options source and sequence",
        )
    return str(query_id)

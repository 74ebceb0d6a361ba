"""Streaming writes of the format ``"weir"``."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from weir.errors import WeirError
from weir.spark.sink import abort, commit_batch_of_stream
from weir.spark.staging import TaskResult, TaskRows
from weir.spark.write_options import WriteOptions
from weir.table import Table

__all__ = ["StreamWriter"]

# Spark documents neither; it sets both for every task of a micro-batch.
_QUERY_ID = "sql.streaming.queryId"


class StreamWriter(DataSourceStreamArrowWriter):
    """Upserts, and deletes, the rows of a streaming query, each batch once.

    Parameters
    ----------
    options : WriteOptions
        The options of the write.
    rows : TaskRows
        How tasks read their rows.
    table : Table, optional
        The table, opened: Spark makes the writer anew in the process that commits. Not pickled.
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
        return TaskResult(self._rows.pieces(iterator), _query_id())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Write the rows of all partitions, on the driver."""
        results = [message for message in messages if isinstance(message, TaskResult)]
        commit_batch_of_stream(self._opened(), results, batchId, self._options)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Delete what the tasks have staged, on the driver."""
        abort(self._opened(), messages)

    def _opened(self) -> Table:
        return self._table or self._options.location.open(fsync=self._options.fsync)


def _query_id() -> str:
    context = TaskContext.get()
    query_id = None if context is None else context.getLocalProperty(_QUERY_ID)
    if not query_id:
        raise WeirError(
            f"Spark does not tell a task which streaming query it belongs to ({_QUERY_ID})",
            hint="This version of Spark cannot write a stream to Weir exactly once; use foreachBatch with "
            "the options source and sequence",
        )
    return str(query_id)

"""Batch writes of the format ``"weir"``."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from weir.spark.sink import abort, commit
from weir.spark.staging import TaskResult, TaskRows
from weir.spark.stream_writer import inline_bytes, task_number
from weir.spark.write_options import WriteOptions
from weir.table.load import merge_loaded

__all__ = ["BatchWriter"]


class BatchWriter(DataSourceArrowWriter):
    """Writes the rows of a data frame, by their operations or the write mode.

    Parameters
    ----------
    options : WriteOptions
        The options of the write.
    rows : TaskRows
        How tasks read their rows.
    """

    def __init__(self, options: WriteOptions, rows: TaskRows) -> None:
        # Spark pickles it and commits in another process than the one it was made in.
        self._options = options
        self._rows = rows

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Read the rows of a partition, on an executor."""
        # What is loaded is staged: rows of the log are written once more.
        few = None if self._options.is_merged_at_once else inline_bytes(task_number())
        return self._rows.result(iterator, inline_bytes=few)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Write the rows of all partitions, on the driver."""
        options = self._options
        results = [message for message in messages if isinstance(message, TaskResult)]
        holder = None if options.source is None else f"spark/{options.source.name}"
        table = options.location.open(fsync=options.fsync)
        commit(table, results, options.source, options, holder=holder, flush=True)
        if options.is_merged_at_once:
            merge_loaded(table.maintenance, table.uri)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete what the tasks staged, on the driver."""
        abort(self._options.location.open(fsync=self._options.fsync), messages)

"""The batch and the streaming sink of the format ``"weir-events"``.

Tasks lay their rows down beside the store; the driver checks and appends them, in the order of the
partitions, as one source that is taken once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from weir.errors import WeirError
from weir.events.event_table import EVENTS
from weir.events.staged import STAGED
from weir.format.source import Source
from weir.spark.event_options import EventWriteOptions
from weir.spark.sink import refuse_checkpoint_of_another_table
from weir.storage.interface import ObjectStore
from weir.storage.open import open_store

__all__ = ["EventBatchWriter", "EventStreamWriter"]

# Spark documents it not; it sets it for every task of a micro-batch.
_QUERY_ID = "sql.streaming.queryId"


@dataclass(frozen=True, slots=True)
class StagedRows(WriterCommitMessage):
    """Rows that a task has laid down.

    Parameters
    ----------
    partition : int
        Of which partition.
    path : str or None
        Where, below the store. None if there were none.
    query_id : str
        Of which streaming query.
    """

    partition: int
    path: str | None
    query_id: str = ""


def _store(options: EventWriteOptions) -> ObjectStore:
    return open_store(options.location.uri, options.location.storage_options or None)


def _staged(options: EventWriteOptions, batches: Iterator[pa.RecordBatch], query_id: str = "") -> StagedRows:
    context = TaskContext.get()
    partition = 0 if context is None else context.partitionId()
    sink = pa.BufferOutputStream()
    writer = None
    for batch in batches:
        if batch.num_rows:
            writer = writer or pa.ipc.new_stream(sink, batch.schema)
            writer.write_batch(batch)
    if writer is None:
        return StagedRows(partition, None, query_id)
    writer.close()
    path = f"{STAGED}/{uuid4().hex}.arrow"
    _store(options).put(path, sink.getvalue().to_pybytes())
    return StagedRows(partition, path, query_id)


def _append(
    options: EventWriteOptions, messages: list[WriterCommitMessage | None], source: Source | None
) -> None:
    found = [one for one in messages if isinstance(one, StagedRows) and one.path is not None]
    found.sort(key=lambda one: one.partition)
    store = _store(options)
    with (
        options.open() as events,
        events.writer(lease_wait=options.lease_wait, takeover=options.takeover) as writer,
    ):
        tables = [pa.ipc.open_stream(store.get(str(one.path))).read_all() for one in found]
        if tables:
            writer.ingest(options.type, pa.concat_tables(tables), source=source)
    _drop(options, messages)


def _drop(options: EventWriteOptions, messages: list[WriterCommitMessage | None]) -> None:
    paths = [one.path for one in messages if isinstance(one, StagedRows) and one.path is not None]
    if paths:
        _store(options).delete(paths)


class EventBatchWriter(DataSourceArrowWriter):
    """Appends the rows of a data frame as events.

    Parameters
    ----------
    options : EventWriteOptions
        The options of the write.
    """

    def __init__(self, options: EventWriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Lay the rows of a partition down, on an executor."""
        return _staged(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Append the rows of all partitions, on the driver."""
        _append(self._options, messages, self._options.source)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete what the tasks have laid down."""
        _drop(self._options, messages)


class EventStreamWriter(DataSourceStreamArrowWriter):
    """Appends the rows of a streaming query as events, each batch once.

    Parameters
    ----------
    options : EventWriteOptions
        The options of the write.
    """

    def __init__(self, options: EventWriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Lay the rows of a partition down, on an executor."""
        context = TaskContext.get()
        query_id = None if context is None else context.getLocalProperty(_QUERY_ID)
        if not query_id:
            raise WeirError(
                f"Spark does not tell a task which streaming query it belongs to ({_QUERY_ID})",
                hint="Use foreachBatch with the options source and sequence",
            )
        return _staged(self._options, iterator, str(query_id))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Append the rows of all partitions, on the driver."""
        query_id = next((one.query_id for one in messages if isinstance(one, StagedRows)), None)
        if query_id is not None:
            with self._options.open() as events:
                refuse_checkpoint_of_another_table(events.tables[EVENTS].internals.store, query_id, batchId)
            # Batches are counted from 0, the numbers of a source from there on.
            _append(self._options, messages, Source(f"spark/{query_id}", batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Delete what the tasks have laid down."""
        _drop(self._options, messages)

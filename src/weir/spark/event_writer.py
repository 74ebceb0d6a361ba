"""The batch and the streaming sink of the format ``"weir-events"``.

Tasks check and number their rows, and stage large numbers of them like rows of a table
(:mod:`weir.spark.staging`); the driver publishes the staged rows, one step per shard, with the mark of the
batch (:mod:`weir.events.batches`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from weir.engine import failpoint
from weir.events.batches import TICKS_OF_A_PART, PartNumbers, RoutedEvents, next_tick
from weir.events.event_table import EVENTS
from weir.events.event_types import EventType
from weir.events.payloads import columns_of_table
from weir.events.store import EventStore
from weir.format.source import Source
from weir.spark.batch_order import batch_of_stream
from weir.spark.event_options import EventWriteOptions
from weir.spark.kept_event_writers import KeptEventWriters, process_event_writers
from weir.spark.options import TableLocation
from weir.spark.sink import abort, parted
from weir.spark.staging import InlineRows, TaskResult, TaskRows
from weir.spark.stream_writer import inline_bytes, query_id_of_task, task_number

__all__ = ["EventBatchWriter", "EventRows", "EventStreamWriter"]


@dataclass(frozen=True, slots=True)
class NumberedRows(WriterCommitMessage):
    """The result of a task, sent to the driver.

    Parameters
    ----------
    rows : TaskResult
        Its rows, with ids.
    first_tick : int
        The first tick of the ids of the first part.
    """

    rows: TaskResult
    first_tick: int


@dataclass(frozen=True, slots=True)
class EventRows:
    """Reads the events of one batch in tasks. Can be pickled.

    Parameters
    ----------
    kind : EventType
        The type of the events.
    rows : TaskRows
        Reads the rows of the events table.
    first_tick : int
        The first tick to assign ids from.
    """

    kind: EventType
    rows: TaskRows
    first_tick: int

    @staticmethod
    def of(options: EventWriteOptions, store: EventStore) -> EventRows:
        """Return the reader for the rows of a write, for the current state of the store."""
        table = store.tables[EVENTS]
        location = TableLocation(table.uri, options.location.storage_options)
        rows = TaskRows.of(location, table, fsync=options.fsync)
        return EventRows(store.event_type(options.type), rows, next_tick(table))

    def result(self, batches: Iterable[pa.RecordBatch], query_id: str | None = None) -> NumberedRows:
        """Check and number the events of a task, and return the result for the driver.

        Raises
        ------
        InputError
            If a row is not a valid event. Rows are counted from the start of the partition.
        """
        part = task_number()
        numbers = PartNumbers(self.rows.router, self.first_tick + part * TICKS_OF_A_PART)
        found = self.rows.result(
            self._numbered(batches, numbers), inline_bytes=inline_bytes(part), query_id=query_id
        )
        return NumberedRows(found, self.first_tick)

    def _numbered(self, batches: Iterable[pa.RecordBatch], numbers: PartNumbers) -> Iterator[pa.RecordBatch]:
        first_row = 0
        for batch in batches:
            if batch.num_rows:
                columns = columns_of_table(self.kind, batch, first_row)
                yield pa.record_batch({"event_id": numbers.take(columns["context_id"]), **columns})
                first_row += batch.num_rows


def _commit(
    store: EventStore,
    options: EventWriteOptions,
    found: Sequence[NumberedRows],
    source: Source | None,
    kept: KeptEventWriters | None = None,
) -> None:
    """Append the events of all tasks, in the order of the partitions, on the driver.

    Uses a kept writer if there is one. Otherwise a writer is opened for this commit, and flushes when it is
    closed.
    """
    failpoint.reach("sink.before_commit")
    if any(one.rows.pieces for one in found):
        routed = _routed(store, found)
        if kept is not None and source is not None:
            kept.ingest(store, options, routed, source)
        else:
            with store.writer(lease_wait=options.lease_wait, takeover=options.takeover) as writer:
                writer.ingest_routed(routed, source)
                failpoint.reach("sink.before_close")
    failpoint.reach("sink.after_commit")


def _routed(store: EventStore, found: Sequence[NumberedRows]) -> RoutedEvents:
    table = store.tables[EVENTS]
    spec_id = next(one.rows.spec_id for one in found if one.rows.spec_id is not None)
    changes, staged = parted(table, [one.rows for one in found], spec_id)
    first_ticks = {one.first_tick for one in found}
    # Otherwise the ids of a part may be among those of the next.
    apart = len(first_ticks) == 1 and all(_most_of_a_shard(one.rows) <= TICKS_OF_A_PART for one in found)
    end = max(first_ticks) + len(found) * TICKS_OF_A_PART
    return RoutedEvents(changes, staged, min(first_ticks) if apart else None, end, spec_id)


def _most_of_a_shard(rows: TaskResult) -> int:
    """Return the largest number of rows that a task has for one shard."""
    counts: dict[object, int] = {}
    for piece in rows.pieces:
        held = piece.held
        count = held.rows.num_rows if isinstance(held, InlineRows) else held.flushed.physical_rows
        counts[piece.shard] = counts.get(piece.shard, 0) + count
    return max(counts.values(), default=0)


def _abort(options: EventWriteOptions, messages: list[WriterCommitMessage | None]) -> None:
    rows = [one.rows if isinstance(one, NumberedRows) else None for one in messages]
    if any(one is not None and one.staged for one in rows):
        with options.open() as store:
            abort(store.tables[EVENTS], rows)


def _of_tasks(messages: list[WriterCommitMessage | None]) -> list[NumberedRows]:
    return [one for one in messages if isinstance(one, NumberedRows)]


class EventBatchWriter(DataSourceArrowWriter):
    """Appends the rows of a data frame as events.

    Parameters
    ----------
    options : EventWriteOptions
        The options of the write.
    rows : EventRows
        How tasks read their rows.
    """

    def __init__(self, options: EventWriteOptions, rows: EventRows) -> None:
        self._options = options
        self._rows = rows

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Read the rows of a partition, on an executor."""
        return self._rows.result(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Append the rows of all partitions, on the driver."""
        with self._options.open() as store:
            _commit(store, self._options, _of_tasks(messages), self._options.source)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete what the tasks staged, on the driver."""
        _abort(self._options, messages)


class EventStreamWriter(DataSourceStreamArrowWriter):
    """Appends the rows of a streaming query as events, each batch once.

    Parameters
    ----------
    options : EventWriteOptions
        The options of the write.
    rows : EventRows
        How tasks read their rows.
    """

    def __init__(self, options: EventWriteOptions, rows: EventRows) -> None:
        self._options = options
        self._rows = rows

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Read the rows of a partition, on an executor."""
        return self._rows.result(iterator, query_id_of_task())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Append the rows of all partitions, on the driver."""
        found = _of_tasks(messages)
        if not found:
            return
        query_id = str(found[0].rows.query_id)
        with self._options.open() as store:
            # Batches are counted from 0, the numbers of a source from there on.
            source = Source(f"spark/{query_id}", batchId)
            with batch_of_stream(store.tables[EVENTS].internals.store, query_id, batchId):
                _commit(store, self._options, found, source, process_event_writers)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Delete what the tasks staged, on the driver."""
        _abort(self._options, messages)

"""The batch and the streaming source of the format ``"weir-events"``.

A batch is a partitioned replay of one snapshot. An offset of a stream is the position of each shard: the
arrival id of its last event, in log order. The events between two offsets are therefore always the same,
except for those removed by forgetting or retention meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from weir.errors import InputError
from weir.events.cursors import Cursor
from weir.events.query.parts import ReplayPart, run_replay_part
from weir.spark.event_options import EventReadOptions
from weir.spark.scan_partition import bounded
from weir.spark.types import SparkBatches, check_schema

__all__ = ["EventBatchReader", "EventStreamReader", "event_columns"]

Offset = dict[str, Any]


@dataclass(frozen=True, slots=True)
class EventPartition(InputPartition):
    """A part of a replay, read by one Spark task.

    Parameters
    ----------
    part : ReplayPart
        Which events.
    after, through : Cursor or None
        For a stream, the bounds: after the first, up to the second.
    """

    part: ReplayPart
    after: Cursor | None = None
    through: Cursor | None = None


def event_columns(options: EventReadOptions) -> pa.Schema:
    """Return the columns of the events that are read."""
    with options.open() as store:
        return store.plan_replay(
            options.context, options.type, since=options.since, until=options.until, using=options.using
        ).schema


def _parts(options: EventReadOptions, schema: StructType, after: Cursor | None = None) -> list[ReplayPart]:
    """Return the parts of a read, of one snapshot."""
    with options.open() as store:
        plan, parts = store.replay_parts(
            options.context,
            options.type,
            since=options.since,
            until=options.until,
            using=options.using,
            rows=options.rows_per_partition,
            after=after,
        )
    # Of a version that somebody has defined meanwhile, a column may be what nobody expects.
    check_schema(schema, plan.schema)
    return parts


def _rows(schema: StructType, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    # Without partitions Spark makes one of its own.
    if isinstance(partition, EventPartition):
        rows = run_replay_part(partition.part, partition.after, partition.through).sort_by("event_id")
        convert = SparkBatches(schema).convert
        for batch in rows.combine_chunks().to_batches():
            yield from map(convert, bounded(batch))


class EventBatchReader(DataSourceReader):
    """Reads one snapshot of the events of a store.

    Parameters
    ----------
    options : EventReadOptions
        What to read.
    schema : StructType
        The columns that Spark expects.
    """

    def __init__(self, options: EventReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Take the snapshot and return the parts for the tasks."""
        return [EventPartition(part) for part in _parts(self._options, self._schema)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the events of a part."""
        yield from _rows(self._schema, partition)


class EventStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Streams the events of a store, each once, those of a context in order.

    Parameters
    ----------
    options : EventReadOptions
        What to read.
    schema : StructType
        The columns that Spark expects.
    """

    def __init__(self, options: EventReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._target: Cursor | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the constructor arguments: tasks need nothing else to read."""
        return type(self), (self._options, self._schema)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return how much a micro-batch reads."""
        most = self._options.max_rows
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return the position before the first event."""
        return {"seen": {}}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember where to stop."""
        with self._options.open() as store:
            self._target = Cursor().advanced(store.arrivals_after(Cursor()))

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return the end of the next micro-batch, which is ``start`` if there is nothing to read."""
        after = _cursor(start)
        with self._options.open() as store:
            arrived = store.arrivals_after(after)
        if self._target is not None:
            arrived = arrived[~self._target.beyond(arrived)]
        if isinstance(limit, ReadMaxRows):
            # Those of a shard in their order, so that nothing is passed over.
            arrived = np.sort(arrived)[: self._options.max_rows or len(arrived)]
        return {"seen": after.advanced(arrived).to_json()}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the parts of a micro-batch."""
        after, through = _cursor(start), _cursor(end)
        parts = _parts(self._options, self._schema, after)
        return [EventPartition(part, after, through) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the events of a part."""
        yield from _rows(self._schema, partition)

    def commit(self, end: Offset) -> None:
        """Do nothing: Spark remembers the offsets of a stream."""


def _cursor(offset: Offset) -> Cursor:
    seen = offset.get("seen")
    if not isinstance(seen, Mapping):
        raise InputError(
            f"the checkpoint is not one of a stream of events: it has the offset {offset!r:.200}",
            where="checkpointLocation",
            hint="Give every query its own checkpoint",
        )
    return Cursor.from_json(seen)

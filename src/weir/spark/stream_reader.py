"""The streaming source: the change feed of a table, in micro-batches.

Spark asks for the end offset, records it, reads up to it, and records that it has. After a restart it reads
again whatever is not recorded as finished, and expects the same rows. So an offset is a snapshot token as
text, with a position in every shard's log, and the changes between two offsets are always the same.

Spark records only the end of the first micro-batch. So that offset also says where the stream begins:
``since`` a token, or with the ``content`` of the table at the token itself. The start of a stream is
determined once and recorded at once, even if there is nothing to read yet.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from weir.changes.feed import ChangeFeed
from weir.changes.images import INSERT, with_images
from weir.changes.range import ChangeRange
from weir.changes.rows import check_names
from weir.errors import InputError, OptionError, SchemaError
from weir.format.field_births import births_of, same_birth
from weir.format.field_ids import field_id, without_field_ids
from weir.format.resolution import Resolution, resolve
from weir.format.snapshot_token import SnapshotToken
from weir.snapshots.consumers import read_consumer
from weir.spark.read_options import LATEST, SNAPSHOT, StreamReadOptions
from weir.spark.scan_partition import ScanPartition, bounded, scan_partitions
from weir.spark.types import SparkBatches, check_schema, selected
from weir.storage.open import open_store
from weir.table.table import Table

__all__ = ["ChangePartition", "StreamReader", "change_columns"]

Offset = dict[str, Any]

_ADDED = pa.schema(
    [
        pa.field("_op", pa.string(), nullable=False),
        pa.field("_shard", pa.string()),
        pa.field("_position", pa.int64()),
        pa.field("_epoch", pa.int64()),
    ]
)
"""The columns that the feed adds. Rows read as content only have an operation."""

_RENEWAL_SECONDS = 3600.0
"""How often a consumer that waits for changes signals that it is alive."""


@dataclass(frozen=True, slots=True)
class ChangePartition(InputPartition):
    """Changes of one shard, read by one Spark task.

    Parameters
    ----------
    changes : ChangeRange
        The changes.
    """

    changes: ChangeRange


@dataclass(frozen=True, slots=True)
class ContentPartition(InputPartition):
    """A part of the content that a stream begins with, read by one Spark task.

    Parameters
    ----------
    part : ScanPartition
        The part, with the columns that the table had then.
    columns : Resolution
        How the columns of the stream are made of them.
    """

    part: ScanPartition
    columns: Resolution

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, with the columns of the stream."""
        for batch in self.part.batches():
            yield self.columns.apply(batch, where=self.part.location.uri)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Streams the changes of a table, each once, those of a shard in order.

    Parameters
    ----------
    options : StreamReadOptions
        What to read.
    schema : StructType
        The columns that Spark expects.

    Raises
    ------
    OptionError
        If these are the columns of the table instead of its changes.
    """

    def __init__(self, options: StreamReadOptions, schema: StructType) -> None:
        if "_op" not in schema.names:
            raise OptionError(
                "a stream of a table is its change feed, with other columns",
                where="readChangeFeed",
                hint='Add .option("readChangeFeed", "true"); to read the table as it is, use spark.read',
            )
        self._options = options
        self._schema = schema
        self._opened: Table | None = None
        self._began_with: pa.Schema | None = None
        self._target: SnapshotToken | None = None
        self._feed: ChangeFeed | None = None
        self._acknowledged: tuple[str, float] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the constructor arguments: tasks need nothing else to read."""
        return type(self), (self._options, self._schema)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return how much a micro-batch reads."""
        options = self._options
        if options.max_rows is not None:
            return ReadMaxRows(options.max_rows)
        return ReadAllAvailable() if options.max_bytes is None else ReadMaxBytes(options.max_bytes)

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return the position before the first micro-batch, always the same."""
        return {"startingFrom": self._options.starting_from}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember where to stop."""
        self._target = self._table.snapshot(retain=None)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return the end of the next micro-batch, which is ``start`` if there is nothing to read."""
        table = self._table
        self._look_at_columns()
        if "startingFrom" in start:
            first = self._first()
            if first is None:
                token = table.snapshot(retain=self._options.retain or None)
                if self._target is not None:
                    self._target = token
                return {"token": str(token), "content": True}
        else:
            first = _token(start)
        feed = table.changes(first, until=self._target, before=self._options.before_image)
        plan = feed.plan(**self._most(limit))
        if "startingFrom" in start:
            end = plan.until if plan.ranges else first
            return {"token": str(end), "since": str(first)}
        if plan.ranges:
            return {"token": str(plan.until)}
        self._renew()
        return start

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the parts of a micro-batch: the changes of each shard, or the content of the table."""
        until = _token(end)
        if "startingFrom" not in start:
            since = _token(start)
        elif end.get("content"):
            return self._content(until)
        else:
            since = _token(end, "since")
        ranges = self._table.changes(since, until=until, before=self._options.before_image).plan().ranges
        if not ranges:
            return []
        # With the columns that Spark expects, whatever was altered since the stream began.
        engine, expiry = self._table.internals.base.rules_under(self._row_schema)
        source = replace(ranges[0].source, row_schema=self._row_schema, merge_engine=engine, expiry=expiry)
        return [ChangePartition(replace(one, source=source)) for one in ranges]

    def _content(self, at: SnapshotToken) -> Sequence[InputPartition]:
        """Return the parts of the content of the table, with the columns that Spark expects."""
        names = [name for name in self._schema.names if name not in _ADDED.names]
        there = self._table.internals.reader.at(at).base.row_schema
        columns = resolve(there, self._row_schema).select(names)
        plan = self._table.scan(columns.source_names or None, at=at).plan()
        parts = scan_partitions(self._options.location, plan, self._options.rows_per_partition)
        shown = replace(columns, schema=without_field_ids(columns.schema))
        return [ContentPartition(part, shown) for part in parts]

    @property
    def _row_schema(self) -> pa.Schema:
        """The columns of the table when the stream began, with their field ids."""
        _ = self._table
        assert self._began_with is not None
        return self._began_with

    def _look_at_columns(self) -> None:
        """Check whether columns of the stream have been altered.

        Raises
        ------
        SchemaError
            If they have, and the options do not say to continue.
        """
        self._table.internals.follow()
        before, now = self._row_schema, self._table.internals.row_schema
        if self._options.keep_schema or now is before or now.equals(before, check_metadata=True):
            return
        read = set(before.names if self._options.columns is None else self._options.columns)
        if self._options.columns is None:
            read |= set(now.names)
        altered = sorted(name for name in read if not _is_same(name, before, now))
        if altered:
            raise SchemaError(
                f"columns of the table have been altered since the stream began: {', '.join(altered)}",
                where=self._table.uri,
                hint="Restart the query with the current columns, nothing is lost; or let it continue with "
                'the old ones: .option("schemaChange", "keep")',
            )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part, in order."""
        convert = SparkBatches(self._schema).convert
        if isinstance(partition, ContentPartition):
            operation = INSERT if self._options.before_image else "upsert"
            yield from (convert(_as_changes(batch, operation)) for batch in partition.batches())
        elif isinstance(partition, ChangePartition):
            for changes in partition.changes.batches():
                rows = with_images(changes.rows) if self._options.before_image else changes.rows
                for batch in rows.combine_chunks().to_batches():
                    yield from map(convert, bounded(batch))

    def commit(self, end: Offset) -> None:
        """Acknowledge for the consumer, and release the snapshot that was read as content."""
        token = _token(end)
        if self._options.consumer is not None:
            self._acknowledge(str(token))
        if end.get("content"):
            self._table.release(token)

    def _most(self, limit: ReadLimit) -> dict[str, int | None]:
        """Return the limits of a micro-batch: none if Spark asks for everything, otherwise our own.

        Spark passes a limit back, or that everything has to be read. It has no limit on both rows and bytes,
        so the other one cannot pass through it.
        """
        if isinstance(limit, ReadAllAvailable):
            return {}
        return {"max_rows": self._options.max_rows, "max_bytes": self._options.max_bytes}

    @property
    def _table(self) -> Table:
        if self._opened is None:
            table = self._options.location.open()
            check_schema(self._schema, _with_added(table.schema))
            self._began_with = table.internals.row_schema
            self._opened = table
        return self._opened

    def _first(self) -> SnapshotToken | None:
        """Return the position where a stream without a checkpoint begins; None to begin with the content."""
        options, table = self._options, self._table
        if options.consumer is not None and self._has_consumer(options.consumer):
            return table.changes(consumer=options.consumer, before=options.before_image).token
        if options.starting_from == SNAPSHOT:
            # A consumer that is made now would stand for content that nobody has read yet.
            return None
        since = table.snapshot(retain=None) if options.starting_from == LATEST else options.starting_from
        return table.changes(since, consumer=options.consumer, before=options.before_image).token

    def _has_consumer(self, name: str) -> bool:
        location = self._options.location
        return read_consumer(open_store(location.uri, location.storage_options or None), name) is not None

    def _acknowledge(self, token: str) -> None:
        name = self._options.consumer
        assert name is not None
        if self._feed is None:
            since = None if self._has_consumer(name) else token
            self._feed = self._table.changes(since, consumer=name)
        self._feed.commit(token)
        self._acknowledged = token, time.monotonic()

    def _renew(self) -> None:
        """Signal that the consumer is alive, though it has nothing to acknowledge."""
        if self._acknowledged is not None:
            token, at = self._acknowledged
            if time.monotonic() - at > _RENEWAL_SECONDS:
                self._acknowledge(token)


def change_columns(options: StreamReadOptions) -> pa.Schema:
    """Return the columns of a stream: the requested ones of the table, and those of the feed.

    Raises
    ------
    TableNotFoundError
        If there is no table.
    SchemaError
        If it lacks a column, or has one with the name of a feed column.
    """
    columns = options.location.open().schema
    check_names(columns, before=options.before_image)
    return _with_added(columns if options.columns is None else selected(columns, options.columns))


def _is_same(name: str, before: pa.Schema, now: pa.Schema) -> bool:
    """Whether two schemas have the same column under a name, or both lack it."""
    if name not in before.names or name not in now.names:
        return (name in before.names) == (name in now.names)
    one, other = before.field(name), now.field(name)
    number = field_id(one)
    if one.type != other.type or number != field_id(other):
        return False
    return number is None or same_birth(number, births_of(before), births_of(now))


def _with_added(columns: pa.Schema) -> pa.Schema:
    return pa.schema([*columns, *_ADDED])


def _as_changes(rows: pa.RecordBatch, what: str) -> pa.RecordBatch:
    """Return rows of the content as changes without a log position."""
    operation, *places = _ADDED
    added = [pa.repeat(what, rows.num_rows), *(pa.nulls(rows.num_rows, one.type) for one in places)]
    return pa.RecordBatch.from_arrays(
        [*rows.columns, *added], schema=pa.schema([*rows.schema, operation, *places])
    )


def _token(offset: Offset, name: str = "token") -> SnapshotToken:
    """Return the token of a stored offset.

    Raises
    ------
    InputError
        If it was not written by Weir.
    """
    text = offset.get(name)
    if not isinstance(text, str):
        raise InputError(
            f"the checkpoint is not one of a stream of this source: it has the offset {offset!r:.200}",
            where="checkpointLocation",
            hint="Give every query its own checkpoint",
        )
    return SnapshotToken.parse(text)

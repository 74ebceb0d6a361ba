"""The data source ``"weir-events"``: readers and writers of the events of a store."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from weir.errors import OptionError
from weir.events.payloads import columns_of_table
from weir.spark.event_options import EventReadOptions, EventWriteOptions
from weir.spark.event_reader import EventBatchReader, EventStreamReader, event_columns
from weir.spark.event_writer import EventBatchWriter, EventRows, EventStreamWriter
from weir.spark.python_worker import keep_imports
from weir.spark.types import arrow_schema, spark_schema

__all__ = ["EventDataSource"]

keep_imports()


class EventDataSource(DataSource):
    """The events of a store as a source and a sink of Spark."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "weir-events"

    def schema(self) -> StructType:
        """Return the columns of a read."""
        return spark_schema(event_columns(EventReadOptions.parse(self.options)))

    def reader(self, schema: StructType) -> EventBatchReader:
        """Return the batch reader."""
        return EventBatchReader(EventReadOptions.parse(self.options), schema)

    def streamReader(self, schema: StructType) -> EventStreamReader:  # noqa: N802
        """Return the stream reader."""
        return EventStreamReader(EventReadOptions.parse(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> EventBatchWriter:
        """Return the batch writer."""
        return EventBatchWriter(*self._write(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> EventStreamWriter:  # noqa: N802
        """Return the stream writer."""
        return EventStreamWriter(*self._write(schema, overwrite))

    def _write(self, schema: StructType, overwrite: bool) -> tuple[EventWriteOptions, EventRows]:
        if overwrite:
            raise OptionError(
                "events are appended, and never overwritten", where="mode", hint='Use .mode("append")'
            )
        options = EventWriteOptions.parse(self.options)
        with options.open() as store:
            rows = EventRows.of(options, store)
        # What no row could make up for is told before any task runs.
        columns_of_table(rows.kind, arrow_schema(schema).empty_table())
        return options, rows

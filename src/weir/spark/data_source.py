"""The data source ``"weir"``: its readers and writers for batches and streams.

Spark creates a new data source in a separate process for nearly every call, so it holds only its options, and
everything it returns can be pickled.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from weir.spark.batch_reader import BatchReader, PushdownBatchReader, table_columns
from weir.spark.batch_writer import BatchWriter
from weir.spark.kept_tables import process_tables
from weir.spark.python_worker import keep_imports
from weir.spark.read_options import BatchReadOptions, StreamReadOptions, reads_changes
from weir.spark.sink import prepare
from weir.spark.stream_reader import StreamReader, change_columns
from weir.spark.stream_writer import StreamWriter
from weir.spark.types import spark_schema
from weir.spark.write_options import WriteOptions

__all__ = ["WeirDataSource"]

keep_imports()


class WeirDataSource(DataSource):
    """A Weir table as a source and a sink of Spark."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "weir"

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the batch writer."""
        options = WriteOptions.parse(self.options)
        table = options.location.open(fsync=options.fsync)
        return BatchWriter(options, prepare(table, options, schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        """Return the stream writer."""
        options = WriteOptions.parse(self.options)
        options.check_stream()
        table = process_tables.newest(options.location, fsync=options.fsync)
        with process_tables.in_use(table):
            return StreamWriter(options, prepare(table, options, schema, overwrite), table)

    def schema(self) -> StructType:
        """Return the columns of a read. Spark does not say whether it is a batch or a stream."""
        if reads_changes(self.options):
            return spark_schema(change_columns(StreamReadOptions.parse(self.options)))
        return spark_schema(table_columns(BatchReadOptions.parse(self.options)))

    def reader(self, schema: StructType) -> BatchReader:
        """Return the batch reader."""
        options = BatchReadOptions.parse(self.options)
        return (PushdownBatchReader if options.push_filters else BatchReader)(options, schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        """Return the stream reader of a table's changes."""
        return StreamReader(StreamReadOptions.parse(self.options), schema)

"""The format ``"weir"`` as Spark sees it: which class reads and which writes, in batches and streams.

Spark makes the data source anew in a process of its own for nearly every call, so it holds nothing but
its options, and everything it hands out can be pickled.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from weir.spark.batch_reader import BatchReader, PushdownBatchReader, table_columns
from weir.spark.batch_writer import BatchWriter
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
        """Return what writes a data frame."""
        options = WriteOptions.parse(self.options)
        table = options.location.open(fsync=options.fsync)
        return BatchWriter(options, prepare(table, options, schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        """Return what writes a streaming query."""
        options = WriteOptions.parse(self.options)
        options.check_stream()
        table = options.location.open(fsync=options.fsync)
        return StreamWriter(options, prepare(table, options, schema, overwrite), table)

    def schema(self) -> StructType:
        """Return the columns of a read. Spark does not say whether for a batch or a stream."""
        if reads_changes(self.options):
            return spark_schema(change_columns(StreamReadOptions.parse(self.options)))
        return spark_schema(table_columns(BatchReadOptions.parse(self.options)))

    def reader(self, schema: StructType) -> BatchReader:
        """Return what reads a table in a batch."""
        options = BatchReadOptions.parse(self.options)
        return (PushdownBatchReader if options.push_filters else BatchReader)(options, schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        """Return what reads the changes of a table as a stream."""
        return StreamReader(StreamReadOptions.parse(self.options), schema)

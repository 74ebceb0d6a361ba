"""The batch source: a scan of one snapshot of a table, planned on the driver and read by executors.

Spark plans a data frame when it is first used, and may keep the plan as long as the data frame exists. So a
later query on a data frame can see the same state of the table as the first one: load the table again to see
a newer state, and use the option ``at`` to pin a state.

For the same reason filters are not pushed down by default. Spark 4 keeps a plan together with the filters
that were pushed into it, and reuses it for the next query without filters, or for another use of the data
frame in the same query: rows would be missing. The option ``filter`` belongs to the data frame and is correct
in every query.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from weir.lsm.filters import check_filter
from weir.snapshots.snapshot import STRONG
from weir.spark.filters import push_filters
from weir.spark.read_options import BatchReadOptions
from weir.spark.scan_partition import ScanPartition, scan_partitions
from weir.spark.types import SparkBatches, check_schema, selected
from weir.table.table import Table

__all__ = ["BatchReader", "PushdownBatchReader", "table_columns"]


class BatchReader(DataSourceReader):
    """Reads a table, or some of its columns, as of one snapshot.

    Parameters
    ----------
    options : BatchReadOptions
        What to read.
    schema : StructType
        The columns that Spark expects.

    Raises
    ------
    SchemaError
        If the table does not have them.
    """

    def __init__(self, options: BatchReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._conditions: tuple[str, ...] = () if options.filter is None else (options.filter,)

    def partitions(self) -> Sequence[InputPartition]:
        """Take the snapshot and return the parts for the tasks."""
        options = self._options
        table = options.location.open()
        check_schema(self._schema, table_columns(options, table))
        at = table.snapshot(retain=options.retain) if options.retain else options.at
        plan = table.scan(
            self._schema.names,
            filter=" AND ".join(f"({one}\n)" for one in self._conditions) or None,
            at=at,
            consistency=STRONG if at is not None else options.consistency,
        ).plan()
        return scan_partitions(options.location, plan, options.rows_per_partition)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part."""
        # Without partitions Spark makes one of its own.
        if isinstance(partition, ScanPartition):
            convert = SparkBatches(self._schema).convert
            yield from map(convert, partition.batches())


class PushdownBatchReader(BatchReader):
    """Reads with pushed-down filters, for a data frame that is used in one query and once in it.

    A separate class, because Spark decides by the presence of the method whether a source takes filters.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Accept the filters that Lance evaluates exactly as Spark would, and return the others."""
        result = push_filters(filters, table_columns(self._options))
        self._conditions += result.conditions
        return result.left


def table_columns(options: BatchReadOptions, table: Table | None = None) -> pa.Schema:
    """Return the columns to read, as of the state to read.

    Raises
    ------
    TableNotFoundError
        If there is no table.
    SchemaError, FilterError
        If it lacks a column, or the filter does not fit the columns.
    SnapshotExpiredError
        If garbage collection has passed the state.
    """
    table = options.location.open() if table is None else table
    schema = table.schema if options.at is None else table.scan(at=options.at).plan().schema
    if options.filter is not None:
        check_filter(schema, options.filter)
    return schema if options.columns is None else selected(schema, options.columns)

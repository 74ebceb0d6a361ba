"""The batch source: a scan of a table as of one snapshot, planned on the driver and read by executors.

Spark plans a data frame when it is used for the first time, and may keep the plan for as long as it has the
data frame. So a data frame can show, in a later query, the state of the table that the first one saw: load
the table again to see a newer one, and name a state with the option ``at`` to see the same one for certain.

For the same reason filters are not pushed down unless asked for. Spark 4 keeps a plan together with the
filters that were pushed into it, and takes it again for the next query that has none, or for another use of
the data frame in the same query: rows would be missing. The option ``filter`` belongs to the data frame, and
is right in every query.
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
        """Take the snapshot, and return the parts that the tasks read."""
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
    """Reads what passes the filters of a query, for a data frame that is used in one query and once in it.

    A class of its own, because Spark asks whether a source takes filters by whether it has the method.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take the filters that Lance evaluates exactly as Spark would, and return the others."""
        result = push_filters(filters, table_columns(self._options))
        self._conditions += result.conditions
        return result.left


def table_columns(options: BatchReadOptions, table: Table | None = None) -> pa.Schema:
    """Return the columns that are read, as the table has them in the state that is read.

    Raises
    ------
    TableNotFoundError
        If there is no table.
    SchemaError, FilterError
        If it does not have one of the columns, or the filter does not fit them.
    SnapshotExpiredError
        If garbage collection has passed the state.
    """
    table = options.location.open() if table is None else table
    schema = table.schema if options.at is None else table.scan(at=options.at).plan().schema
    if options.filter is not None:
        check_filter(schema, options.filter)
    return schema if options.columns is None else selected(schema, options.columns)

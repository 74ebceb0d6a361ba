"""SQL over the merged view: a query, run by DataFusion over the part of one snapshot it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
from datafusion import DataFrame, Expr, column, lit

from weir.lsm.filters import check_filter
from weir.read.result import RowResult
from weir.read.scan import Scan
from weir.read.sql_query import Needed, needed_by, quoted, sql_context, sql_failure
from weir.schema.relabel import nulls_inside
from weir.schema.sql_nesting import MAX_DEPTH, on_a_deep_stack

__all__ = ["SqlQuery"]


class SqlQuery(RowResult):
    """A SQL query over a table, ready to run; each method that returns rows runs it again.

    Parameters
    ----------
    query : str
        The query.
    schema : Schema
        The table's columns.
    name : str
        What the query calls the table.
    scan : callable
        Returns the scan of the needed part.
    top : callable
        Returns the needed rows of a query that only uses the first rows of an order.

    Raises
    ------
    QueryError
        If the query does not parse, is not a query, or names something that does not exist.
    """

    def __init__(
        self,
        query: str,
        schema: pa.Schema,
        name: str,
        scan: Callable[[Needed], Scan],
        top: Callable[[Needed], pa.Table],
    ) -> None:
        self._asked = {"query": query}
        self._query = query
        self._schema = schema
        self._name = name
        self._scan = scan
        self._top = top
        self.needed = needed_by(query, schema, name, check_filter)

    def explain(self) -> str:
        """Return which columns and rows are read of the table, and how."""
        needed = self.needed
        lines = [f"reads {', '.join(needed.columns) or 'no columns, but how many rows there are'}"]
        if needed.top is not None:
            lines[0] += f": the primary key and {', '.join(needed.top.columns)} first, "
            lines[0] += f"the others of the {needed.top.rows} rows that they choose"
            needed = replace(needed, columns=needed.top.columns)
        return "\n".join([*lines, self._scan(needed).explain()])

    def to_table(self) -> pa.Table:
        """Return the result as a table."""
        # Planned in our own thread, run by the library's.
        return on_a_deep_stack(MAX_DEPTH, self._result, self._needed_rows())

    def _result(self, rows: pa.Table) -> pa.Table:
        frame = self._frame(rows)
        try:
            batches = frame.collect()
            schema = frame.schema()
        except Exception as error:  # DataFusion raises nothing more specific
            raise sql_failure(self._query, error, self._schema, self._name) from error
        return pa.Table.from_batches(batches, schema=batches[0].schema if batches else schema)

    def _frame(self, rows: pa.Table) -> DataFrame:
        context = sql_context()
        rows = nulls_inside(rows)
        batches = rows.to_batches() or [pa.RecordBatch.from_pylist([], schema=rows.schema)]
        # The query sees them through a view with every column, and cannot mean them by their own name.
        name = f"rows of {self._name}"
        context.register_record_batches(quoted(name), [batches])
        shown = [
            column(quoted(field.name)) if field.name in self.needed.columns else _absent(field)
            for field in self._schema
        ]
        context.register_view(quoted(self._name), context.table(quoted(name)).select(*shown))
        try:
            return context.sql(self._query)
        except Exception as error:  # DataFusion raises nothing more specific
            raise sql_failure(self._query, error, self._schema, self._name) from error

    def _needed_rows(self) -> pa.Table:
        if self.needed.top is not None:
            return self._top(self.needed)
        scan = self._scan(self.needed)
        return scan.to_table() if self.needed.columns else pa.table({"_": pa.nulls(scan.count())})


def _absent(field: pa.Field) -> Expr:
    return lit(None).cast(field.type).alias(field.name)

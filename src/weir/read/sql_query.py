"""What a SQL query needs of a table, from the scans in DataFusion's optimised plan.

DataFusion prunes columns and pushes conditions down to the scans of a plan. What it finds out is handed
to a scan of the merged view; the query then runs over the rows that come back, with every condition
applied once more, so that reading too much changes no result.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from datafusion import SessionConfig, SessionContext, SQLOptions
from datafusion.expr import Column, Filter, Limit, Projection, Sort, SubqueryAlias, TableScan
from datafusion.plan import LogicalPlan
from datafusion.unparser import Dialect, Unparser

from weir.errors import FilterError, QueryError
from weir.schema.relabel import nullable_inside
from weir.schema.sql_nesting import MAX_DEPTH, on_a_deep_stack, refuse_unsafe
from weir.sharding.sql import why_unstable

__all__ = ["Needed", "Top", "needed_by", "quoted", "sql_context", "sql_failure"]

_ONLY_QUERIES = SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)
_TEXT = re.compile(r"('(?:[^']|'')*')")
_INSTANT = re.compile(
    r"CAST\('(?P<text>[-\d]+[T ][\d:]+(?:\.\d{1,6}(?P<fraction>\d*))?(?:Z|[-+][\d:]+))' AS TIMESTAMP[^)]*\)"
)
"""A time with its zone, as the unparser writes it."""
_WHERE = " WHERE "
_SCAN = "TableScan: "
_MOST_TOP_ROWS = 10_000
_SUBQUERIES_IN_EXPRESSIONS = "datafusion.optimizer.enable_physical_uncorrelated_scalar_subquery"
"""Whether a plan keeps ``(SELECT max(x) FROM t)`` in an expression, out of its inputs, or makes it a join."""
_UNKNOWN_TABLE = re.compile(r"table '(?:datafusion\.(?:public\.)?)?(?P<name>.*)' not found")
_ADVICE = re.compile(r"\s+(?:Valid fields are|Column names are case sensitive)")


@dataclass(frozen=True, slots=True)
class Top:
    """The first rows of an order, when a query uses no others.

    Parameters
    ----------
    columns : tuple of str
        The columns that decide which these are.
    clauses : str
        The condition, the order and the number of rows, as DataFusion reads them after ``FROM``.
    rows : int
        How many they are at most.
    """

    columns: tuple[str, ...]
    clauses: str
    rows: int


@dataclass(frozen=True, slots=True)
class Needed:
    """What a query needs of a table.

    Parameters
    ----------
    columns : tuple of str
        The columns, in the table's order; empty if only the number of rows counts.
    filter : str or None
        A condition met by every row that the query uses; None if it may use all.
    limit : int or None
        How many such rows are enough, whichever they are; None if all are needed.
    top : Top or None
        Which rows are used, if these are few and determined by some of the columns.
    """

    columns: tuple[str, ...]
    filter: str | None
    limit: int | None
    top: Top | None = None


def sql_context() -> SessionContext:
    """Return a session for one query. Names of columns are taken as they are written."""
    return SessionContext(_settings())


def _settings() -> SessionConfig:
    return SessionConfig().set("datafusion.sql_parser.enable_ident_normalization", "false")


def needed_by(query: str, schema: pa.Schema, name: str, accepts: Callable[[pa.Schema, str], None]) -> Needed:
    """Return what a query needs of the table.

    Parameters
    ----------
    query : str
        One SQL query.
    schema : Schema
        The table's columns.
    name : str
        What the query calls the table.
    accepts : callable
        Raises :class:`~weir.errors.FilterError` for a condition that a scan does not take; it is then
        left to the query itself.

    Raises
    ------
    QueryError
        If it does not parse, is not a query, or names something that does not exist.
    """
    if not isinstance(name, str) or not name:
        raise QueryError(f"the name of a table in a query is a text, got {name!r}", where="name")
    if not isinstance(query, str):
        raise QueryError(f"a query is a text, got {query!r:.60}", where="query")
    refuse_unsafe(query, "the query", where="query", error=QueryError)
    return on_a_deep_stack(MAX_DEPTH, _needed_by, query, schema, name, accepts)


def _needed_by(query: str, schema: pa.Schema, name: str, accepts: Callable[[pa.Schema, str], None]) -> Needed:
    context = SessionContext(_settings().set(_SUBQUERIES_IN_EXPRESSIONS, "false"))
    # A column without nulls lets the plan decide "id IS NULL" by itself and ask for no such column; the
    # query, which sees nulls where nothing was asked for, would decide otherwise.
    nullable = pa.schema([field.with_nullable(True) for field in nullable_inside(schema)])
    context.register_record_batches(quoted(name), [[_empty(nullable)]])
    try:
        plan = context.sql_with_options(query, _ONLY_QUERIES).optimized_logical_plan()
    except Exception as error:  # DataFusion raises nothing more specific
        raise sql_failure(query, error, schema, name) from error
    scans: list[tuple[TableScan, str | None]] = []
    _collect(plan, None, scans)
    if plan.display_indent().count(_SCAN) > len(scans):
        # A subquery remains in an expression, such as the argument of an aggregate: it may use any rows.
        return Needed(tuple(schema.names), None, None)
    asked = {column for scan, _ in scans for _, column in scan.projection()}
    conditions = [condition for _, condition in scans]
    every = [condition for condition in conditions if condition is not None]
    filter = None
    if every and len(every) == len(conditions):
        filter = every[0] if len(every) == 1 else " OR ".join(f"({one})" for one in every)
        try:
            accepts(schema, filter)
        except FilterError:
            filter = None
    columns = tuple(column for column in schema.names if column in asked)
    limit = _limit(plan, is_filtered=filter is not None) if len(scans) == 1 else None
    top = _top(plan, schema) if len(scans) == 1 and limit is None else None
    if top is not None and not asked - set(top.columns):
        top = None
    return Needed(columns, filter, limit, top)


def sql_failure(query: str, error: Exception, schema: pa.Schema, name: str) -> QueryError:
    """Return the error that says why a query cannot be used."""
    reason = str(error).removeprefix("DataFusion error: ")
    # The rest is DataFusion settings that cannot be made here, and columns, which the hint has.
    reason = _ADVICE.split(reason)[0]
    unknown = _UNKNOWN_TABLE.search(reason)
    if unknown is not None:
        return QueryError(
            f"the query {query!r} cannot be run: there is no table {unknown['name']!r}",
            where="query",
            hint=f"The query calls the table {name!r}; pass name= to call it otherwise",
        )
    return QueryError(
        f"the query {query!r} cannot be run: {reason}",
        where="query",
        hint=f"The columns are {', '.join(schema.names)}; names are case-sensitive",
    )


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)


def _collect(plan: LogicalPlan, condition: str | None, scans: list[tuple[TableScan, str | None]]) -> None:
    node = plan.to_variant()
    if isinstance(node, TableScan):
        scans.append((node, condition))
        return
    inputs = plan.inputs()
    # Only a condition right above a scan is about the scan's rows alone.
    over_scan = isinstance(node, Filter) and isinstance(inputs[0].to_variant(), TableScan)
    for below in inputs:
        _collect(below, _condition(plan) if over_scan else None, scans)


def _condition(filter: LogicalPlan, mark: str = "`") -> str | None:
    """Return the condition of a filter over a scan; None if it cannot be written, or not be asked twice.

    Parameters
    ----------
    mark : str
        What names of columns are put in: Lance takes backticks, DataFusion double quotes.
    """
    predicate = filter.to_variant().predicate()
    if why_unstable(predicate) is not None:
        # The query applies it once more: of random() < 0.5 a quarter would be left.
        return None
    if any(one in str(predicate) for one in ("''", "\\'")):
        # The unparser mishandles a quote that follows a quote or a backslash in a text.
        return None
    try:
        text: str = Unparser(Dialect.default()).plan_to_sql(filter)
    except Exception:  # DataFusion raises nothing more specific
        return None
    scan = filter.inputs()[0].to_variant()
    table = scan.table_name()
    qualifier = re.compile(
        rf'(?:\b{re.escape(table)}|{re.escape(quoted(table))})\.(?:"((?:[^"]|"")+)"|(\w+))'
    )

    def column(match: re.Match[str]) -> str:
        name = (match[1] or match[2]).replace(chr(34) * 2, chr(34))
        return quoted(name) if mark == '"' else f"`{name}`"

    try:
        condition = _INSTANT.sub(_instant, text.split(_WHERE, 1)[1])
    except pa.ArrowException:
        return None
    parts = _TEXT.split(condition)
    return "".join(part if at % 2 else qualifier.sub(column, part) for at, part in enumerate(parts))


def _instant(match: re.Match[str]) -> str:
    """Return an instant as a literal in UTC, whatever zone its text has."""
    unit, name = ("ns", "Nanosecond") if match["fraction"] else ("us", "Microsecond")
    number = pa.scalar(match["text"]).cast(pa.timestamp(unit, "UTC")).value
    return f"arrow_cast({number}, 'Timestamp({name}, Some(\"UTC\"))')"


def _top(plan: LogicalPlan, schema: pa.Schema) -> Top | None:
    """Return the rows that the lowest order with a limit leaves, if columns of the table decide it.

    Whatever the query does above that order it does to these rows alone.
    """
    chain = []
    while not isinstance(plan.to_variant(), TableScan):
        inputs = plan.inputs()
        if len(inputs) != 1:
            return None
        chain.append(plan)
        (plan,) = inputs
    at = max((at for at, one in enumerate(chain) if _fetched(one) is not None), default=None)
    if at is None:
        return None
    rows = _fetched(chain[at])
    assert rows is not None
    condition = None
    for below in chain[at + 1 :]:
        node = below.to_variant()
        if isinstance(node, Filter) and below is chain[-1]:
            condition = _condition(below, '"')
            if condition is None:
                return None
        elif isinstance(node, Projection):
            if not all(isinstance(one.to_variant(), Column) for one in node.projections()):
                return None
        elif not isinstance(node, SubqueryAlias):
            return None
    keys = [(one, one.expr().to_variant()) for one in chain[at].to_variant().sort_exprs()]
    if rows > _MOST_TOP_ROWS or not all(isinstance(column, Column) for _, column in keys):
        return None
    order = ", ".join(
        f"{quoted(column.name())} {'ASC' if one.ascending() else 'DESC'} "
        f"NULLS {'FIRST' if one.nulls_first() else 'LAST'}"
        for one, column in keys
    )
    # Names in a text count as columns, too, and are read in vain.
    deciding = {column.name() for _, column in keys}
    deciding |= {name for name in schema.names if condition is not None and quoted(name) in condition}
    where = "" if condition is None else f"WHERE {condition} "
    columns = tuple(name for name in schema.names if name in deciding)
    top = Top(columns, f"{where}ORDER BY {order} LIMIT {rows}", rows)
    return top if _can_be_run(top, pa.schema([schema.field(name) for name in columns])) else None


def _can_be_run(top: Top, schema: pa.Schema) -> bool:
    """Whether the condition reads back: not every value does, and it may have queries in it."""
    context = sql_context()
    context.register_record_batches("_", [[_empty(schema)]])
    try:
        # Optimised, because only then types are compared.
        context.sql(f"SELECT 1 FROM _ {top.clauses}").optimized_logical_plan()
    except Exception:  # DataFusion raises nothing more specific
        return False
    return True


def _fetched(plan: LogicalPlan) -> int | None:
    node = plan.to_variant()
    rows: int | None = node.get_fetch_val() if isinstance(node, Sort) else None
    return rows


def quoted(name: str) -> str:
    """Return the name of a column or a table as DataFusion reads it."""
    return '"' + name.replace('"', '""') + '"'


def _limit(plan: LogicalPlan, *, is_filtered: bool) -> int | None:
    """Return the limit of a query that only selects, filters and limits.

    Parameters
    ----------
    is_filtered : bool
        Whether the scan applies the condition right above it. The selectivity of other conditions is unknown,
        so a limit above one does not bound the number of rows needed.
    """
    limit = None
    while True:
        node = plan.to_variant()
        if isinstance(node, TableScan):
            return limit
        if isinstance(node, Limit):
            found = re.match(r"Limit: skip=(\d+), fetch=(\d+)", plan.display())
            if found is None:
                return None
            skipped, fetched = int(found[1]), int(found[2])
            limit = skipped + (fetched if limit is None else min(limit, fetched))
        elif isinstance(node, Filter):
            if not (is_filtered and isinstance(plan.inputs()[0].to_variant(), TableScan)):
                limit = None
        elif not isinstance(node, (Projection, SubqueryAlias)):
            return None
        (plan,) = plan.inputs()

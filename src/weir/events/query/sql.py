"""SQL over events: conditions of a call, and whole queries in which every type is a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from datafusion import DataFrame, Expr, SessionContext, SQLOptions, col, lit
from datafusion.expr import TableScan
from datafusion.plan import LogicalPlan

from weir.errors import QueryError
from weir.events.catalog import Catalog
from weir.events.clock import HybridClock
from weir.events.query.explaining import described_scan
from weir.events.query.planner import QueryPlan
from weir.events.query.reading import Bounds, StepRead, StepsRead
from weir.events.query.running import observe, run_rows, selected
from weir.events.query.scope import Column, Scope
from weir.events.query.sessions import frame_of, session
from weir.events.result import Result
from weir.schema.sql_nesting import MAX_DEPTH, on_a_deep_stack, refuse_deep
from weir.table.table import Table

__all__ = ["SqlPlan", "query_by_sql"]

_ONLY_QUERIES = SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)


def _failure(text: str, error: Exception, columns: Sequence[str]) -> QueryError:
    reason = str(error).removeprefix("DataFusion error: ").split("Valid fields are")[0].strip()
    return QueryError(
        f"{text!r:.200} cannot be used: {reason:.400}", where="query", hint=f"There are {', '.join(columns)}"
    )


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _shown(columns: Sequence[Column], frame: DataFrame) -> DataFrame:
    """Return a frame with the names of a result, of which those that were not read are null."""
    have = set(frame.schema().names)
    return frame.select(
        *(
            (col(one.internal) if one.internal in have else lit(None).cast(one.type.arrow)).alias(one.name)
            for one in columns
        )
    )


def _read_columns(plan: LogicalPlan, found: dict[str, set[str]]) -> None:
    node = plan.to_variant()
    if isinstance(node, TableScan):
        found.setdefault(node.table_name(), set()).update(name for _, name in node.projection())
    for below in plan.inputs():
        _read_columns(below, found)


def _empty(columns: Sequence[Column]) -> pa.Table:
    return pa.schema([pa.field(one.name, one.type.arrow) for one in columns]).empty_table()


def _registered(context: SessionContext, name: str, table: pa.Table) -> None:
    batches = table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
    context.register_record_batches(_quoted(name), [batches])


# --- A condition ---------------------------------------------------------------------------------


def query_by_sql(plan: QueryPlan, where: str, clock: HybridClock) -> Result:
    """Return the rows of a query that also meet a condition in SQL.

    Raises
    ------
    QueryError
        If the condition does not parse, or names what there is not.
    """
    if not isinstance(where, str):
        raise QueryError(f"a condition is a text, got {where!r:.80}", where="where")
    refuse_deep(where, "the condition", where="where", error=QueryError)
    columns = plan.scope.columns_of(0)
    names = [one.name for one in columns]

    def parsed(frame: DataFrame) -> Expr:
        return frame.parse_sql_expr(where)

    def needed() -> set[str]:
        context = session()
        _registered(context, "t", _empty(columns))
        frame = context.table(_quoted("t"))
        try:
            found: dict[str, set[str]] = {}
            _read_columns(frame.filter(parsed(frame)).select(lit(1)).optimized_logical_plan(), found)
        except Exception as error:  # DataFusion raises nothing more specific
            raise _failure(where, error, names) from None
        return found.get("t", set())

    asked: set[str] = on_a_deep_stack(MAX_DEPTH, needed)
    step = plan.read.steps[0]
    more = {one.internal: one for one in (*step.columns, *(one for one in columns if one.name in asked))}
    read = replace(plan.read, steps=(replace(step, columns=tuple(more.values())),))
    whole = replace(plan, read=read)

    def run() -> pa.Table:
        def rows() -> pa.Table:
            frame = selected(whole, 0, frame_of(whole.read.tables()[0]))
            try:
                named = _shown(columns, frame).filter(parsed(_shown(columns, frame)))
                renamed = named.select(*(col(_quoted(one.name)).alias(one.internal) for one in columns))
                return run_rows(whole, renamed, clock)
            except Exception as error:  # DataFusion raises nothing more specific
                raise _failure(where, error, names) from None

        result: pa.Table = on_a_deep_stack(MAX_DEPTH, rows)
        return result

    def explain() -> str:
        lines = described_scan(whole.read.scan(), whole.read.catalog, whole.scope.types)
        return "\n".join([f"query of {whole.scope.types[0].name} where {where}", *lines])

    return Result(run, explain, plan.warnings)


# --- Whole queries -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SqlPlan:
    """A query in SQL that can be run.

    Parameters
    ----------
    query : str
        The query.
    reads : tuple of StepsRead
        One for all types that it names; none if it names none.
    """

    query: str
    reads: tuple[StepsRead, ...]

    @classmethod
    def of(cls, table: Table, catalog: Catalog, query: str) -> SqlPlan:
        """Return the plan of a query.

        Raises
        ------
        QueryError
            If it does not parse, is no query, or names what there is not.
        """
        if not isinstance(query, str):
            raise QueryError(f"a query is a text, got {query!r:.80}", where="query")
        refuse_deep(query, "the query", where="query", error=QueryError)
        found: dict[str, set[str]] = on_a_deep_stack(MAX_DEPTH, _columns_by_type, catalog, query)
        if not found:
            return cls(query, ())
        scope = Scope(tuple(catalog.types[name] for name in found))
        steps = tuple(
            StepRead(
                kind,
                tuple(
                    one
                    for one in scope.columns_of(step)
                    if one.name in found[kind.name] or one.name == "event_id"
                ),
                None,
                (),
            )
            for step, kind in enumerate(scope.types)
        )
        return cls(query, (StepsRead(table, catalog, scope, steps, Bounds()),))

    def run(self, clock: HybridClock) -> pa.Table:
        """Return the answer."""
        result: pa.Table = on_a_deep_stack(MAX_DEPTH, self._run, clock)
        return result

    def _run(self, clock: HybridClock) -> pa.Table:
        context = session()
        for read in self.reads:
            for step, table in enumerate(read.tables()):
                columns = read.scope.columns_of(step)
                observe(clock, table.column(read.scope.core(step)[0].internal))
                context.register_view(_quoted(read.scope.types[step].name), _shown(columns, frame_of(table)))
        try:
            frame = context.sql_with_options(self.query, _ONLY_QUERIES)
            batches = frame.collect()
            schema = batches[0].schema if batches else frame.schema()
            return pa.Table.from_batches(batches, schema=schema)
        except Exception as error:  # DataFusion raises nothing more specific
            names = [kind.name for read in self.reads for kind in read.scope.types]
            raise _failure(self.query, error, names) from None

    def explain(self) -> str:
        """Return how the answer is found."""
        lines = [f"SQL {self.query}"]
        for read in self.reads:
            lines += described_scan(read.scan(), read.catalog, read.scope.types)
        return "\n".join(lines)


def _columns_by_type(catalog: Catalog, query: str) -> dict[str, set[str]]:
    context = session()
    for name, kind in catalog.types.items():
        _registered(context, name, _empty(Scope((kind,)).columns_of(0)))
    found: dict[str, set[str]] = {}
    try:
        _read_columns(context.sql_with_options(query, _ONLY_QUERIES).optimized_logical_plan(), found)
    except Exception as error:  # DataFusion raises nothing more specific
        raise _failure(query, error, list(catalog.types)) from None
    return {name: columns for name, columns in found.items() if name in catalog.types}

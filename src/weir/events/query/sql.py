"""SQL over events: conditions of calls, and whole queries in which every type is a table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from datafusion import DataFrame, SessionContext, SQLOptions, col, lit
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
from weir.schema.sql_nesting import MAX_DEPTH, on_a_deep_stack, refuse_unsafe
from weir.table.table import Table

__all__ = ["ConditionPlan", "SqlPlan"]

# Names of types have no spaces and no dots.
_SCANNED = re.compile(r"^ *TableScan: (\S+)", re.MULTILINE)
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
    """Return a frame with the column names of a result; columns that were not read are null."""
    have = set(frame.schema().names)
    return frame.select(
        *(
            (col(one.internal) if one.internal in have else lit(None).cast(one.type.arrow)).alias(one.name)
            for one in columns
        )
    )


def _read_columns(plan: LogicalPlan, found: dict[str, set[str]]) -> int:
    """Add the columns that a plan reads, by table; return its number of scans, without subqueries."""
    node = plan.to_variant()
    if isinstance(node, TableScan):
        found.setdefault(node.table_name(), set()).update(name for _, name in node.projection())
        return 1
    return sum(_read_columns(below, found) for below in plan.inputs())


def _empty(columns: Sequence[Column]) -> pa.Table:
    return pa.schema([pa.field(one.name, one.type.arrow) for one in columns]).empty_table()


def _registered(context: SessionContext, name: str, table: pa.Table) -> None:
    batches = table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
    context.register_record_batches(_quoted(name), [batches])


# --- A condition ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConditionPlan:
    """A query of one type with a SQL condition, ready to run.

    Parameters
    ----------
    plan : QueryPlan
        The query, which also reads the columns of the condition.
    where : str
        The condition.
    """

    plan: QueryPlan
    where: str

    @classmethod
    def of(cls, plan: QueryPlan, where: str) -> ConditionPlan:
        """Return the plan of a query without another condition.

        Raises
        ------
        QueryError
            If the condition does not parse, or names something that does not exist.
        """
        if not isinstance(where, str):
            raise QueryError(f"a condition is a text, got {where!r:.80}", where="where")
        refuse_unsafe(where, "the condition", where="where", error=QueryError)
        columns = plan.scope.columns_of(0)
        asked: set[str] = on_a_deep_stack(MAX_DEPTH, _columns_of_condition, where, columns)
        step = plan.read.steps[0]
        more = {one.internal: one for one in (*step.columns, *(one for one in columns if one.name in asked))}
        read = replace(plan.read, steps=(replace(step, columns=tuple(more.values())),))
        return cls(replace(plan, read=read), where)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the query ignored."""
        return self.plan.warnings

    def run(self, clock: HybridClock) -> pa.Table:
        """Return the result."""
        result: pa.Table = on_a_deep_stack(MAX_DEPTH, self._run, clock)
        return result

    def _run(self, clock: HybridClock) -> pa.Table:
        columns = self.plan.scope.columns_of(0)
        frame = _shown(columns, selected(self.plan, 0, frame_of(self.plan.read.tables()[0])))
        try:
            named = frame.filter(frame.parse_sql_expr(self.where))
            renamed = named.select(*(col(_quoted(one.name)).alias(one.internal) for one in columns))
            return run_rows(self.plan, renamed, clock)
        except Exception as error:  # DataFusion raises nothing more specific
            raise _failure(self.where, error, [one.name for one in columns]) from None

    def explain(self) -> str:
        """Return the explanation."""
        read, types = self.plan.read, self.plan.scope.types
        lines = described_scan(read.scan(), read.catalog, types)
        return "\n".join([f"query of {types[0].name} where {self.where}", *lines])


def _columns_of_condition(where: str, columns: Sequence[Column]) -> set[str]:
    context = session()
    _registered(context, "t", _empty(columns))
    frame = context.table(_quoted("t"))
    found: dict[str, set[str]] = {}
    try:
        condition = frame.parse_sql_expr(where)
        _read_columns(frame.filter(condition).select(lit(1)).optimized_logical_plan(), found)
    except Exception as error:  # DataFusion raises nothing more specific
        raise _failure(where, error, [one.name for one in columns]) from None
    return found.get("t", set())


# --- Whole queries -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SqlPlan:
    """A SQL query that is ready to run.

    Parameters
    ----------
    query : str
        The query.
    reads : tuple of StepsRead
        One for all types that it names; empty if it names none.
    warnings : tuple of str
        Always empty.
    """

    query: str
    reads: tuple[StepsRead, ...]
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, table: Table, catalog: Catalog, query: str) -> SqlPlan:
        """Return the plan of a query.

        Raises
        ------
        QueryError
            If it does not parse, is not a query, or names something that does not exist.
        """
        if not isinstance(query, str):
            raise QueryError(f"a query is a text, got {query!r:.80}", where="query")
        refuse_unsafe(query, "the query", where="query", error=QueryError)
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
        """Return the result."""
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
        """Return the explanation."""
        lines = [f"SQL {self.query}"]
        for read in self.reads:
            lines += described_scan(read.scan(), read.catalog, read.scope.types)
        return "\n".join(lines)


def _columns_by_type(catalog: Catalog, query: str) -> dict[str, set[str]]:
    """Return the types that a query names, each with the columns it may read."""
    context = session()
    for name, kind in catalog.types.items():
        _registered(context, name, _empty(Scope((kind,)).columns_of(0)))
    found: dict[str, set[str]] = {}
    try:
        frame = context.sql_with_options(query, _ONLY_QUERIES)
        named = _scans(frame.logical_plan())
        optimized = frame.optimized_logical_plan()
        visible = _read_columns(optimized, found)
    except Exception as error:  # DataFusion raises nothing more specific
        raise _failure(query, error, list(catalog.types)) from None
    # A subquery may be no input of the plan, and a condition that never holds leaves no table in it.
    is_whole = visible == len(_scans(optimized))
    return {
        name: found[name] if is_whole and name in found else set(kind.schema.names)
        for name, kind in catalog.types.items()
        if name in named or name in found
    }


def _scans(plan: LogicalPlan) -> list[str]:
    """Return the tables that a plan scans, including those of its subqueries."""
    return [name.rsplit(".", 1)[-1] for name in _SCANNED.findall(plan.display_indent())]

"""Runs the plan of a query: DataFusion turns the rows read into the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datafusion import DataFrame, Expr, col, functions
from numpy.typing import NDArray

from weir.events.clock import HybridClock
from weir.events.field_types import INSTANT, FieldType
from weir.events.instants import YEARS, now_micros, to_micros
from weir.events.query.buckets import bucket_of
from weir.events.query.conditions import condition_of, fields_of_condition
from weir.events.query.explaining import described_scan
from weir.events.query.matching import matched
from weir.events.query.planner import EVERYTHING, BoundAggregate, Grouping, QueryPlan
from weir.events.query.scope import Column, failure
from weir.events.query.selecting import few_rows, is_selection
from weir.events.query.sessions import frame_of
from weir.events.visibility import all_of, instant, whole_number

__all__ = ["aggregate_type", "explain_query", "run_query", "selected", "typed_groups"]

_MOST_TOP_ROWS = 10_000
_MOST_ROWS = (1 << 63) - 1
_NUMBER = "number"


def run_query(plan: QueryPlan, clock: HybridClock) -> pa.Table:
    """Return the result of a query."""
    if _is_count(plan):
        return _counted(plan, clock)
    if _is_top(plan):
        return _top_rows(plan, clock)
    if is_selection(plan) and (few := few_rows(plan)) is not None:
        return shown_rows(plan, few, clock)
    return run_frame(plan, joined_rows(plan), clock)


def run_frame(plan: QueryPlan, frame: DataFrame, clock: HybridClock) -> pa.Table:
    """Return the result of a query from a frame with its rows."""
    return _groups(plan, frame, clock) if plan.grouping is not None else run_rows(plan, frame, clock)


def run_rows(plan: QueryPlan, frame: DataFrame, clock: HybridClock) -> pa.Table:
    """Return rows in order, with the shown columns."""
    frame = _limited(ordered_rows(plan, frame), plan)
    # One internal column may be shown under one name only, so the names are the result's own.
    return shown_rows(plan, frame.select(*(col(one.internal) for one in plan.shown)).to_arrow_table(), clock)


def shown_rows(plan: QueryPlan, rows: pa.Table, clock: HybridClock) -> pa.Table:
    """Return ordered rows with the shown columns."""
    table = rows.select([one.internal for one in plan.shown])
    result = _as(table, [one.arrow for one in plan.shown])
    for at, one in enumerate(plan.shown):
        if one.name == "event_id":
            observe(clock, result.column(at))
    return result


# --- Answers for which less is read --------------------------------------------------------------


def _is_count(plan: QueryPlan) -> bool:
    """Whether the query only counts the events of a scan."""
    grouping = plan.grouping
    return (
        grouping is not None
        and not grouping.is_grouped
        and all(one.kind == "count" and one.column is None for one in grouping.aggregates)
        and plan.window == EVERYTHING
        and plan.read.is_decided_by_scan
    )


def _counted(plan: QueryPlan, clock: HybridClock) -> pa.Table:
    assert plan.grouping is not None
    # The indexes may know it without a look at any event.
    count = plan.read.scan().count()
    observe(clock, plan.read.ids_above(clock.now()))
    fields = grouped_fields(plan.grouping)
    found = pa.table([pa.array([count], one.type) for one in fields], schema=pa.schema(fields))
    query = plan.query
    return found.slice(query.offset or 0, query.limit)


def _is_top(plan: QueryPlan) -> bool:
    """Whether the query asks for a few rows, first in some order."""
    query = plan.query
    return (
        plan.grouping is None
        and not plan.scope.is_sequence
        and plan.window == EVERYTHING
        and query.limit is not None
        and query.limit + (query.offset or 0) <= _MOST_TOP_ROWS
    )


def _top_rows(plan: QueryPlan, clock: HybridClock) -> pa.Table:
    """Return the first rows of an order, reading other columns for these rows only."""
    step = plan.read.steps[0]
    by = {one.internal for one, _ in plan.order if isinstance(one, Column)}
    by |= {plan.scope.core(0)[0].internal, "" if step.time is None else step.time.internal}
    for condition in plan.conditions[0]:
        by |= {plan.scope.get(field).internal for field in fields_of_condition(condition)}
    columns = tuple(one for one in step.columns if one.internal in by)
    narrow = replace(plan.read, steps=(replace(step, columns=columns),))

    def choose(rows: pa.Table) -> NDArray[np.int64]:
        (named,) = narrow.named(rows)
        numbered = named.append_column(_NUMBER, pa.array(np.arange(named.num_rows)))
        frame = selected(plan, 0, frame_of(numbered))
        chosen = _limited(ordered_rows(plan, frame), plan).select(col(_NUMBER)).to_arrow_table()
        found: NDArray[np.int64] = chosen.column(0).to_numpy()
        return found

    rows = plan.read.scan().chosen(narrow.column_names, choose)
    (named,) = plan.read.named(rows)
    return shown_rows(plan, named, clock)


def ordered_rows(plan: QueryPlan, frame: DataFrame) -> DataFrame:
    """Return rows in their order."""
    event_id = plan.scope.core(0)[0].internal
    sort = [_sorted(col(one.internal), down) for one, down in plan.order if isinstance(one, Column)]
    return frame.sort(*sort, _sorted(col(event_id), False))


def observe(clock: HybridClock, ids: pa.ChunkedArray) -> None:
    """Let the clock observe the events that were read."""
    newest = pc.max(ids).as_py()
    if newest is not None:
        clock.observe(newest)


def joined_rows(plan: QueryPlan) -> DataFrame:
    """Return the rows of a query: selected events, or matches of them."""
    tables = plan.read.tables()
    frames = [selected(plan, step, frame_of(table)) for step, table in enumerate(tables)]
    if not plan.scope.is_sequence:
        return within_window(plan, frames[0])
    return sequence_rows(
        plan, [finished_rows(frame, table.schema) for frame, table in zip(frames, tables, strict=True)]
    )


def sequence_rows(plan: QueryPlan, steps: Sequence[pa.Table]) -> DataFrame:
    """Return the matches of a sequence among the selected events of its steps."""
    ids = [plan.scope.core(step)[0].internal for step in range(len(steps))]
    rows = matched(
        [table.column(link.internal) for table, link in zip(steps, plan.links, strict=True)],
        [table.column(time.internal) for table, time in zip(steps, plan.times, strict=True)],
        [table.column(one) for table, one in zip(steps, ids, strict=True)],
        plan.before,
        plan.within,
    )
    columns: dict[str, pa.ChunkedArray] = {}
    used = _used_of_matches(plan)
    for table, chosen in zip(steps, rows, strict=True):
        taken = table.select([name for name in table.column_names if name in used]).take(pa.array(chosen))
        columns.update(zip(taken.column_names, taken.columns, strict=True))
    return within_window(plan, frame_of(pa.table(columns)))


def _used_of_matches(plan: QueryPlan) -> set[str]:
    """Return the columns used after matching, without those only used to match."""
    used = [plan.scope.core(step)[0] for step in range(len(plan.scope.types))]
    used += [plan.scope.core(0)[3], *plan.shown]
    used += [one for one, _ in plan.order if isinstance(one, Column)]
    grouping = plan.grouping
    if grouping is not None:
        used += [column for column, _ in grouping.by]
        used += [
            one for one in (grouping.time, *(one.column for one in grouping.aggregates)) if one is not None
        ]
    return {one.internal for one in used}


def within_window(plan: QueryPlan, frame: DataFrame) -> DataFrame:
    """Return the rows within the window of the query: the newest that are not too old."""
    event_id, _, _, timestamp = plan.scope.core(0)
    if plan.window.rows is not None:
        frame = frame.sort(_sorted(col(event_id.internal), True)).limit(plan.window.rows)
    if plan.window.age is not None:
        since = max(now_micros() - plan.window.age, to_micros(YEARS[0]))
        frame = frame.filter(col(timestamp.internal) >= instant(since))
    return frame


def finished_rows(frame: DataFrame, schema: pa.Schema) -> pa.Table:
    """Return the rows of a frame, with the columns of a schema."""
    return _as(frame.to_arrow_table(), list(schema))


def selected(plan: QueryPlan, step: int, frame: DataFrame) -> DataFrame:
    """Return the events of a step that meet its conditions and are within the bounds."""
    conditions = [
        condition_of(one, plan.scope, lambda column: col(column.internal)) for one in plan.conditions[step]
    ]
    time, bounds = plan.read.steps[step].time, plan.read.bounds
    if time is not None:
        moment = _moment(time)
        if bounds.since is not None:
            conditions.append(moment >= instant(bounds.since))
        if bounds.until is not None:
            conditions.append(moment < instant(bounds.until))
    condition = all_of(conditions)
    return frame if condition is None else frame.filter(condition)


def _moment(time: Column) -> Expr:
    return col(time.internal).cast(INSTANT) if time.type.kind == "date" else col(time.internal)


def first_rows(plan: QueryPlan, frame: DataFrame) -> DataFrame:
    """Return the rows of which the result is a part: those up to the end of LIMIT and OFFSET."""
    query = plan.query
    assert query.limit is not None
    return ordered_rows(plan, frame).limit(min(query.limit + (query.offset or 0), _MOST_ROWS))


def _sorted(expression: Expr, descending: bool) -> Expr:
    return expression.sort(ascending=not descending, nulls_first=False)  # type: ignore[return-value]


def _limited(frame: DataFrame, plan: QueryPlan) -> DataFrame:
    query = plan.query
    if query.limit is None and not query.offset:
        return frame
    return frame.limit((1 << 62) if query.limit is None else query.limit, offset=query.offset or 0)


def _as(table: pa.Table, fields: list[pa.Field]) -> pa.Table:
    schema = pa.schema([pa.field(one.name, one.type) for one in fields])
    return pa.table(
        [column.cast(one.type) for column, one in zip(table.columns, schema, strict=True)], schema=schema
    )


# --- Aggregates ----------------------------------------------------------------------------------


def aggregate_type(one: BoundAggregate) -> pa.DataType:
    """Return the type of the column of an aggregate."""
    if one.kind in ("count", "count_unique"):
        return pa.int64()
    assert one.column is not None
    if one.kind == "avg":
        return pa.float64()
    if one.kind == "total" and one.column.type.kind == "decimal":
        return pa.decimal128(38, one.column.type.scale)
    return one.column.type.arrow


def _aggregated(one: BoundAggregate) -> Expr:
    if one.column is None:
        return functions.count(whole_number(1))
    column = col(one.column.internal)
    if one.kind == "count":
        return functions.count(column)
    if one.kind == "count_unique":
        return functions.count(column, distinct=True)
    if one.kind == "min":
        return functions.min(column)
    if one.kind == "max":
        return functions.max(column)
    total = functions.sum(column.cast(summed_type(one.column.type)))
    return (
        total
        if one.kind == "total"
        else total.cast(pa.float64()) / functions.count(column).cast(pa.float64())
    )


def summed_type(kind: FieldType) -> pa.DataType:
    """Return the type in which values of a field are summed, which the sum of a table cannot overflow."""
    if kind.kind == "float":
        return pa.float64()
    # Within 128 bits there is room for 10**10 values of 28 digits.
    return pa.decimal128(38, kind.scale) if kind.precision <= 28 else pa.decimal256(76, kind.scale)


def grouped_fields(grouping: Grouping) -> list[pa.Field]:
    """Return the columns of the result of an aggregate."""
    fields = [pa.field("bucket", INSTANT)] if grouping.unit else []
    fields += [pa.field(name, column.type.arrow) for column, name in grouping.by]
    return fields + [pa.field(one.shown, aggregate_type(one)) for one in grouping.aggregates]


def _groups(plan: QueryPlan, frame: DataFrame, clock: HybridClock) -> pa.Table:
    grouping = plan.grouping
    assert grouping is not None
    keys = group_keys(grouping)
    values = [_aggregated(one).alias(f"a{at}") for at, one in enumerate(grouping.aggregates)]
    newest = [functions.max(col(plan.scope.core(step)[0].internal)) for step in range(len(plan.scope.types))]
    frame = frame.aggregate(keys, [*values, *(one.alias(f"n{at}") for at, one in enumerate(newest))]).cache()
    observe_newest(clock, frame, len(newest))
    return finished_groups(plan, frame)


def group_keys(grouping: Grouping) -> list[Expr]:
    """Return the group keys, named ``k0``, ``k1`` and so on."""
    keys = []
    if grouping.unit is not None:
        assert grouping.time is not None
        is_date = grouping.time.type.kind == "date"
        keys.append(bucket_of(col(grouping.time.internal), is_date, grouping.unit, grouping.zone).alias("k0"))
    return keys + [
        col(column.internal).alias(f"k{len(keys) + at}") for at, (column, _) in enumerate(grouping.by)
    ]


def finished_groups(plan: QueryPlan, frame: DataFrame) -> pa.Table:
    """Return groups in their order; the frame has their keys ``k0`` ... and values ``a0`` ..."""
    grouping = plan.grouping
    assert grouping is not None
    fields = grouped_fields(grouping)
    values = grouping.aggregates
    keys = fields[: len(fields) - len(values)]
    internal = [f"k{at}" for at in range(len(keys))] + [f"a{at}" for at in range(len(values))]
    of_name = {field.name: name for field, name in zip(fields, internal, strict=True)}
    order = [_sorted(col(of_name[str(name)]), down) for name, down in plan.order]
    order += [_sorted(col(f"k{at}"), False) for at in range(len(keys))]
    if order:
        frame = frame.sort(*order)
    table = _limited(frame, plan).select(*(col(name) for name in internal)).to_arrow_table()
    return typed_groups(plan, table)


def typed_groups(plan: QueryPlan, groups: pa.Table) -> pa.Table:
    """Return ordered groups as the result of a query, with its names and types."""
    assert plan.grouping is not None
    try:
        return _as(groups, grouped_fields(plan.grouping))
    except pa.ArrowInvalid:
        raise failure(
            "a total has more digits than a result can hold",
            plan.query.type.place,
            "Group by more, or use AVG",
        ) from None


def observe_newest(clock: HybridClock, frame: DataFrame, steps: int) -> None:
    """Let the clock observe the events that were aggregated."""
    for column in frame.select(*(col(f"n{at}") for at in range(steps))).to_arrow_table().columns:
        observe(clock, column)


# --- Explaining ----------------------------------------------------------------------------------


def explain_query(plan: QueryPlan) -> str:
    """Return the explanation of a query as a text."""
    scope, lines = plan.scope, []
    if scope.is_sequence:
        words = ["preceded by" if before else "followed by" for before in plan.before]
        names = [kind.name for kind in scope.types]
        chain = " ".join(part for pair in zip(names, [*words, ""], strict=True) for part in pair if part)
        lines.append(
            f"sequence {chain}, linked by {plan.links[0].name}: one pass over links and times in order"
        )
    else:
        lines.append(f"query of {scope.types[0].name}")
    if plan.grouping is not None:
        lines.append(f"  aggregates {', '.join(field.name for field in grouped_fields(plan.grouping))}")
    lines += described_scan(plan.read.scan(), plan.read.catalog, scope.types)
    return "\n".join(lines)

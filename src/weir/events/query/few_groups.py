"""States of a few events, and results of a few groups, by Arrow compute.

DataFusion takes longer to plan what it does with a few thousand rows than Arrow takes to do it. Where the two
might differ, as they do in the order of floats, it is left to DataFusion.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from weir.events.field_types import INSTANT
from weir.events.query.buckets import bucket_starts
from weir.events.query.planner import Grouping, QueryPlan
from weir.events.query.running import grouped_fields, typed_groups
from weir.events.query.sessions import FEW_ROWS
from weir.events.query.state_columns import group_texts, is_added_by_row, parts_of, state_schema

__all__ = ["few_results", "few_states"]

_EXACT = 1 << 53
"""Whole numbers of up to this size are floats without rounding."""
_FUNCTIONS = {"count": "count", "total": "sum", "min": "min", "max": "max"}


def few_states(grouping: Grouping, events: pa.Table) -> pa.Table | None:
    """Return the states of a few events; None if DataFusion has to compute them.

    Parameters
    ----------
    grouping : Grouping
        The grouping.
    events : Table
        The events that are aggregated, with internal column names.
    """
    parts = parts_of(grouping)
    if (
        events.num_rows > FEW_ROWS
        or not _has_ordered_keys(grouping)
        or not all(is_added_by_row(kind, of) for _, kind, _, of in parts)
    ):
        return None
    keys = _keys(grouping, events)
    columns = dict(keys)
    wanted: list[tuple[str | list[str], str]] = []
    names = []
    for name, kind, one, of in parts:
        if one.column is None:
            wanted.append(([], "count_all"))
            names.append("count_all")
        else:
            column = events.column(one.column.internal)
            columns[name] = column.cast(of) if kind == "total" else column
            wanted.append((name, _FUNCTIONS[kind]))
            names.append(f"{name}_{_FUNCTIONS[kind]}")
    if not columns:
        columns["none"] = pa.nulls(events.num_rows)
    found = pa.table(columns).group_by(list(keys), use_threads=False).aggregate(wanted)
    schema = state_schema(grouping)
    values = [
        found.column(name).cast(one.type) for name, one in zip([*keys, *names], list(schema)[1:], strict=True)
    ]
    return pa.table([group_texts(values[: len(keys)], found.num_rows), *values], schema=schema)


def _keys(grouping: Grouping, events: pa.Table) -> dict[str, pa.ChunkedArray]:
    found = []
    if grouping.unit is not None:
        assert grouping.time is not None
        instants = events.column(grouping.time.internal).cast(INSTANT)
        starts = [bucket_starts(one, grouping.unit, grouping.zone or "UTC") for one in instants.chunks]
        found.append(pa.chunked_array(starts, INSTANT))
    found += [events.column(column.internal) for column, _ in grouping.by]
    return {f"k{at}": column for at, column in enumerate(found)}


def few_results(plan: QueryPlan, states: pa.Table) -> pa.Table | None:
    """Return the result of a query from the states of a few groups; None if DataFusion has to compute it.

    Parameters
    ----------
    plan : QueryPlan
        The query.
    states : Table
        The state of each group.
    """
    grouping, query = plan.grouping, plan.query
    assert grouping is not None
    if (
        states.num_rows > FEW_ROWS
        or not _has_ordered_keys(grouping)
        or plan.order
        or query.limit is not None
        or query.offset
    ):
        return None
    names = [f"k{at}" for at in range(len(grouped_fields(grouping)) - len(grouping.aggregates))]
    columns = [states.column(name) for name in names]
    for at, one in enumerate(grouping.aggregates):
        if one.kind == "avg":
            total = states.column(f"a{at}_total")
            if not _is_exact(total):
                return None
            count = states.column(f"a{at}_count")
            # Where there is nothing to count there is no total either.
            columns.append(pc.divide(total.cast(pa.float64()), count.cast(pa.float64())))
        elif one.kind == "count_unique":
            sizes = pc.list_value_length(states.column(f"a{at}_values")).cast(pa.int64())
            columns.append(pc.fill_null(sizes, 0))
        else:
            columns.append(states.column(f"a{at}_{one.kind}"))
    found = pa.table(columns, names=[str(at) for at in range(len(columns))])
    if names:
        order = [(str(at), "ascending") for at in range(len(names))]
        found = found.take(pc.sort_indices(found, sort_keys=order))
    return typed_groups(plan, found)


def _is_exact(totals: pa.ChunkedArray) -> bool:
    """Whether every total is a float without rounding, so that there is one way to divide it."""
    if not pa.types.is_decimal(totals.type) or totals.type.scale:
        return False
    ends = pc.min_max(totals).as_py()
    return all(end is None or -_EXACT <= end <= _EXACT for end in ends.values())


def _has_ordered_keys(grouping: Grouping) -> bool:
    """Whether equal keys have one form, and Arrow's order of them is that of results."""
    return all(column.type.kind != "float" for column, _ in grouping.by)

"""Mergeable states of aggregates, to which events can be added: counts, sums, extremes, distinct values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from datafusion import DataFrame, Expr, col, functions, lit

from weir.events.query.few_groups import few_results
from weir.events.query.planner import BoundAggregate, Grouping, QueryPlan
from weir.events.query.running import finished_groups, group_keys
from weir.events.query.sessions import frame_of
from weir.events.query.state_columns import (
    KEY,
    group_texts,
    is_added_by_row,
    part_type,
    parts_of,
    state_schema,
)
from weir.events.visibility import whole_number

__all__ = ["added_states", "merged_states", "of_states", "states_of"]


def states_of(plan: QueryPlan, frame: DataFrame) -> pa.Table:
    """Return the states of some events."""
    grouping = plan.grouping
    assert grouping is not None
    values = [_state(kind, one).alias(name) for name, kind, one, _ in parts_of(grouping)]
    keys = group_keys(grouping)
    schema = state_schema(grouping)
    table = frame.aggregate(keys, values).select(*(col(name) for name in schema.names[1:])).to_arrow_table()
    arrays = [column.cast(one.type) for column, one in zip(table.columns, list(schema)[1:], strict=True)]
    return pa.table([group_texts(arrays[: len(keys)], table.num_rows), *arrays], schema=schema)


def _state(kind: str, one: BoundAggregate) -> Expr:
    if one.column is None:
        return functions.count(whole_number(1))
    column = col(one.column.internal)
    if kind == "count":
        return functions.count(column)
    if kind == "values":
        return functions.array_agg(column, distinct=True, filter=column.is_not_null())
    if kind == "min":
        return functions.min(column)
    if kind == "max":
        return functions.max(column)
    return functions.sum(column.cast(part_type(kind, one)))


def merged_states(grouping: Grouping, states: Sequence[pa.Table]) -> pa.Table:
    """Return the combination of several states."""
    schema = state_schema(grouping)
    whole = pa.concat_tables([one.select(schema.names).cast(schema) for one in states])
    parts = parts_of(grouping)
    values = []
    for name, kind, _, _ in parts:
        if kind == "min":
            values.append(functions.min(col(name)).alias(name))
        elif kind == "max":
            values.append(functions.max(col(name)).alias(name))
        elif kind != "values":
            values.append(functions.sum(col(name)).alias(name))
    keys = [name for name in schema.names if name.startswith("k") and name != KEY]
    # Groups of one key text have one key.
    values += [functions.first_value(col(name)).alias(name) for name in keys]
    values.append(functions.count(whole_number(1)).alias("none"))
    merged = frame_of(whole).aggregate([col(KEY)], values).to_arrow_table()
    merged = merged.set_column(merged.column_names.index(KEY), KEY, merged.column(KEY).cast(pa.string()))
    columns = []
    for one in schema:
        if one.name in merged.column_names:
            columns.append(merged.column(one.name).cast(one.type))
        else:
            columns.append(_values(whole, merged.column(KEY), one))
    return pa.table(columns, schema=schema)


def added_states(grouping: Grouping, stored: pa.Table, fresh: pa.Table) -> pa.Table:
    """Return the states of the groups of new events, combined with their stored states.

    Both contain each group once, so most states are added row by row, which is much cheaper than a plan that
    looks for groups (:func:`merged_states`).
    """
    schema = state_schema(grouping)
    kinds = {name: kind for name, kind, _, _ in parts_of(grouping)}
    if not all(is_added_by_row(kind, schema.field(name).type) for name, kind in kinds.items()):
        return merged_states(grouping, [stored, fresh])
    known = stored.take(pc.index_in(fresh.column(KEY), stored.column(KEY).combine_chunks()))
    return pa.table(
        [
            _added(kinds[name], known.column(name), fresh.column(name))
            if name in kinds
            else fresh.column(name)
            for name in schema.names
        ],
        schema=schema,
    )


def _added(kind: str, one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    if kind == "min":
        return pc.min_element_wise(one, other)
    if kind == "max":
        return pc.max_element_wise(one, other)
    if kind == "count":
        return pc.add(pc.fill_null(one, 0), other)
    # A sum of two of the most digits has one more, by its type.
    wide = pa.decimal256(one.type.precision, one.type.scale)
    both = pc.add(one.cast(wide), other.cast(wide))
    return pc.coalesce(both.cast(one.type), one, other)


def _values(whole: pa.Table, keys: pa.ChunkedArray, field: pa.Field) -> pa.Array:
    """Return the distinct values of every group."""
    lists = whole.column(field.name).combine_chunks()
    if isinstance(lists, pa.ChunkedArray):
        lists = pa.concat_arrays(lists.chunks) if lists.num_chunks else pa.array([], field.type)
    of_lists = whole.column(KEY).take(pc.list_parent_indices(lists))
    flat = pa.table({KEY: of_lists, "value": pc.list_flatten(lists)})
    distinct = flat.group_by([KEY, "value"], use_threads=False).aggregate([])
    at = pc.index_in(
        distinct.column(KEY), keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    )
    order = pc.sort_indices(at)
    counts = pa.table({"at": at}).group_by("at").aggregate([([], "count_all")])
    sizes = [0] * len(keys)
    for place, count in zip(
        counts.column("at").to_pylist(), counts.column("count_all").to_pylist(), strict=True
    ):
        sizes[place] = count
    offsets = [0]
    for size in sizes:
        offsets.append(offsets[-1] + size)
    values = distinct.column("value").take(order)
    held = values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), held).cast(field.type)


def of_states(plan: QueryPlan, states: pa.Table) -> pa.Table:
    """Return the result of a query from states of its events."""
    grouping = plan.grouping
    assert grouping is not None
    if states.num_rows == 0 and not grouping.is_grouped:
        states = _nothing(grouping)
    few = few_results(plan, states)
    if few is not None:
        return few
    frame = frame_of(states)
    keys = [col(name) for name in states.column_names if name.startswith("k") and name != KEY]
    values = [_value(at, one).alias(f"a{at}") for at, one in enumerate(grouping.aggregates)]
    return finished_groups(plan, frame.select(*keys, *values))


def _nothing(grouping: Grouping) -> pa.Table:
    schema = state_schema(grouping)
    row: dict[str, Any] = {name: 0 for name, kind, _, _ in parts_of(grouping) if kind == "count"}
    row.update({name: [] for name, kind, _, _ in parts_of(grouping) if kind == "values"})
    return pa.Table.from_pylist([{KEY: "all", **row}], schema)


def _value(at: int, one: BoundAggregate) -> Expr:
    if one.kind == "avg":
        count = col(f"a{at}_count").cast(pa.float64())
        whole = functions.nullif(count, lit(pa.scalar(0.0)))
        return col(f"a{at}_total").cast(pa.float64()) / whole
    if one.kind == "count_unique":
        return functions.coalesce(
            functions.array_length(col(f"a{at}_values")).cast(pa.int64()), whole_number(0)
        )
    return col(f"a{at}_{one.kind}")

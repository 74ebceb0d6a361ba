"""The columns of mergeable states: the key of a group, and for each aggregate what is kept of it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from weir.events.field_types import INSTANT
from weir.events.query.planner import BoundAggregate, Grouping
from weir.events.query.running import grouped_fields, summed_type

__all__ = ["KEY", "group_texts", "is_added_by_row", "part_type", "parts_of", "state_schema"]

KEY = "key"
"""The column that identifies groups, by a text of their keys."""


def parts_of(grouping: Grouping) -> list[tuple[str, str, BoundAggregate, pa.DataType]]:
    """Return the columns of states: name, what is kept, for which aggregate, and its type."""
    found = []
    for at, one in enumerate(grouping.aggregates):
        kinds = {"avg": ["total", "count"], "count_unique": ["values"]}.get(one.kind, [one.kind])
        found += [(f"a{at}_{kind}", kind, one, part_type(kind, one)) for kind in kinds]
    return found


def part_type(kind: str, one: BoundAggregate) -> pa.DataType:
    """Return the type of a part of the state of an aggregate."""
    if kind == "count":
        return pa.int64()
    assert one.column is not None
    of = one.column.type.arrow
    if kind == "values":
        return pa.list_(of)
    return summed_type(one.column.type) if kind == "total" else of


def state_schema(grouping: Grouping) -> pa.Schema:
    """Return the columns of states."""
    keys = grouped_fields(grouping)[: -len(grouping.aggregates)]
    return pa.schema(
        [
            pa.field(KEY, pa.string(), nullable=False),
            *(pa.field(f"k{at}", one.type) for at, one in enumerate(keys)),
            *(pa.field(name, kind) for name, _, _, kind in parts_of(grouping)),
        ]
    )


def group_texts(columns: Sequence[pa.ChunkedArray], rows: int) -> pa.ChunkedArray:
    """Return a unique text for every group."""
    if not columns:
        return pa.chunked_array([pa.array(["all"] * rows, pa.string())])
    parts = []
    for column in columns:
        text = _text(column)
        size = pc.cast(pc.binary_length(text), pa.string())
        said = pc.binary_join_element_wise(size, text, ":")
        parts.append(pc.fill_null(said, "null"))
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, ",")


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if column.type != INSTANT:
        return column.cast(pa.string())
    # The same text in a tenth of the time: no time zone is looked up.
    plain = column.cast(pa.timestamp("us")).cast(pa.string())
    return pc.binary_join_element_wise(plain, "Z", "")


def is_added_by_row(kind: str, of: pa.DataType) -> bool:
    """Whether a part of some type can be computed and added by Arrow as DataFusion does it."""
    if kind in ("min", "max"):
        # Of floats what is least is a question of zeros with a sign.
        return of in (pa.int64(), pa.string(), pa.date32()) or pa.types.is_decimal128(of)
    return kind == "count" or (kind == "total" and pa.types.is_decimal128(of))

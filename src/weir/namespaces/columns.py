"""The columns that a namespace's table has for its attributes."""

from __future__ import annotations

from collections.abc import Sequence

import weir
from weir.namespaces.attributes import Attribute
from weir.namespaces.definition import Definition
from weir.namespaces.filter.literals import identifier
from weir.namespaces.indexes import drop_indexes
from weir.namespaces.names import ID

__all__ = ["add_columns", "drop_columns", "held_by", "left_over"]


def held_by(definition: Definition, table: weir.Table) -> Definition:
    """Return a definition without the attributes that its table is too old to have."""
    present = {one.name: one.type for one in table.schema}
    later = [name for name, one in definition.attributes.items() if present.get(one.column) != one.type.arrow]
    return definition.without_attributes(frozenset(later))


def left_over(table: weir.Table, added: Sequence[Attribute]) -> list[str]:
    """Return columns of new attributes that the table has of others: of another type, or with values."""
    if not added:
        return []
    present = {one.name: one.type for one in table.schema}
    return [
        one.column
        for one in added
        if one.column in present and (present[one.column] != one.type.arrow or _has_values(table, one.column))
    ]


def add_columns(table: weir.Table, added: Sequence[Attribute]) -> None:
    """Add the columns of attributes, reusing those that an interrupted call left."""
    if not added:
        return
    present = {*table.schema.names}
    missing = [one.field for one in added if one.column not in present]
    if missing:
        table.alter(add=missing)


def drop_columns(table: weir.Table, columns: Sequence[str]) -> None:
    """Drop columns with their indexes."""
    drop_indexes(table, columns)
    table.alter(drop=sorted(columns))


def _has_values(table: weir.Table, column: str) -> bool:
    found = table.scan([ID], filter=f"{identifier(column)} IS NOT NULL", limit=1).to_table()
    return bool(found.num_rows)

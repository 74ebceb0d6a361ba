"""Which indexes the table of a namespace has: by what its attributes are for, and how much it holds."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any

import weir
from weir.errors import IndexDefinitionError, IndexExistsError, IndexNotFoundError
from weir.namespaces.attributes import Attribute, Kind
from weir.namespaces.definition import Definition

__all__ = ["drop_indexes", "ensure_indexes", "make_text_index"]

_ROWS_WORTH_VECTORS = 5_000
_ROWS_WORTH_FILTERS = 20_000


def make_text_index(table: weir.Table, attribute: Attribute) -> None:
    """Make the index by which an attribute is searched for words."""
    if attribute.full_text is not None:
        with suppress(IndexExistsError):
            table.indexes.create(attribute.column, "INVERTED", **attribute.full_text.index_parameters)


def drop_indexes(table: weir.Table, columns: Collection[str]) -> None:
    """Drop the indexes of some columns."""
    for index in table.indexes.list():
        if index.column in columns:
            with suppress(IndexNotFoundError):
                table.indexes.drop(index.name)


def ensure_indexes(table: weir.Table, definition: Definition) -> None:
    """Make the indexes that the table is large enough for and does not have."""
    rows = table.status().base_rows
    if rows < min(_ROWS_WORTH_VECTORS, _ROWS_WORTH_FILTERS):
        return
    indexed = {index.column for index in table.indexes.list()}
    for attribute in definition.attributes.values():
        if attribute.column in indexed:
            continue
        if attribute.type.is_vector:
            if rows >= _ROWS_WORTH_VECTORS:
                metric = (attribute.metric or definition.metric).of_table
                _make(table, attribute.column, "IVF_FLAT", metric=metric)
        elif attribute.filterable and rows >= _ROWS_WORTH_FILTERS and attribute.type.kind is not Kind.UUID:
            _make(table, attribute.column, "LABEL_LIST" if attribute.type.is_list else _kind(attribute))


def _kind(attribute: Attribute) -> str:
    return "BITMAP" if attribute.type.kind is Kind.BOOL else "BTREE"


def _make(table: weir.Table, column: str, kind: str, **parameters: Any) -> None:
    with suppress(IndexExistsError, IndexDefinitionError):
        table.indexes.create(column, kind, **parameters)

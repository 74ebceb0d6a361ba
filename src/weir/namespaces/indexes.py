"""Which indexes a namespace's table has: by the purpose of its attributes and its size."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any

import weir
from weir import IndexDefinition
from weir.errors import IndexDefinitionError, IndexExistsError, IndexNotFoundError
from weir.namespaces.attributes import Attribute, Kind
from weir.namespaces.definition import Definition

__all__ = [
    "INDEX",
    "ROWS_WORTH_VECTORS",
    "drop_indexes",
    "ensure_indexes",
    "make_text_index",
    "replace_text_index",
    "same_text_index",
]

INDEX = "index"
"""The option of an attribute that says which index its vectors have."""

ROWS_WORTH_VECTORS = 5_000
"""Documents from which on vectors get an index; fewer are compared one by one."""
_ROWS_WORTH_FILTERS = 20_000


def make_text_index(table: weir.Table, attribute: Attribute) -> None:
    """Create the full-text index of an attribute."""
    if attribute.full_text is not None:
        with suppress(IndexExistsError):
            table.indexes.create(attribute.column, "INVERTED", **attribute.full_text.index_parameters)


def replace_text_index(table: weir.Table, attribute: Attribute, former: Attribute | None) -> None:
    """Give an attribute the full-text index that it has now; drop the one that it had."""
    if former is not None and former.full_text is not None:
        drop_indexes(table, {attribute.column})
    make_text_index(table, attribute)


def same_text_index(one: Attribute, other: Attribute) -> bool:
    """Return whether two attributes have the same index of words: constants of BM25 are no part of it."""
    parameters = [
        None if each.full_text is None else each.full_text.index_parameters for each in (one, other)
    ]
    return parameters[0] == parameters[1]


def drop_indexes(table: weir.Table, columns: Collection[str]) -> None:
    """Drop the indexes of some columns."""
    for index in table.indexes.list():
        if index.column in columns:
            with suppress(IndexNotFoundError):
                table.indexes.drop(index.name)


def ensure_indexes(table: weir.Table, definition: Definition) -> None:
    """Make the indexes that the table is large enough for and does not have."""
    rows = table.status().base_rows
    if rows < min(ROWS_WORTH_VECTORS, _ROWS_WORTH_FILTERS):
        return
    indexed = {index.column: index.definition for index in table.indexes.list()}
    for attribute in definition.attributes.values():
        if attribute.type.is_vector and rows >= ROWS_WORTH_VECTORS:
            _ensure_vectors(table, definition, attribute, indexed.get(attribute.column))
            continue
        if attribute.column in indexed or attribute.type.is_vector:
            continue
        if attribute.filterable and rows >= _ROWS_WORTH_FILTERS and attribute.type.kind is not Kind.UUID:
            _make(table, attribute.column, "LABEL_LIST" if attribute.type.is_list else _kind(attribute))


def _ensure_vectors(
    table: weir.Table, definition: Definition, attribute: Attribute, present: IndexDefinition | None
) -> None:
    """Create the vector index of an attribute, replacing a different one."""
    asked = dict(attribute.options.get(INDEX, {}))
    kind = asked.pop("kind", "IVF_FLAT")
    if present is not None:
        same = {name: present.parameters.get(name) for name in asked if name in present.parameters}
        if present.kind == kind and all(asked[name] == value for name, value in same.items()):
            return
        drop_indexes(table, {attribute.column})
    _make(table, attribute.column, kind, metric=(attribute.metric or definition.metric).of_table, **asked)


def _kind(attribute: Attribute) -> str:
    return "BITMAP" if attribute.type.kind is Kind.BOOL else "BTREE"


def _make(table: weir.Table, column: str, kind: str, **parameters: Any) -> None:
    with suppress(IndexExistsError, IndexDefinitionError):
        table.indexes.create(column, kind, **parameters)

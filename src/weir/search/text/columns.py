"""Which columns of a table a text query searches."""

from __future__ import annotations

import pyarrow as pa

from weir.base.index_changes import base_indexes
from weir.base.table import BaseTable
from weir.errors import QueryError
from weir.indexing.kinds import IndexKind
from weir.search.text.query import BooleanQuery, BoostQuery, MatchQuery, PhraseQuery, TextQuery, leaves

__all__ = ["check_text_columns", "only_indexed_column"]


def check_text_columns(schema: pa.Schema, query: TextQuery, column: str | None) -> TextQuery:
    """Return a query in which every part names its column.

    Raises
    ------
    QueryError
        If a column does not exist or holds no text, or none is named and there are several.
    """
    texts = _texts(schema)
    lists = _lists(schema)
    shown = f"The text columns are {', '.join(texts)}" if texts else "The table has no text column"
    if column is None and any(leaf.column is None for leaf in leaves(query)):
        if len(texts) != 1:
            raise QueryError(
                f"the table has {len(texts)} text columns: say which", where="column", hint=shown
            )
        column = texts[0]
    named = [leaf.column or column for leaf in leaves(query)]
    if column is not None:
        named.append(column)
    for name in named:
        if not isinstance(name, str) or name not in schema.names:
            raise QueryError(f"the table has no column {name!r:.60}", where="column", hint=shown)
        if name not in texts and name not in lists:
            raise QueryError(
                f"column {name!r} is {schema.field(name).type}, which is not text", where="column", hint=shown
            )
    return _named(query, column)


def only_indexed_column(base: BaseTable, query: object) -> str | None:
    """Return the column that a query means if it names none of several: the only one with an index.

    None where the query names its columns, the table has one column of texts or lists of them at most, or
    none or several have an index. Where it has to look, it asks storage for the newest version: one round
    trip.
    """
    if not isinstance(query, str) and all(leaf.column is not None for leaf in _leaves(query)):
        return None
    if len(_texts(base.schema)) + len(_lists(base.schema)) < 2:
        return None
    newest = base.latest()
    indexed = {
        index.column
        for index in base_indexes(newest)
        if index.definition is not None and index.definition.kind is IndexKind.INVERTED
    }.intersection([*_texts(newest.schema), *_lists(newest.schema)])
    return indexed.pop() if len(indexed) == 1 else None


def _leaves(query: object) -> list[MatchQuery | PhraseQuery]:
    """Return the parts of a query; nothing for what is not one, which is refused when it is read."""
    kinds = (MatchQuery, PhraseQuery, BoostQuery, BooleanQuery)
    return list(leaves(query)) if isinstance(query, kinds) else []


def _texts(schema: pa.Schema) -> list[str]:
    return [one.name for one in schema if pa.types.is_string(one.type) or pa.types.is_large_string(one.type)]


def _lists(schema: pa.Schema) -> list[str]:
    return [one.name for one in schema if _is_list_of_texts(one.type)]


def _is_list_of_texts(type: pa.DataType) -> bool:
    if not pa.types.is_list(type) and not pa.types.is_large_list(type):
        return False
    return bool(pa.types.is_string(type.value_type) or pa.types.is_large_string(type.value_type))


def _named(query: TextQuery, column: str | None) -> TextQuery:
    if isinstance(query, MatchQuery):
        return MatchQuery(
            query.query,
            query.column or column,
            query.boost,
            query.fuzziness,
            query.max_expansions,
            query.operator,
            query.prefix_length,
        )
    if isinstance(query, PhraseQuery):
        return PhraseQuery(query.query, query.column or column, query.slop)
    if isinstance(query, BoostQuery):
        return BoostQuery(
            _named(query.positive, column), _named(query.negative, column), query.negative_boost
        )
    if isinstance(query, BooleanQuery):
        parts = (query.must, query.should, query.must_not)
        return BooleanQuery(*(tuple(_named(one, column) for one in part) for part in parts))
    return query

"""Which columns of a table a text query searches."""

from __future__ import annotations

import pyarrow as pa

from weir.errors import QueryError
from weir.search.text.query import BooleanQuery, BoostQuery, MatchQuery, PhraseQuery, TextQuery, leaves

__all__ = ["check_text_columns"]


def check_text_columns(schema: pa.Schema, query: TextQuery, column: str | None) -> TextQuery:
    """Return a query in which every part names its column.

    Raises
    ------
    QueryError
        If a column does not exist or holds no text, or none is named and there are several.
    """
    texts = [one.name for one in schema if pa.types.is_string(one.type) or pa.types.is_large_string(one.type)]
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
        if name not in texts:
            raise QueryError(
                f"column {name!r} is {schema.field(name).type}, which is not text", where="column", hint=shown
            )
    return _named(query, column)


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

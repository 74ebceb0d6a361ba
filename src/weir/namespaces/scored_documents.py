"""Documents scored by an expression, reading each of its parts in the most suitable way."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weir.namespaces.conditions import positions_of
from weir.namespaces.definition import Definition
from weir.namespaces.filter.literals import identifier
from weir.namespaces.filter.sql import Columns, condition_sql
from weir.namespaces.names import ID, column_of
from weir.namespaces.ranking import Constant, Distance, Expression, Leaf, Matches, Value, Words, leaves_in
from weir.namespaces.scoring import Scores, scores_of
from weir.namespaces.values import check_value

__all__ = ["best_of", "score_documents"]

ReadSql = Callable[[str], pa.Table]
ReadWords = Callable[[Words], pa.Table]


def score_documents(
    ranking: Expression, definition: Definition, where: str | None, read: ReadSql, words: ReadWords
) -> tuple[pa.Table, Scores]:
    """Return the ids of documents that an expression says something about, and their scores.

    Parameters
    ----------
    ranking : Expression
        The expression, checked.
    definition : Definition
        The namespace.
    where : str, optional
        The condition of the documents asked for.
    read : callable
        Runs a query on the table ``t``.
    words : callable
        Returns documents that answer words, of those asked for: ids and scores, the best of them.
    """
    leaves = leaves_in(ranking)
    selected, conditions = [], []
    for at, leaf in enumerate(leaves):
        if isinstance(leaf, Matches):
            condition = _condition(leaf, definition)
            selected.append(f"CASE WHEN {condition} THEN 1 ELSE 0 END AS `%score{at}`")
            conditions.append(condition)
        elif isinstance(leaf, Value | Distance):
            column = identifier(column_of(leaf.attribute))
            selected.append(f"{column} AS `%score{at}`")
            conditions.append(f"{column} IS NOT NULL")
    tables = {id(leaf): words(leaf) for leaf in leaves if isinstance(leaf, Words)}
    if conditions:
        asked = " OR ".join(f"({one})" for one in conditions)
        wanted = f"({asked})" if where is None else f"({where}) AND ({asked})"
        rows = read(f"SELECT {', '.join([identifier(ID), *selected])} FROM t WHERE {wanted}")
        for at, leaf in enumerate(leaves):
            if not isinstance(leaf, Words | Constant):
                tables[id(leaf)] = rows.select([ID]).append_column(
                    "score", _numbers(leaf, rows.column(f"%score{at}"), definition)
                )
    every = pa.concat_tables([one.select([ID]) for one in tables.values()]).combine_chunks()
    first = positions_of(every.column(ID), every)
    unique = np.unique(first)
    scores, begin = {}, 0
    for key, one in tables.items():
        where_ = np.searchsorted(unique, first[begin : begin + one.num_rows])
        begin += one.num_rows
        column = one.column(1)
        values, present = np.zeros(len(unique)), np.zeros(len(unique), dtype=bool)
        values[where_] = pc.fill_null(column, 0.0).to_numpy()
        present[where_] = np.asarray(column.is_valid())
        scores[key] = Scores(values, present)
    return every.take(pa.array(unique)), scores_of(ranking, scores)


def best_of(documents: pa.Table, scores: Scores, rows: int, score: str) -> pa.Table:
    """Return the ids and scores of the best documents, equal ones in the order of their ids."""
    ranked = documents.append_column(score, pa.array(scores.values)).filter(pa.array(scores.present))
    order = [(score, "descending"), (ID, "ascending")]
    if ranked.num_rows <= rows:
        return ranked.sort_by(order)
    return ranked.take(pc.select_k_unstable(ranked, rows, order))


def _condition(leaf: Matches, definition: Definition) -> str:
    if leaf.is_prefix:
        return condition_sql(leaf.filter, Columns(definition.type_of))
    return condition_sql(leaf.filter, Columns(definition.type_of, is_filterable=definition.is_filterable))


def _numbers(leaf: Leaf, column: pa.ChunkedArray, definition: Definition) -> pa.ChunkedArray:
    """Return the scores of documents by a part that is no text: null where it says nothing about one."""
    if isinstance(leaf, Matches):
        return pc.if_else(pc.equal(column, 1), 1.0, pa.scalar(None, pa.float64()))
    assert isinstance(leaf, Value | Distance)
    type = definition.type_of(leaf.attribute)
    assert type is not None
    numbers = _as_float(column)
    if isinstance(leaf, Value):
        return numbers
    origin = pa.chunked_array([pa.array([check_value(leaf.attribute, type, leaf.origin)], type.arrow)])
    return pc.abs(pc.subtract(numbers, _as_float(origin)[0]))


def _as_float(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return numbers, or the milliseconds since 1970 of datetimes."""
    if pa.types.is_timestamp(column.type):
        return pc.divide(column.cast(pa.int64()).cast(pa.float64(), safe=False), 1000.0)
    return column.cast(pa.float64(), safe=False)

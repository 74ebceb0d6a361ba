"""Search requests: checked against columns, and planned on a snapshot.

The columns are the table's present ones or, for a search at a token, those of its time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from weir.errors import QueryError
from weir.read.checks import check_asked
from weir.read.planner import ScanPlanner
from weir.search.hybrid import Fusion, HybridSearchPlan, fusion
from weir.search.search import SearchPlan
from weir.search.text.bm25 import Constants
from weir.search.text.columns import check_text_columns
from weir.search.text.query import TextQuery, parse_text_query
from weir.search.text.search import TextSearchPlan, plan_text_search
from weir.search.vector.query import VectorQuery, check_k, vector_query
from weir.search.vector.search import VectorSearchPlan, plan_vector_search
from weir.snapshots.snapshot import ReadSnapshot

__all__ = ["HybridRequest", "RankedBy", "SearchRequest", "TextRequest", "VectorRequest", "arguments"]

Query = TypeVar("Query")


class SearchRequest(Protocol[Query]):
    """The arguments of a search. ``Query`` is their checked form."""

    @property
    def columns(self) -> Sequence[str] | None:
        """Columns of the result; None for all."""
        ...

    def checked(self, schema: pa.Schema) -> Query:
        """Return the query over some columns.

        Raises
        ------
        SchemaError, FilterError, QueryError
            If it cannot be asked of them.
        """
        ...

    def plan(self, planner: ScanPlanner, snapshot: ReadSnapshot, query: Query, seen: str) -> SearchPlan:
        """Return what the search will do on a snapshot; ``seen`` says which one it is, for people."""
        ...


def arguments(request: SearchRequest[Any]) -> dict[str, object]:
    """Return what a request asks for by the names of its arguments, without those that were left out.

    Examples
    --------
    >>> arguments(TextRequest("late flights", 3, None, "delay > 60", None))
    {'query': 'late flights', 'k': 3, 'filter': 'delay > 60'}
    """
    values = {name: getattr(request, name) for name in _names_of(type(request))}
    return {name: value for name, value in values.items() if value is not None}


@cache
def _names_of(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


@dataclass(frozen=True, slots=True)
class VectorRequest:
    """A search by vector: the arguments of :meth:`weir.Table.search`."""

    vector: Any
    k: int
    column: str | None
    filter: str | None
    columns: Sequence[str] | None
    metric: str | None
    nprobes: int | None
    refine: int | None

    def checked(self, schema: pa.Schema) -> VectorQuery:
        """Return the query over some columns."""
        check_asked(schema, self.columns, self.filter)
        return vector_query(
            schema,
            self.vector,
            k=self.k,
            column=self.column,
            metric=self.metric,
            nprobes=self.nprobes,
            refine=self.refine,
        )

    def plan(
        self, planner: ScanPlanner, snapshot: ReadSnapshot, query: VectorQuery, seen: str
    ) -> VectorSearchPlan:
        """Return what the search will do on a snapshot."""
        return plan_vector_search(
            planner.store,
            snapshot,
            planner.prune,
            query,
            columns=self.columns,
            filter=self.filter,
            consistency=seen,
        )


@dataclass(frozen=True, slots=True)
class TextRequest:
    """A search by text: the arguments of :meth:`weir.Table.search_text`."""

    query: str | TextQuery
    k: int
    column: str | None
    filter: str | None
    columns: Sequence[str] | None
    bm25: Mapping[str, tuple[float, float]] | None = None

    def checked(self, schema: pa.Schema) -> TextQuery:
        """Return the query over some columns."""
        check_asked(schema, self.columns, self.filter)
        check_k(self.k)
        _constants(self.bm25)
        return check_text_columns(schema, parse_text_query(self.query), self.column)

    def plan(
        self, planner: ScanPlanner, snapshot: ReadSnapshot, query: TextQuery, seen: str
    ) -> TextSearchPlan:
        """Return what the search will do on a snapshot."""
        return plan_text_search(
            planner.store,
            snapshot,
            query,
            k=int(self.k),
            columns=self.columns,
            filter=self.filter,
            consistency=seen,
            constants=_constants(self.bm25),
        )


def _constants(given: Mapping[str, tuple[float, float]] | None) -> dict[str, Constants]:
    """Return what BM25 is set by, by column."""
    found = {}
    for column, pair in (given or {}).items():
        try:
            k1, b = map(float, pair)
        except (TypeError, ValueError):
            raise QueryError(
                f"the constants of BM25 are two numbers, k1 and b, and not {pair!r:.60}", where="bm25"
            ) from None
        if not (math.isfinite(k1) and k1 >= 0 and 0 <= b <= 1):
            raise QueryError(f"k1 is at least 0 and b from 0 to 1, and not {k1} and {b}", where="bm25")
        found[column] = Constants(k1, b)
    return found


@dataclass(frozen=True, slots=True)
class RankedBy:
    """What a hybrid search has become when it is checked.

    Parameters
    ----------
    near : VectorQuery
        What ranks by vector.
    words : TextQuery
        What ranks by text.
    fusion : Fusion
        How the two rankings become one.
    """

    near: VectorQuery
    words: TextQuery
    fusion: Fusion


@dataclass(frozen=True, slots=True)
class HybridRequest:
    """A search by vector and text: the arguments of :meth:`weir.Table.search_hybrid`."""

    vector: Any
    text: str | TextQuery
    k: int
    filter: str | None
    columns: Sequence[str] | None
    vector_column: str | None
    text_column: str | None
    fusion: str
    weights: Sequence[float] | None
    rrf_k: int
    candidates: int | None
    metric: str | None
    nprobes: int | None
    refine: int | None

    def checked(self, schema: pa.Schema) -> RankedBy:
        """Return both queries over some columns."""
        check_asked(schema, self.columns, self.filter)
        how = fusion(self.fusion, self.weights, self.rrf_k, self.k, self.candidates)
        near = vector_query(
            schema,
            self.vector,
            k=how.candidates,
            column=self.vector_column,
            metric=self.metric,
            nprobes=self.nprobes,
            refine=self.refine,
        )
        if near.batch:
            raise QueryError("a hybrid search takes one query vector", where="vector")
        return RankedBy(near, check_text_columns(schema, parse_text_query(self.text), self.text_column), how)

    def plan(
        self, planner: ScanPlanner, snapshot: ReadSnapshot, query: RankedBy, seen: str
    ) -> HybridSearchPlan:
        """Return what the search will do on a snapshot."""
        base = snapshot.base
        if not base.primary_key:
            raise QueryError(
                "a hybrid search matches the rows of its two rankings by key, and this table is append-only",
                hint="Use search or search_text",
            )
        names = tuple(base.schema.names if self.columns is None else self.columns)
        # The primary key says which rows of the two rankings are the same.
        read = tuple(dict.fromkeys([*names, *base.primary_key]))
        by_vector = plan_vector_search(
            planner.store,
            snapshot,
            planner.prune,
            query.near,
            columns=read,
            filter=self.filter,
            consistency=seen,
        )
        by_text = plan_text_search(
            planner.store,
            snapshot,
            query.words,
            k=query.fusion.candidates,
            columns=read,
            filter=self.filter,
            consistency=seen,
        )
        return HybridSearchPlan(by_vector, by_text, query.fusion, names, base.primary_key)

"""Queries of a namespace and their results, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from weir.namespaces.filter.expression import EVERYTHING, Filter
from weir.namespaces.ranking import Expression, Nearest, Ranking

__all__ = ["MOST_ROWS", "Aggregate", "Answer", "Each", "Limit", "Query", "State"]

MOST_ROWS = 10_000
"""The most documents that a query returns."""


@dataclass(frozen=True, slots=True)
class Limit:
    """Number of documents, and number per group of equal ones.

    Parameters
    ----------
    total : int
        Documents.
    per : tuple of str
        Attributes; documents with the same values of them are alike.
    most_per : int
        Documents that are alike; 0 for any number.
    """

    total: int = 10
    per: tuple[str, ...] = ()
    most_per: int = 0


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A number about documents: how many there are, or have an attribute, or the sum of its values.

    Parameters
    ----------
    function : str
        ``"count"`` or ``"sum"``.
    attribute : str, optional
        The attribute.
    """

    function: str
    attribute: str | None = None


@dataclass(frozen=True, slots=True)
class Each:
    """Groups by the elements of a list: a document is in the group of every different one.

    Parameters
    ----------
    name : str
        What the element is called in the answer.
    attribute : str
        The attribute with the lists.
    """

    name: str
    attribute: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One query.

    Parameters
    ----------
    rank_by : Ranking, optional
        How documents are ranked; None if only numbers about them are asked for.
    filter : Filter
        Which documents count. Default: all.
    limit : Limit
        How many are returned. Default 10.
    offset : int
        How many documents to skip. Default 0.
    include : tuple of str, optional
        Attributes to return; None for all.
    exclude : frozenset of str
        Attributes that are left out.
    aggregates : mapping of str to Aggregate
        Aggregates, by their name in the result.
    group_by : tuple of str or Each
        Attributes to group by; aggregates are computed for each group of documents with the same values.
    computed : mapping of str to Expression or Nearest
        Computed values of each document: a score, or the distance of a vector.
    nprobes : int, optional
        Partitions of a vector index to look into.
    """

    rank_by: Ranking | None = None
    filter: Filter = EVERYTHING
    limit: Limit = field(default_factory=Limit)
    offset: int = 0
    include: tuple[str, ...] | None = ()
    exclude: frozenset[str] = frozenset()
    aggregates: Mapping[str, Aggregate] = field(default_factory=dict)
    group_by: tuple[str | Each, ...] = ()
    computed: Mapping[str, Expression | Nearest] = field(default_factory=dict)
    nprobes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a query found.

    Parameters
    ----------
    rows : Table, optional
        The documents, best first: the id, the attributes, and ``$dist`` if they were ranked by it; None where
        no documents were asked for. Columns are called as the attributes are.
    aggregates : mapping of str to object, optional
        The numbers.
    groups : list of dict, optional
        The numbers of each group, with the values it has in common.
    token : str
        The state of the namespace that the query saw.
    taken : float
        When that state was the newest, by the monotonic clock: every write acknowledged before is in it.
    """

    rows: pa.Table | None = None
    aggregates: Mapping[str, Any] | None = None
    groups: list[dict[str, Any]] | None = None
    token: str = ""
    taken: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Which state of a namespace a query sees.

    Parameters
    ----------
    max_staleness : float, optional
        Seconds that it may be old. Default: it has every acknowledged write.
    token : str, optional
        The state that a token names, instead.
    """

    max_staleness: float | None = None
    token: str | None = None

    @property
    def read_options(self) -> dict[str, Any]:
        """Arguments of a read of the table."""
        return {"consistency": self.consistency} if self.token is None else {"at": self.token}

    @property
    def consistency(self) -> str:
        """What the table is asked for."""
        if self.max_staleness is None:
            return "strong"
        return f"bounded({int(self.max_staleness * 1000)})"

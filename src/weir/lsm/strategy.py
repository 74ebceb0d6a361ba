"""How each term of a filter is evaluated in a source: by one of its indexes, or by reading everything.

Lance itself chooses among the indexes when it runs the filter. The choice here is the best it can do with the
kinds of index in the source, so that a plan explains the speed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from weir.indexing.kinds import IndexKind
from weir.sharding.predicate import AllOf, AnyOf, Anything, Predicate, Where
from weir.sharding.value_set import ValueSet

_ORDERED = frozenset({IndexKind.BTREE, IndexKind.ZONEMAP, IndexKind.BITMAP})

__all__ = ["IndexStrategy", "TermStrategy", "choose_strategies"]


class IndexStrategy(StrEnum):
    """A way to find the rows that a term of a filter is true for."""

    FULL_SCAN = "FullScan"
    TEMPORAL_EQ = "TemporalEq"
    TEMPORAL_RANGE = "TemporalRange"
    ENUM_BITMAP = "EnumBitmap"
    ZONE_RANGE = "ZoneSuRF"
    ZONE_MEMBERSHIP = "ZoneXorIndex"
    SORTED = "BTree"


@dataclass(frozen=True, slots=True)
class TermStrategy:
    """How one term is answered.

    Parameters
    ----------
    strategy : IndexStrategy
        The way.
    column : str or None
        The column it is about; None for a term that is not about the values of one column.
    """

    strategy: IndexStrategy
    column: str | None

    def __str__(self) -> str:
        """Return it as it is written in a plan."""
        return str(self.strategy) if self.column is None else f"{self.strategy}({self.column})"


def choose_strategies(
    predicate: Predicate, schema: pa.Schema, kinds: Mapping[str, Collection[str]]
) -> tuple[TermStrategy, ...]:
    """Return how the terms of a filter are answered in a source, each once, in order.

    Parameters
    ----------
    predicate : Predicate
        The filter.
    schema : Schema
        The table's columns.
    kinds : mapping of str to collection of str
        The kinds of index that the source has, by column. Where nothing is recorded everything is read.
    """
    chosen: dict[TermStrategy, None] = {}
    for term in _terms(predicate):
        if isinstance(term, Anything):
            chosen[TermStrategy(IndexStrategy.FULL_SCAN, None)] = None
            continue
        column = term.place.column
        if term.place.part is not None or column not in schema.names:
            strategy = IndexStrategy.FULL_SCAN
        else:
            strategy = _choose(term.values, schema.field(column).type, frozenset(kinds.get(column, ())))
        chosen[TermStrategy(strategy, column)] = None
    return tuple(chosen)


def _terms(predicate: Predicate) -> Iterator[Where | Anything]:
    if isinstance(predicate, (AllOf, AnyOf)):
        for part in predicate.parts:
            yield from _terms(part)
    else:
        yield predicate


def _choose(values: ValueSet, type: pa.DataType, kinds: frozenset[str]) -> IndexStrategy:
    single = values.values is not None
    # All values but some: zones and Bloom filters do not help with exclusions.
    negated = not single and values.lower is None and values.upper is None
    if IndexKind.BITMAP in kinds and (single or negated):
        return IndexStrategy.ENUM_BITMAP
    if pa.types.is_temporal(type) and not negated and kinds & _ORDERED:
        return IndexStrategy.TEMPORAL_EQ if single else IndexStrategy.TEMPORAL_RANGE
    if IndexKind.BTREE in kinds and not negated:
        return IndexStrategy.SORTED
    if IndexKind.BLOOMFILTER in kinds and single:
        return IndexStrategy.ZONE_MEMBERSHIP
    if IndexKind.ZONEMAP in kinds and not negated:
        return IndexStrategy.ZONE_RANGE
    if IndexKind.BITMAP in kinds:
        return IndexStrategy.ENUM_BITMAP
    return IndexStrategy.FULL_SCAN

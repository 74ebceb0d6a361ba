"""Whether a generation can hold rows that match a filter, by what its catalog says."""

from __future__ import annotations

from weir.format.generation_catalog import ColumnSummary, GenerationCatalog
from weir.sharding.predicate import AllOf, AnyOf, Anything, Predicate, Where
from weir.sharding.value_set import ValueSet, ordinal

__all__ = ["can_match"]


def can_match(predicate: Predicate, catalog: GenerationCatalog) -> bool:
    """Whether a row of the generation may match. False is certain.

    Tombstones never match: they are no rows to anybody who asks.
    """
    if isinstance(predicate, Anything):
        return True
    if isinstance(predicate, AllOf):
        return all(can_match(part, catalog) for part in predicate.parts)
    if isinstance(predicate, AnyOf):
        return any(can_match(part, catalog) for part in predicate.parts)
    return _can_hold(predicate, catalog)


def _can_hold(where: Where, catalog: GenerationCatalog) -> bool:
    column = catalog.columns.get(where.place.column)
    if column is None or where.place.part is not None or column.minimum is None or column.maximum is None:
        return True
    return not where.values.intersect(_held(column)).is_empty


def _held(column: ColumnSummary) -> ValueSet:
    assert column.minimum is not None
    assert column.maximum is not None
    return ValueSet(lower=ordinal(column.minimum), upper=ordinal(column.maximum), null=column.nulls > 0)

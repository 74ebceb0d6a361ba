"""Whether a generation can hold rows that match a filter, by what its catalog says."""

from __future__ import annotations

from weir.format.generation_catalog import ColumnSummary, GenerationCatalog
from weir.format.resolution import Resolution
from weir.sharding.predicate import AllOf, AnyOf, Anything, Predicate, Where
from weir.sharding.value_set import ONLY_NULL, ValueSet, ordinal

__all__ = ["can_match"]


def can_match(predicate: Predicate, catalog: GenerationCatalog, columns: Resolution) -> bool:
    """Whether a row of the generation may match. False is certain.

    Tombstones never match: they are no rows to anybody who asks.

    Parameters
    ----------
    predicate : Predicate
        What is asked for, by columns of the table.
    catalog : GenerationCatalog
        What is known, by columns of the generation.
    columns : Resolution
        Which of them is which.
    """
    if isinstance(predicate, Anything):
        return True
    if isinstance(predicate, AllOf):
        return all(can_match(part, catalog, columns) for part in predicate.parts)
    if isinstance(predicate, AnyOf):
        return any(can_match(part, catalog, columns) for part in predicate.parts)
    return _can_hold(predicate, catalog, columns)


def _can_hold(where: Where, catalog: GenerationCatalog, columns: Resolution) -> bool:
    name = where.place.column
    if where.place.part is not None or name not in columns.schema.names or columns.is_cast(name):
        return True
    source = columns.source_name(name)
    if source is None:
        # All of its rows have null there.
        return not where.values.intersect(ONLY_NULL).is_empty
    column = catalog.columns.get(source)
    if column is None or column.minimum is None or column.maximum is None:
        return True
    return not where.values.intersect(_held(column)).is_empty


def _held(column: ColumnSummary) -> ValueSet:
    assert column.minimum is not None
    assert column.maximum is not None
    return ValueSet(lower=ordinal(column.minimum), upper=ordinal(column.maximum), null=column.nulls > 0)

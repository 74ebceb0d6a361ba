"""Whether a source can contain rows that match a filter, by its known values.

They come from the catalog of a generation, the indexes of the base table, or the rows of the log.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from weir.base.key_pages import key_pages
from weir.base.table import BaseTable
from weir.base.zone_bounds import zone_bounds
from weir.format.generation_catalog import GenerationCatalog
from weir.format.resolution import Resolution
from weir.sharding.predicate import AllOf, AnyOf, Anything, Place, Predicate
from weir.sharding.value_set import NO_VALUE, ONLY_NULL, ValueSet, ordinal

__all__ = ["HeldValues", "can_match", "held_in_base", "held_in_generation", "held_in_rows", "is_about"]

HeldValues = Callable[[str], ValueSet | None]
"""Returns a set that holds at least the values of a column; None where nothing is known."""


def can_match(predicate: Predicate, held: HeldValues) -> bool:
    """Whether a row of a source may match. False is certain.

    Tombstones never match: they are no rows to anybody who asks.

    Parameters
    ----------
    predicate : Predicate
        The condition, by columns of the table.
    held : callable
        What the source holds.
    """
    if isinstance(predicate, Anything):
        return True
    if isinstance(predicate, AllOf):
        return all(can_match(part, held) for part in predicate.parts)
    if isinstance(predicate, AnyOf):
        return any(can_match(part, held) for part in predicate.parts)
    if predicate.place.part is not None:
        return True
    known = held(predicate.place.column)
    return known is None or not predicate.values.intersect(known).is_empty


def is_about(predicate: Predicate, column: str) -> bool:
    """Whether a predicate says something of a column itself.

    Examples
    --------
    >>> from weir.sharding.predicate import read_filter
    >>> is_about(read_filter("a > 3 OR b = 1", pa.schema([("a", pa.int64()), ("b", pa.int64())])), "a")
    True
    """
    if isinstance(predicate, Anything):
        return False
    if isinstance(predicate, (AllOf, AnyOf)):
        return any(is_about(part, column) for part in predicate.parts)
    return predicate.place == Place(column)


def held_in_generation(catalog: GenerationCatalog, columns: Resolution) -> HeldValues:
    """Return what a generation holds.

    Parameters
    ----------
    catalog : GenerationCatalog
        The known values, by columns of the generation.
    columns : Resolution
        Which of them is which.
    """

    def held(name: str) -> ValueSet | None:
        if name not in columns.schema.names or columns.is_cast(name):
            return None
        source = columns.source_name(name)
        if source is None:
            # All of its rows have null there.
            return ONLY_NULL
        column = catalog.columns.get(source)
        if column is None:
            return None
        if column.minimum is None or column.maximum is None:
            return ONLY_NULL if 0 < catalog.rows <= column.nulls else None
        return _between(column.minimum, column.maximum, has_nulls=column.nulls > 0)

    return held


def held_in_base(base: BaseTable) -> HeldValues:
    """Return what the base table holds: of a key that is one whole number, and of columns with a zone map."""

    def held(name: str) -> ValueSet | None:
        if (name,) == base.primary_key:
            pages = key_pages(base)
            return None if pages is None else _of_numbers(pages.bounds)
        bounds = zone_bounds(base, name)
        return None if bounds is None else _between(bounds.low, bounds.high, has_nulls=bounds.has_nulls)

    return held


def _of_numbers(bounds: tuple[int, int] | None) -> ValueSet | None:
    return None if bounds is None else ValueSet(lower=bounds[0], upper=bounds[1])


def held_in_rows(rows: pa.Table) -> HeldValues:
    """Return what rows hold in columns of whole numbers, in which it takes next to nothing to look."""

    @cache
    def held(name: str) -> ValueSet | None:
        column = rows.column(name)
        if not pa.types.is_integer(column.type):
            return None
        bounds = pc.min_max(column)
        return _between(bounds["min"], bounds["max"], has_nulls=column.null_count > 0)

    return held


def _between(low: pa.Scalar | None, high: pa.Scalar | None, *, has_nulls: bool) -> ValueSet:
    """Return the values between two bounds, inclusive; the empty set if the bounds are invalid."""
    if low is None or high is None or not low.is_valid or not high.is_valid:
        return ONLY_NULL if has_nulls else NO_VALUE
    return ValueSet(lower=ordinal(low), upper=ordinal(high), null=has_nulls)

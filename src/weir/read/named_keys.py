"""Filters that name keys: ``id IN (3, 4)`` is answered by lookups, without scanning a source."""

from __future__ import annotations

from itertools import product
from math import prod

import pyarrow as pa

from weir.base.table import BaseTable
from weir.lsm.keys import KeySet
from weir.sharding.predicate import AllOf, Place, Predicate, Where
from weir.sharding.value_set import NOT_NULL, Ordinal, ValueSet, ordinals_to_array

__all__ = ["named_keys"]

_MOST_KEYS = 512
"""Keys up to which look-ups pay: for more the base table's column of keys is read, as a scan does."""


def named_keys(predicate: Predicate, base: BaseTable) -> KeySet | None:
    """Return the keys that a row must have one of for a filter to be true.

    Parameters
    ----------
    predicate : Predicate
        The filter's constraints on single columns.
    base : BaseTable
        The table.

    Returns
    -------
    KeySet or None
        Distinct keys; None if the filter does not name them, or names too many for look-ups to pay.
    """
    if not base.primary_key:
        return None
    columns: list[list[Ordinal]] = []
    for name in base.primary_key:
        values = _values_of(name, predicate).values
        if values is None:
            return None
        columns.append(list(values))
    if not 0 < prod(map(len, columns)) <= _MOST_KEYS:
        return None
    rows = zip(*product(*columns), strict=True)
    kinds = [base.schema.field(name).type for name in base.primary_key]
    try:
        return KeySet([ordinals_to_array(values, kind) for values, kind in zip(rows, kinds, strict=True)])
    except pa.ArrowException:
        return None  # not a value of the column's type: evaluating the filter raises the error


def _values_of(column: str, predicate: Predicate) -> ValueSet:
    """Return the values that a column may have where a predicate is true."""
    found = NOT_NULL
    for part in predicate.parts if isinstance(predicate, AllOf) else (predicate,):
        if isinstance(part, Where) and part.place == Place(column):
            found = found.intersect(part.values)
    return found

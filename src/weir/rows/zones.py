"""Refusal to mix datetimes with and without a time zone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, TypeAlias

import pyarrow as pa

from weir.errors import SchemaError
from weir.schema.list_cast import is_list

__all__ = ["refuse_mixed_zones", "zone_hint"]

_Numbered: TypeAlias = list[tuple[int, Any]]
"""Values with the rows they are of."""


def refuse_mixed_zones(values: Any, field: pa.Field) -> None:
    """Refuse moments with a time zone among such without, at any depth: Arrow takes all as the first is.

    Parameters
    ----------
    values : iterable
        Python values of a column.
    field : Field
        The column.

    Raises
    ------
    SchemaError
        If there are both.
    """
    # A typed column holds moments of one kind.
    if not _holds_moments(field.type) or str(getattr(values, "dtype", "object")) != "object":
        return
    for name, kind, moments in _leaves(list(enumerate(values)), field.type, field.name):
        is_aware = [moment.tzinfo is not None for _, moment in moments]
        if len(set(is_aware)) == 2:
            odd = is_aware.index(kind.tz is None)
            raise SchemaError(
                f"column {name!r} mixes datetimes with and without a time zone, first in row "
                f"{moments[odd][0]}",
                where=name,
                hint=f"The column is {kind}: {zone_hint(kind)}",
            )


def zone_hint(kind: pa.DataType) -> str:
    """Return what to do about datetimes for a column of timestamps.

    Examples
    --------
    >>> zone_hint(pa.timestamp("us", "UTC"))
    'give each one a tzinfo'
    """
    return "give none a tzinfo" if kind.tz is None else "give each one a tzinfo"


def _holds_moments(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return True
    return any(_holds_moments(kind.field(place).type) for place in range(kind.num_fields))


def _leaves(
    values: _Numbered, kind: pa.DataType, name: str
) -> Iterator[tuple[str, pa.DataType, list[tuple[int, datetime]]]]:
    if pa.types.is_timestamp(kind):
        # A value that is not equal to itself is pandas' missing datetime.
        yield (
            name,
            kind,
            [(row, one) for row, one in values if isinstance(one, datetime) and one == one],
        )
    elif is_list(kind):
        elements = [(row, one) for row, listed in values if isinstance(listed, Iterable) for one in listed]
        yield from _leaves(elements, kind.value_type, name)
    elif pa.types.is_map(kind):
        pairs = [(row, pair) for row, pairs in values if pairs is not None for pair in _pairs(pairs)]
        yield from _leaves([(row, key) for row, (key, _) in pairs], kind.key_type, name)
        yield from _leaves([(row, item) for row, (_, item) in pairs], kind.item_type, name)
    elif pa.types.is_struct(kind):
        structs = [(row, one) for row, one in values if isinstance(one, Mapping)]
        for field in kind:
            own = [(row, one.get(field.name)) for row, one in structs]
            yield from _leaves(own, field.type, f"{name}.{field.name}")


def _pairs(value: Any) -> Iterable[tuple[Any, Any]]:
    return value.items() if isinstance(value, Mapping) else value

"""Which types the fields of dataclasses and pydantic models are declared with, for columns of a new table."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import pyarrow as pa

from weir.rows.decimals import DECIMAL

__all__ = ["declared_column", "declared_types"]

_TYPES: Mapping[Any, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    date: pa.date32(),
    datetime: pa.timestamp("us"),
    time: pa.time64("us"),
    timedelta: pa.duration("us"),
    Decimal: DECIMAL,
    UUID: pa.uuid(),
}


def declared_types(rows: Sequence[Any]) -> Mapping[str, pa.DataType]:
    """Return the Arrow types of the fields of rows of one class, as far as its annotations tell them.

    Parameters
    ----------
    rows : sequence
        Dataclasses or models; of anything else nothing is told.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Arrival:
    ...     id: int
    ...     delay: float | None = None
    >>> declared_types([Arrival(1)])
    {'id': DataType(int64), 'delay': DataType(double)}
    """
    kinds = {type(row) for row in rows}
    if len(kinds) != 1 or issubclass(kind := kinds.pop(), Mapping):
        return {}
    try:
        hints = get_type_hints(kind, include_extras=True)
    except (NameError, TypeError):
        return {}  # names that only a type checker sees
    found = {name: _of(hint) for name, hint in hints.items()}
    return {name: one for name, one in found.items() if one is not None}


def declared_column(found: pa.DataType, declared: pa.DataType | None) -> pa.DataType:
    """Return the type of a column whose values Arrow takes for ``found``.

    The values know more than the annotation, such as the time zone, but where they say nothing, or are whole
    numbers of a field of floats.

    Parameters
    ----------
    found : DataType
        As Arrow finds it.
    declared : DataType or None
        As :func:`declared_types` tells it.
    """
    if declared is None:
        return found
    is_whole = declared == pa.float64() and pa.types.is_integer(found)
    return declared if is_whole or _says_nothing(found) else found


def _says_nothing(kind: pa.DataType) -> bool:
    return pa.types.is_null(kind) or (pa.types.is_list(kind) and _says_nothing(kind.value_type))


def _of(hint: Any) -> pa.DataType | None:
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _of(inside[0])
    if origin in (Union, types.UnionType):
        others = [one for one in inside if one is not types.NoneType]
        return _of(others[0]) if len(others) == 1 else None
    if origin in (list, Sequence) and inside:
        element = _of(inside[0])
        return None if element is None else pa.list_(element)
    return _TYPES.get(hint)

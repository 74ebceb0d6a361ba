"""Column types of a new table from the fields of dataclasses and pydantic models."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
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
    """Return the Arrow types of the fields of rows of one class, as far as its annotations give them.

    Parameters
    ----------
    rows : sequence
        Dataclasses or models; for anything else the result is empty.

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
    return _fields_of(kind, ())


def _fields_of(kind: type, above: tuple[type, ...]) -> dict[str, pa.DataType]:
    """Return the types of the fields of a class, which classes that hold it are ``above``."""
    try:
        hints = get_type_hints(kind, include_extras=True)
    except (NameError, TypeError):
        return {}  # names that only a type checker sees
    found = {name: _of(hint, (*above, kind)) for name, hint in hints.items()}
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
        As returned by :func:`declared_types`.
    """
    if declared is None:
        return found
    if pa.types.is_null(found) or (declared == pa.float64() and pa.types.is_integer(found)):
        return declared
    if pa.types.is_list(found) and pa.types.is_list(declared):
        return pa.list_(declared_column(found.value_type, declared.value_type))
    if pa.types.is_struct(found) and pa.types.is_struct(declared):
        known = {field.name: field.type for field in declared}
        return pa.struct(
            [field.with_type(declared_column(field.type, known.get(field.name))) for field in found]
        )
    return found


def _of(hint: Any, above: tuple[type, ...]) -> pa.DataType | None:
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _of(inside[0], above)
    if origin in (Union, types.UnionType):
        others = [one for one in inside if one is not types.NoneType]
        return _of(others[0], above) if len(others) == 1 else None
    if origin in (list, Sequence) and inside:
        element = _of(inside[0], above)
        return None if element is None else pa.list_(element)
    names = _field_names(hint) if isinstance(hint, type) and hint not in above else ()
    if names:
        known = _fields_of(hint, above)
        # A struct that lacks a field would take no value of it.
        return pa.struct([(name, known[name]) for name in names]) if known.keys() >= set(names) else None
    return _TYPES.get(hint)


def _field_names(kind: type) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass or a pydantic model; none for another class."""
    if is_dataclass(kind):
        return tuple(field.name for field in fields(kind))
    return tuple(getattr(kind, "model_fields", ()))

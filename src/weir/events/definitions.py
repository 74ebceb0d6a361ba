"""Definitions of event types: by a dict, an Arrow schema, a dataclass or a pydantic model."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import pyarrow as pa

from weir.errors import SchemaError
from weir.events.field_types import FieldType, parse_field_type
from weir.events.names import check_field_name

__all__ = ["fields_of"]

_PYTHON: dict[Any, str] = {
    str: "string",
    int: "int",
    float: "float",
    bool: "bool",
    date: "date",
    datetime: "datetime",
}


def fields_of(given: Any, event: str) -> dict[str, FieldType]:
    """Return the fields of an event.

    Parameters
    ----------
    given : mapping, pyarrow.Schema, dataclass or pydantic model
        For the last two, the class. In them, a decimal is ``Annotated[Decimal, "decimal(12,2)"]``.
    event : str
        Its name, for error messages.

    Raises
    ------
    SchemaError
        Naming event and field.
    """
    if isinstance(given, Mapping):
        pairs = list(given.items())
    elif isinstance(given, pa.Schema):
        if len(set(given.names)) < len(given.names):
            doubled = next(name for name in given.names if given.names.count(name) > 1)
            raise SchemaError(f"event {event!r} has field {doubled!r} twice", where=f"{event}.{doubled}")
        pairs = [(one.name, _from_arrow(one.type, one.nullable, event, one.name)) for one in given]
    elif isinstance(given, type) and dataclasses.is_dataclass(given):
        hints = typing.get_type_hints(given, include_extras=True)
        pairs = [
            (one.name, _from_python(hints[one.name], event, one.name)) for one in dataclasses.fields(given)
        ]
    elif isinstance(given, type) and hasattr(given, "model_fields"):
        hints = typing.get_type_hints(given, include_extras=True)
        pairs = [
            (name, _from_python(_with_digits(hints[name], field), event, name))
            for name, field in given.model_fields.items()
        ]
    else:
        raise SchemaError(
            f"event {event!r}: {given!r:.80} does not define fields",
            where=event,
            hint="Pass a dict of field to type, an Arrow schema, a dataclass or a pydantic model",
        )
    return {check_field_name(name, event): parse_field_type(kind, event, str(name)) for name, kind in pairs}


def _from_arrow(kind: pa.DataType, nullable: bool, event: str, name: str) -> FieldType:
    is_ = pa.types
    if is_.is_dictionary(kind):
        kind = kind.value_type
    if is_.is_string(kind) or is_.is_large_string(kind) or is_.is_string_view(kind):
        return FieldType("string", nullable)
    if is_.is_integer(kind) and kind != pa.uint64():
        return FieldType("int", nullable)
    if is_.is_floating(kind):
        return FieldType("float", nullable)
    if is_.is_boolean(kind):
        return FieldType("bool", nullable)
    if is_.is_date(kind):
        return FieldType("date", nullable)
    if is_.is_timestamp(kind):
        return FieldType("datetime", nullable)
    if is_.is_decimal128(kind) and 0 <= kind.scale <= kind.precision:
        return FieldType("decimal", nullable, kind.precision, kind.scale)
    if is_.is_list(kind) or is_.is_large_list(kind):
        item = kind.value_field
        return FieldType("list", nullable, item=_from_arrow(item.type, item.nullable, event, name))
    raise SchemaError(f"event {event!r}, field {name!r}: no field is of type {kind}", where=f"{event}.{name}")


def _with_digits(hint: Any, field: Any) -> Any:
    """Return a type hint of pydantic, with the digits that its field declares for a decimal."""
    found = {
        name: getattr(one, name)
        for one in field.metadata
        for name in ("max_digits", "decimal_places")
        if getattr(one, name, None) is not None
    }
    if "max_digits" not in found:
        return hint
    digits = f"decimal({found['max_digits']},{found.get('decimal_places', 0)})"
    is_optional = type(None) in typing.get_args(hint)
    return typing.Annotated[Decimal, f"{digits} | null" if is_optional else digits]


def _from_python(hint: Any, event: str, name: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        written = next((one for one in arguments[1:] if isinstance(one, (str, FieldType))), None)
        return written or _from_python(arguments[0], event, name)
    if origin in (typing.Union, types.UnionType) and type(None) in arguments:
        rest = [one for one in arguments if one is not type(None)]
        if len(rest) == 1:
            inner = parse_field_type(_from_python(rest[0], event, name), event, name)
            return dataclasses.replace(inner, optional=True)
    if origin is typing.Literal:
        return list(arguments)
    if origin is list and len(arguments) == 1:
        return FieldType("list", item=parse_field_type(_from_python(arguments[0], event, name), event, name))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return [one.value for one in hint]
    if hint in _PYTHON:
        return _PYTHON[hint]
    advice = 'Annotated[Decimal, "decimal(12,2)"]' if hint is Decimal else None
    raise SchemaError(
        f"event {event!r}, field {name!r}: no field is of type {hint!r:.80}",
        where=f"{event}.{name}",
        hint=None if advice is None else f"Say how many digits: {advice}",
    )

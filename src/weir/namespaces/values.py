"""Attribute values from clients: checked against their type, and converted to Arrow columns."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from weir.errors import InputError
from weir.namespaces.attributes import AttributeType, Kind
from weir.namespaces.vectors import vector_column, vectors_of, vectors_to_base64, vectors_to_lists

__all__ = ["as_column", "check_value", "documents_of", "plain_value"]

_INT = (-(2**63), 2**63 - 1)
_UINT = (0, 2**64 - 1)
_MOST_BYTES = 8 * 1024 * 1024
_UUID = re.compile(r"[0-9a-fA-F]{8}(-?)(?:[0-9a-fA-F]{4}\1){3}[0-9a-fA-F]{12}\Z")


def as_column(name: str, type: AttributeType, values: Sequence[Any]) -> pa.Array:
    """Return the values of an attribute, one for each row, as a column.

    Parameters
    ----------
    name : str
        The attribute, for messages.
    type : AttributeType
        Its type.
    values : sequence
        The values; None where it is missing.

    Raises
    ------
    InputError
        If a value is of another type, naming row, attribute and type.
    """
    if type.is_vector:
        try:
            matrix, present = vectors_of(values, type.dimensions)
            return vector_column(matrix, present, type.bits)
        except InputError as error:
            raise InputError(f"attribute {name!r} is {type}: {error.message}") from error
    if type.is_list:
        return _list_column(name, type, values)
    checked = _checked(type.kind, values)
    if checked is None:
        row, value, why = _first_refused(type.kind, values)
        raise InputError(f"row {row}: attribute {name!r} is {type}, got {_told(value)}{why}")
    return _array(checked, type.arrow)


def _array(values: list[Any], type: pa.DataType) -> pa.Array:
    """Return checked values as an array; where they are compared, a zero with a sign would be another one."""
    array = pa.array(values, type)
    return pc.add(array, 0.0) if pa.types.is_floating(type) else array


def _list_column(name: str, type: AttributeType, values: Sequence[Any]) -> pa.Array:
    for row, value in enumerate(values):
        if value is not None and not isinstance(value, list | tuple):
            raise InputError(f"row {row}: attribute {name!r} is {type}, got {_told(value)}")
    elements = [element for value in values if value is not None for element in value]
    checked = None if None in elements else _checked(type.kind, elements)
    if checked is None:
        for row, value in enumerate(values):
            for element in value or ():
                why = refused(type.kind, element) if element is not None else ""
                if why is not None:
                    raise InputError(
                        f"row {row}: attribute {name!r} is {type}, got a list with {_told(element)}{why}"
                    )
    offsets, total = [0], 0
    for value in values:
        total += len(value) if value is not None else 0
        offsets.append(total)
    mask = None if None not in values else pa.array([value is None for value in values])
    assert checked is not None, "the element that is refused was found"
    flat = _array(checked, type.arrow.value_type)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat, mask=mask)


def _checked(kind: Kind, values: Sequence[Any]) -> list[Any] | None:
    """Return values as Arrow takes them; None if one is of another type."""
    kinds = {*map(type, values)} - {type(None)}
    if not kinds:
        return list(values)
    if kinds <= _PLAIN[kind]:
        if kind in (Kind.STRING, Kind.BOOL):
            return list(values) if kind is Kind.BOOL or _is_text(values) else None
        if kind in (Kind.INT, Kind.UINT):
            least, most = _INT if kind is Kind.INT else _UINT
            known = [value for value in values if value is not None]
            return list(values) if min(known) >= least and max(known) <= most else None
        if kind is Kind.FLOAT:
            try:
                # Arrow only accepts integers that a float represents exactly.
                known = (
                    list(values)
                    if int not in kinds
                    else [None if one is None else float(one) for one in values]
                )
            except OverflowError:
                return None
            return known if all(math.isfinite(one) for one in known if one is not None) else None
    if kind not in _READ:
        return None
    try:
        return [None if value is None else _READ[kind](value) for value in values]
    except (ValueError, TypeError, OverflowError):
        return None


def _is_text(values: Iterable[Any]) -> bool:
    try:
        return all(len(value.encode()) <= _MOST_BYTES for value in values if value is not None)
    except UnicodeEncodeError:
        return False


def read_uuid(value: object) -> bytes:
    """Return the 16 bytes of a UUID."""
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, str) and _UUID.match(value):
        return UUID(value).bytes
    raise ValueError("a UUID is a text of 36 characters")


def read_datetime(value: object) -> datetime:
    """Return a moment in UTC, of ISO 8601; one without an offset is in UTC."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if not isinstance(value, datetime):
        raise ValueError("a datetime is a text in ISO 8601")
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


_PLAIN: dict[Kind, set[type]] = {
    Kind.STRING: {str},
    Kind.BOOL: {bool},
    Kind.INT: {int},
    Kind.UINT: {int},
    Kind.FLOAT: {int, float},
    Kind.UUID: set(),
    Kind.DATETIME: set(),
}
_READ: dict[Kind, Callable[[object], Any]] = {Kind.UUID: read_uuid, Kind.DATETIME: read_datetime}


def refused(kind: Kind, value: object) -> str | None:
    """Return why one value is refused, to be put behind it; None if it is not."""
    if type(value) in _PLAIN[kind]:
        if kind in (Kind.INT, Kind.UINT):
            least, most = _INT if kind is Kind.INT else _UINT
            return None if least <= value <= most else ", which is out of range"  # type: ignore[operator]
        if kind is Kind.FLOAT:
            try:
                return None if math.isfinite(value) else ", which is not finite"  # type: ignore[arg-type]
            except OverflowError:
                return ", which is out of range"
        if kind is Kind.STRING:
            return None if _is_text([value]) else ", which is not Unicode text or longer than 8 MiB"
        return None
    if kind in _READ:
        try:
            _READ[kind](value)
        except (ValueError, TypeError, OverflowError):
            return ""
        return None
    return ""


def _first_refused(kind: Kind, values: Sequence[Any]) -> tuple[int, object, str]:
    for row, value in enumerate(values):
        why = None if value is None else refused(kind, value)
        if why is not None:
            return row, value, why
    raise AssertionError("every value was taken")


def _told(value: object) -> str:
    """Return what a value is, for a message; never the value of a document itself."""
    if value is None:
        return "null"
    names = {"str": "string", "dict": "an object", "list": "a list"}
    name = type(value).__name__
    return names.get(name, name)


def check_value(name: str, type: AttributeType, value: object) -> object:
    """Return one value as Arrow takes it, for a filter.

    Raises
    ------
    InputError
        If it is of another type.
    """
    why = refused(type.kind, value)
    if why is not None or value is None:
        raise InputError(
            f"attribute {name!r} is {type}, which cannot be compared with {_told(value)}{why or ''}"
        )
    return _READ[type.kind](value) if type.kind in _READ else value


def plain_value(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, datetime):
        text = value.astimezone(UTC).isoformat(timespec="auto")
        return text.removesuffix("+00:00") + "Z"
    if isinstance(value, bytes):
        return str(UUID(bytes=value))
    if isinstance(value, list):
        return [plain_value(element) for element in value]
    return value


def column_values(column: pa.Array | pa.ChunkedArray, *, base64: bool = False) -> list[Any]:
    """Return a column as JSON has it: vectors as lists of numbers or base64."""
    type = column.type
    if pa.types.is_fixed_size_list(type):
        return list(vectors_to_base64(column) if base64 else vectors_to_lists(column))
    values: list[Any] = column.to_pylist()
    inner = type.value_type if pa.types.is_list(type) else type
    if pa.types.is_timestamp(inner) or pa.types.is_fixed_size_binary(inner):
        return [plain_value(value) for value in values]
    return values


def documents_of(rows: pa.Table, names: Sequence[str], *, base64: bool = False) -> list[dict[str, Any]]:
    """Return rows as documents.

    Parameters
    ----------
    rows : Table
        The rows.
    names : sequence of str
        What each column is called in a document.
    base64 : bool
        Whether vectors are base64. Default False: lists of numbers.
    """
    columns = [column_values(column, base64=base64) for column in rows.columns]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]

"""Which types are wider than others: every value of one is a value of the other, with the same meaning."""

from __future__ import annotations

import pyarrow as pa

from weir.errors import SchemaError

__all__ = ["widened", "wider"]

_UNITS = ("s", "ms", "us", "ns")
_FLOATS = {pa.float16(): 0, pa.float32(): 1, pa.float64(): 2}
_LARGE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}


def widened(kind: pa.DataType, wanted: pa.DataType, path: str) -> pa.DataType:
    """Return the type that a column is widened to, with the names and marks of the parts it has.

    Parameters
    ----------
    kind : DataType
        What it is.
    wanted : DataType
        What it is to be.
    path : str
        The column, for the error.

    Raises
    ------
    SchemaError
        The new type is not wider than the old one.

    Examples
    --------
    >>> widened(pa.decimal128(10, 2), pa.decimal128(14, 4), "price")
    Decimal128Type(decimal128(14, 4))
    >>> widened(pa.list_(pa.field("item", pa.int32(), False)), pa.list_(pa.int64()), "counts")
    ListType(list<item: int64 not null>)
    """
    if kind == wanted:
        raise SchemaError(
            f"column {path!r} is of type {kind} already", where=path, hint="Leave it out of widen"
        )
    found = wider(kind, wanted)
    if found is None:
        raise SchemaError(
            f"column {path!r} of type {kind} cannot be widened to {wanted}",
            where=path,
            hint="Wider are: integers of more bits, floats of more bits, decimals with more digits "
            "before and no fewer after the point, finer units of times of day, large_string and "
            "large_binary, and lists of such. Finer timestamps and durations "
            "do not reach as far: add a column",
        )
    return found


def wider(kind: pa.DataType, wanted: pa.DataType) -> pa.DataType | None:
    """Return the wider type, with the names and marks of the existing parts; None if it is not wider.

    Examples
    --------
    >>> wider(pa.int32(), pa.int64()), wider(pa.int64(), pa.int32())
    (DataType(int64), None)
    """
    types = pa.types
    if types.is_list(kind) and types.is_list(wanted):
        inner = _part(kind.value_type, wanted.value_type)
        return None if inner is None else pa.list_(kind.value_field.with_type(inner))
    if types.is_large_list(kind) and types.is_large_list(wanted):
        inner = _part(kind.value_type, wanted.value_type)
        return None if inner is None else pa.large_list(kind.value_field.with_type(inner))
    if types.is_fixed_size_list(kind) and types.is_fixed_size_list(wanted):
        inner = _part(kind.value_type, wanted.value_type)
        same = kind.list_size == wanted.list_size and inner is not None
        return pa.list_(kind.value_field.with_type(inner), kind.list_size) if same else None
    return wanted if _is_wider(kind, wanted) else None


def _part(kind: pa.DataType, wanted: pa.DataType) -> pa.DataType | None:
    return kind if kind == wanted else wider(kind, wanted)


def _is_wider(kind: pa.DataType, wanted: pa.DataType) -> bool:
    types = pa.types
    if types.is_integer(kind) and types.is_integer(wanted):
        if types.is_signed_integer(kind) and types.is_unsigned_integer(wanted):
            return False
        return bool(wanted.bit_width > kind.bit_width)
    if kind in _FLOATS and wanted in _FLOATS:
        return _FLOATS[wanted] > _FLOATS[kind]
    if types.is_decimal(kind) and types.is_decimal(wanted):
        before = wanted.precision - wanted.scale >= kind.precision - kind.scale
        return bool(before and wanted.scale >= kind.scale and wanted.bit_width >= kind.bit_width)
    # Not of timestamps and durations: finer ones do not reach as far, and a value that is not merged yet, or
    # that a writer is just writing, could not be read any more.
    if types.is_time(kind) and types.is_time(wanted):
        return _UNITS.index(wanted.unit) > _UNITS.index(kind.unit)
    return kind in _LARGE and bool(wanted == _LARGE[kind])

"""Lossless casts: whether values of one type can represent values of another."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from weir.errors import SchemaError
from weir.schema.list_cast import cast, infinities, is_list

__all__ = ["cast_to", "fits", "is_text"]

_UUID = pa.uuid().storage_type


def cast_to(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """Return a column in the type of a field.

    Raises
    ------
    SchemaError
        If its values are not meant as such, or one of them would not be the same.
    """
    if not fits(column.type, field.type):
        raise SchemaError(
            f"column {field.name!r} is of type {column.type} where the table has {field.type}",
            where=field.name,
            hint=f"Cast it to {field.type} first",
        )
    if pa.types.is_timestamp(column.type) and pa.types.is_date(field.type):
        _refuse_times_of_day(column, field)
    try:
        fitted = cast(column, field.type)
        infinite = infinities(fitted)
        if infinite and infinite > infinities(column):
            raise pa.ArrowInvalid("a number is too large")
        return fitted
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(
            f"column {field.name!r} has a value that does not fit {field.type}: {error}",
            where=field.name,
        ) from error


def _refuse_times_of_day(column: pa.ChunkedArray, field: pa.Field) -> None:
    """Refuse moments that are no date: Arrow would cut off the time."""
    midnights = column.cast(pa.date32()).cast(column.type)
    row = pc.index(pc.equal(column, midnights), False).as_py()
    if row >= 0:
        raise SchemaError(
            f"column {field.name!r} is of type {field.type}, and {column[row]} in row {row} has a time "
            "of day",
            where=field.name,
            hint="Pass dates, or timestamps at midnight",
        )


def fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of one type are meant as values of another: same kind, perhaps another width."""
    types = pa.types
    if given == wanted or types.is_null(given) or (isinstance(given, pa.UuidType) and wanted == _UUID):
        return True
    if isinstance(wanted, pa.UuidType):
        return _is_binary(given) or is_text(given)
    if isinstance(wanted, pa.JsonType):
        return isinstance(given, pa.JsonType) or is_text(given)
    if types.is_dictionary(given):
        return fits(given.value_type, wanted)
    if types.is_dictionary(wanted):
        return fits(given, wanted.value_type)
    if is_list(given) and is_list(wanted):
        return fits(given.value_type, wanted.value_type)
    if types.is_struct(given) and types.is_struct(wanted):
        same = [field.name for field in given] == [field.name for field in wanted]
        return same and all(fits(a.type, b.type) for a, b in zip(given, wanted, strict=True))
    if types.is_map(given) and types.is_map(wanted):
        return fits(given.key_type, wanted.key_type) and fits(given.item_type, wanted.item_type)
    kinds = (
        (types.is_integer, types.is_integer),
        (types.is_integer, types.is_floating),
        (types.is_floating, types.is_floating),
        (types.is_integer, types.is_decimal),
        (types.is_decimal, types.is_decimal),
        # Where there are no unsigned numbers, 64 of their bits are a decimal.
        (types.is_decimal, types.is_integer),
        (is_text, is_text),
        (_is_binary, _is_binary),
        (types.is_date, types.is_date),
        (types.is_time, types.is_time),
        (types.is_duration, types.is_duration),
    )
    if types.is_timestamp(given) and types.is_timestamp(wanted):
        return (given.tz is None) == (wanted.tz is None)
    if types.is_timestamp(given) and types.is_date(wanted):
        # As pandas has dates: moments at midnight, which is elsewhere at another time.
        return given.tz is None
    if types.is_date(given) and types.is_timestamp(wanted):
        return wanted.tz is None
    return any(one(given) and other(wanted) for one, other in kinds)


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is one of text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )

"""Lossless casts: whether values of one type can represent values of another."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from weir.errors import SchemaError
from weir.rows.failing_rows import first_refused
from weir.schema.list_cast import cast, infinities, is_list

__all__ = ["cast_to", "fits", "is_text"]

_UUID = pa.uuid().storage_type
_DAY = 86_400
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def cast_to(column: pa.ChunkedArray, field: pa.Field, *, first_row: int | None = None) -> pa.ChunkedArray:
    """Return a column in the type of a field.

    Parameters
    ----------
    first_row : int, optional
        How many rows of the caller's come before these: the error names the first that is refused. Without
        it, it names none.

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
    try:
        return _exact(column, field.type)
    except pa.ArrowException as error:
        refused = None
        # What Arrow can do with no value at all is no matter of a row.
        if first_row is not None and isinstance(error, pa.ArrowInvalid):
            refused = first_refused(len(column), lambda start, end: _exact(column[start:end], field.type))
        if refused is not None:
            error = refused.error
        raise SchemaError(
            f"column {field.name!r} has a value that does not fit {field.type}: {error}",
            where=field.name if refused is None else f"{field.name}, row {(first_row or 0) + refused.row}",
            hint="Pass dates, or timestamps at midnight" if isinstance(error, _TimeOfDayError) else None,
        ) from error


class _TimeOfDayError(pa.ArrowInvalid):  # type: ignore[misc]
    """A moment where there should be a date."""


def _exact(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """Cast a column; raise what Arrow raises, and where Arrow would cut a value in silence."""
    for chunk in column.chunks:
        _refuse_times_of_day(chunk, wanted)
    fitted = cast(column, wanted)
    infinite = infinities(fitted)
    if infinite and infinite > infinities(column):
        raise pa.ArrowInvalid("a number is too large")
    return fitted


def _refuse_times_of_day(values: pa.Array, wanted: pa.DataType) -> None:
    """Refuse moments that are no date, at any depth: Arrow would cut off the time."""
    kind, types = values.type, pa.types
    if kind == wanted:
        return
    if types.is_dictionary(kind):
        if types.is_temporal(kind.value_type):
            _refuse_times_of_day(values.dictionary_decode(), wanted)
    elif types.is_dictionary(wanted):
        _refuse_times_of_day(values, wanted.value_type)
    elif is_list(kind):
        _refuse_times_of_day(values.flatten(), wanted.value_type)
    elif types.is_struct(kind):
        for inner, field in zip(values.flatten(), wanted, strict=True):
            _refuse_times_of_day(inner, field.type)
    elif types.is_map(kind):
        # Of a slice Arrow gives the keys and items of all.
        held = slice(values.offsets[0].as_py(), values.offsets[-1].as_py())
        _refuse_times_of_day(values.keys[held], wanted.key_type)
        _refuse_times_of_day(values.items[held], wanted.item_type)
    elif types.is_date(wanted) and (types.is_timestamp(kind) or types.is_date64(kind)):
        day = _DAY * (_PER_SECOND[kind.unit] if types.is_timestamp(kind) else 1_000)
        ticks = values.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        cut = np.flatnonzero(ticks % day)
        if len(cut):
            # As text: not every moment is one of Python's.
            text = values.slice(cut[0], 1).cast(pa.timestamp("ms") if types.is_date64(kind) else kind)
            raise _TimeOfDayError(f"{text.cast(pa.string())[0]} has a time of day")


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
        sized = types.is_fixed_size_list(given) and types.is_fixed_size_list(wanted)
        if sized and given.list_size != wanted.list_size:
            return False
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

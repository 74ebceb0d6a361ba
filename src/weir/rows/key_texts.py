"""Keys written as text: the key values for which that text is a filter literal."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from weir.errors import SchemaError
from weir.format.plain_keys import stored_type
from weir.rows.cast import is_text
from weir.schema.uuid_text import uuids_of_texts
from weir.schema.zone_clocks import instants_shown

__all__ = ["Column", "keys_of_texts"]

_UUID_BYTES = 16
_WHOLE = r"^[+-]?[0-9]+$"
_HAS_ZONE = r"^.{11,}(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
_FINER_THAN_MICROSECONDS = r"\.[0-9]{7}"

Column: TypeAlias = pa.Array | pa.ChunkedArray


def keys_of_texts(texts: Column, field: pa.Field, *, what: str = "key") -> Column:
    """Return the values that texts are in a key column of dates, times, numbers or UUIDs.

    Parameters
    ----------
    texts : Array or ChunkedArray
        The value passed for the column: only texts are read, anything else is returned unchanged.
    field : Field
        The key column. One of texts or of bytes takes texts as no other values.
    what : str, default "key"
        What the texts are, for the error.

    Raises
    ------
    SchemaError
        If a text is not a value of the type; the error names it and its row.

    Examples
    --------
    >>> keys_of_texts(pa.array(["2026-01-02"]), pa.field("day", pa.date32())).to_pylist()
    [datetime.date(2026, 1, 2)]
    """
    read = _reader(field.type) if is_text(texts.type) else None
    if read is None:
        return texts
    texts = texts.cast(pa.string())
    try:
        return read(texts, field.type)
    except (pa.ArrowException, ValueError, OverflowError):
        raise _refused(texts, field, read, what) from None


Read: TypeAlias = Callable[[Column, pa.DataType], Column]


def _reader(kind: pa.DataType) -> Read | None:
    types = pa.types
    if types.is_date(kind) or types.is_decimal(kind):
        return _cast
    if types.is_integer(kind):
        return _whole_numbers
    if types.is_timestamp(kind):
        return _instants
    kind = stored_type(kind)
    if types.is_fixed_size_binary(kind) and kind.byte_width == _UUID_BYTES:
        return _uuids
    return None


def _cast(texts: Column, kind: pa.DataType) -> Column:
    return texts.cast(kind)


def _whole_numbers(texts: Column, kind: pa.DataType) -> Column:
    # Arrow reads 0x10 too, which no filter does, and no sign before the digits but a minus.
    if not pc.all(pc.match_substring_regex(texts, _WHOLE)).as_py():
        raise ValueError
    return pc.utf8_ltrim(texts, "+").cast(kind)


def _instants(texts: Column, kind: pa.DataType) -> Column:
    has_zone = pc.match_substring_regex(texts, _HAS_ZONE)
    if kind.tz is None and pc.any(has_zone).as_py():
        raise ValueError
    # Nanoseconds end in the year 2262.
    unit = "ns" if pc.any(pc.match_substring_regex(texts, _FINER_THAN_MICROSECONDS)).as_py() else "us"
    nothing = pa.scalar(None, pa.string())
    local = pc.if_else(has_zone, nothing, texts).cast(pa.timestamp(unit))
    if kind.tz is None:
        return local.cast(kind)
    # As everywhere in SQL: the clock on the wall, where the column is.
    local = instants_shown(local, kind.tz)
    zoned = pc.if_else(has_zone, texts, nothing).cast(pa.timestamp(unit, kind.tz))
    return pc.coalesce(zoned, local).cast(kind)


def _uuids(texts: Column, kind: pa.DataType) -> Column:
    return uuids_of_texts(texts).cast(kind)


def _refused(texts: Column, field: pa.Field, read: Read, what: str) -> SchemaError:
    """Return the error for the first text that is not a value of the column."""
    for row in range(len(texts)):
        try:
            read(texts.slice(row, 1), field.type)
        except (pa.ArrowException, ValueError, OverflowError):
            return SchemaError(
                f"{texts[row].as_py()!r} is not a value of column {field.name!r} of type {field.type}",
                where=f"{field.name}, {what} {row}",
                hint=f"It is written like {_example(field.type)}",
            )
    return SchemaError(f"a text is not a value of column {field.name!r} of type {field.type}")


def _example(kind: pa.DataType) -> str:
    types = pa.types
    if types.is_date(kind):
        return "'2026-01-31'"
    if types.is_timestamp(kind):
        return "'2026-01-31 12:00:00'" + ("" if kind.tz is None else ", or '2026-01-31T12:00:00Z'")
    if types.is_integer(kind):
        return "'17'"
    return "'1.50'" if types.is_decimal(kind) else "'12345678-1234-5678-1234-567812345678'"

"""SQL literals of Arrow values, for conditions that Weir generates for Lance."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from weir.format.plain_keys import stored_keys

__all__ = ["key_filter", "literals"]


_DECIMAL_DIGITS = 38
_EPOCH = date(1970, 1, 1).toordinal()
_LAST_DAY = date.max.toordinal()


def literals(values: pa.Array) -> list[str] | None:
    """Return the SQL literal of every value, or None if Lance's SQL has none for the type.

    Each is exactly the value. Floats that are no number or infinite have none.

    Parameters
    ----------
    values : Array
        Without nulls.

    Examples
    --------
    >>> import pyarrow as pa
    >>> literals(pa.array(["it's"]))
    ["'it''s'"]
    """
    values = stored_keys(values)
    kind = values.type
    if pa.types.is_integer(kind):
        # Lance reads the digits before the sign, and those of the least int64 are one too many.
        least = -(2**63)
        return [str(value) if value != least else f"{least + 1} - 1" for value in values.to_pylist()]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return ["'" + value.replace("'", "''") + "'" for value in values.to_pylist()]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return [f"X'{value.hex()}'" for value in values.to_pylist()]
    if pa.types.is_date32(kind):
        return _dates(values)
    if pa.types.is_timestamp(kind):
        return _timestamps(values)
    if pa.types.is_boolean(kind):
        return ["true" if value else "false" for value in values.to_pylist()]
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        if not pc.all(pc.is_finite(values)).as_py():
            return None
        return [repr(value) for value in values.to_pylist()]
    if pa.types.is_decimal128(kind) and 0 <= kind.scale <= kind.precision <= _DECIMAL_DIGITS:
        sort = f"DECIMAL({kind.precision}, {kind.scale})"
        return [f"CAST('{value:f}' AS {sort})" for value in values.to_pylist()]
    return None


def _dates(values: pa.Array) -> list[str]:
    days = values.cast(pa.int32()).to_pylist()
    # Of years with more digits, and those before the first, Lance reads no date.
    return [
        f"date '{date.fromordinal(_EPOCH + day)}'"
        if -_EPOCH < day <= _LAST_DAY - _EPOCH
        else f"arrow_cast(CAST({day} AS INT), 'Date32')"
        for day in days
    ]


def _timestamps(values: pa.Array) -> list[str] | None:
    kind = values.type
    # Lance keeps only microseconds of a literal ``timestamp '...'``, and reads one with a zone as local time
    # in the column's zone.
    zone = "None" if kind.tz is None else 'Some("UTC")'
    unit = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}[kind.unit]
    numbers = literals(values.cast(pa.int64()))
    return numbers and [f"arrow_cast({number}, 'Timestamp({unit}, {zone})')" for number in numbers]


def key_filter(names: tuple[str, ...], columns: tuple[pa.Array, ...]) -> str | None:
    """Return a filter that every row with one of the keys passes, or None if none can be written.

    For composite keys it is the product of the columns' values, so other rows may pass it too.
    """
    terms = []
    for name, column in zip(names, columns, strict=True):
        texts = literals(pc.unique(column))
        if texts is not None:
            terms.append(f"`{name}` IN ({', '.join(texts)})")
    return " AND ".join(terms) or None

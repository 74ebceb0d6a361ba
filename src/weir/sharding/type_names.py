"""Arrow types as text, the way shard specs write them.

The released library names the result types of bucket and identity fields ``int32``, ``utf8``,
``large_utf8``, ``boolean`` and so on. Types with parameters are spelled as Lance spells its logical
types: ``timestamp:us:UTC``, ``decimal:128:10:2``, ``fixed_size_binary:16``.
"""

from __future__ import annotations

import pyarrow as pa

from weir.errors import ShardingError
from weir.schema.plain import PLAIN_TYPES

__all__ = ["parse_type", "type_name"]

_OF_SPECS = {"bool": "boolean", "string": "utf8", "large_string": "large_utf8"}
"""Spellings in specs that differ from Arrow's names."""

_PLAIN = {_OF_SPECS.get(name, name): data_type for name, data_type in PLAIN_TYPES.items()}
_NAMES = {data_type: name for name, data_type in _PLAIN.items()} | {
    # Lance stores the view types as their plain forms, and so reads them back.
    pa.string_view(): "utf8",
    pa.binary_view(): "binary",
}
_ALIASES = {
    **_OF_SPECS,
    "halffloat": "float16",
    "float": "float32",
    "double": "float64",
    "date32:day": "date32",
    "date64:ms": "date64",
}
_DECIMALS = {128: pa.decimal128, 256: pa.decimal256}


def type_name(data_type: pa.DataType) -> str:
    """Return the name of a scalar Arrow type.

    Parameters
    ----------
    data_type : pyarrow.DataType
        A type without children.

    Raises
    ------
    ShardingError
        The type cannot be a shard value or a source of one (lists, structs, dictionaries, ...).

    Examples
    --------
    >>> import pyarrow as pa
    >>> type_name(pa.string()), type_name(pa.timestamp("us", "UTC")), type_name(pa.decimal128(10, 2))
    ('utf8', 'timestamp:us:UTC', 'decimal:128:10:2')
    """
    plain = _NAMES.get(data_type)
    if plain is not None:
        return plain
    if pa.types.is_timestamp(data_type):
        return f"timestamp:{data_type.unit}:{data_type.tz or '-'}"
    if pa.types.is_time(data_type):
        return f"time{data_type.bit_width}:{data_type.unit}"
    if pa.types.is_duration(data_type):
        return f"duration:{data_type.unit}"
    if pa.types.is_decimal(data_type):
        return f"decimal:{data_type.bit_width}:{data_type.precision}:{data_type.scale}"
    if pa.types.is_fixed_size_binary(data_type):
        return f"fixed_size_binary:{data_type.byte_width}"
    raise ShardingError(
        f"type {data_type} cannot take part in sharding",
        hint="Use a column of a scalar type: a number, text, binary, date or time",
    )


def parse_type(name: str) -> pa.DataType:
    """Return the Arrow type that ``name`` stands for; the inverse of :func:`type_name`.

    The names PyArrow prints for simple types (``string``, ``bool``, ``double``) are understood too.

    Raises
    ------
    ShardingError
        The name is unknown.

    Examples
    --------
    >>> parse_type("int64"), parse_type("timestamp:ms:-")
    (DataType(int64), TimestampType(timestamp[ms]))
    """
    plain = _PLAIN.get(_ALIASES.get(name, name))
    if plain is not None:
        return plain
    head, *parts = name.split(":", 2)
    try:
        if head == "timestamp":
            unit, zone = parts
            return pa.timestamp(unit, None if zone == "-" else zone)
        if head == "time32":
            return pa.time32(*parts)
        if head == "time64":
            return pa.time64(*parts)
        if head == "duration":
            return pa.duration(*parts)
        if head == "decimal":
            bits, rest = parts
            precision, scale = rest.split(":")
            return _DECIMALS[int(bits)](int(precision), int(scale))
        if head == "fixed_size_binary":
            return pa.binary(int(*parts))
    except (ValueError, TypeError, KeyError) as error:
        raise ShardingError(f"{name!r} is not a well-formed type name", hint=str(error)) from error
    raise ShardingError(
        f"unknown type name {name!r}", hint=f"Known are {', '.join(_PLAIN)} and types with parameters"
    )

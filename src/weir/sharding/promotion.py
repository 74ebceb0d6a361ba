"""Shard values that stay the same when a column is promoted to a wider type.

The spec asks that equal values have equal shard values whatever their type ("type-promotion resistant"),
and the hash of the released library does not have that property. So Weir records the type each source
column had when the shard spec was made, and brings values back to it before it computes shard values.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from weir.errors import ShardingError

__all__ = ["conform", "is_promotion", "plain_type"]

_UNITS = {"s": 0, "ms": 1, "us": 2, "ns": 3}


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type of the values themselves: without dictionary encoding and views, UUIDs as bytes.

    Examples
    --------
    >>> import pyarrow as pa
    >>> plain_type(pa.dictionary(pa.int8(), pa.string())), plain_type(pa.string_view())
    (DataType(string), DataType(string))
    """
    if pa.types.is_dictionary(data_type):
        data_type = data_type.value_type
    if isinstance(data_type, pa.UuidType):
        return data_type.storage_type
    if pa.types.is_string_view(data_type):
        return pa.string()
    if pa.types.is_binary_view(data_type):
        return pa.binary()
    return data_type


def is_promotion(recorded: pa.DataType, current: pa.DataType) -> bool:
    """Whether a column of type ``recorded`` may have become one of type ``current`` without new values.

    True for equal types, wider integers and floats, another layout of text or binary, finer units of
    time, and decimals with more digits.

    Examples
    --------
    >>> import pyarrow as pa
    >>> is_promotion(pa.int32(), pa.int64()), is_promotion(pa.int64(), pa.int32())
    (True, False)
    """
    old, new = plain_type(recorded), plain_type(current)
    if old == new:
        return True
    if pa.types.is_integer(old) and pa.types.is_integer(new):
        if pa.types.is_unsigned_integer(new):
            return bool(pa.types.is_unsigned_integer(old) and new.bit_width > old.bit_width)
        return bool(new.bit_width > old.bit_width)
    if pa.types.is_floating(old) and pa.types.is_floating(new):
        return bool(new.bit_width > old.bit_width)
    if _is_text(old) and _is_text(new):
        return True
    if _is_binary(old) and _is_binary(new):
        return not pa.types.is_fixed_size_binary(new)
    if pa.types.is_timestamp(old) and pa.types.is_timestamp(new):
        return bool(old.tz == new.tz and _UNITS[new.unit] > _UNITS[old.unit])
    if pa.types.is_time(old) and pa.types.is_time(new):
        return _UNITS[new.unit] > _UNITS[old.unit]
    if pa.types.is_date32(old) and pa.types.is_date64(new):
        return True
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        return bool(new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale)
    return False


def conform(column: pa.Array, recorded: pa.DataType, *, name: str) -> pa.Array:
    """Return the column as the recorded type.

    Parameters
    ----------
    column : pyarrow.Array
        Values of the recorded type or one it has been promoted to.
    recorded : pyarrow.DataType
        The type when the shard spec was made.
    name : str
        The column's name, for errors.

    Raises
    ------
    ShardingError
        A value does not fit the recorded type.
    """
    if column.type == recorded:
        return column
    try:
        conformed = column.cast(recorded)
        if pa.types.is_floating(recorded) and pa.types.is_floating(column.type):
            # Arrow rounds when it narrows floats; a rounded value is another value.
            same = pc.or_(pc.equal(conformed.cast(column.type), column), pc.is_nan(column))
            if not pc.all(same, min_count=0).as_py():
                raise pa.ArrowInvalid("the value would have to be rounded")
        return conformed
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ShardingError(
            f"a value of column {name!r} does not fit {recorded}, the type its shards were made for",
            where=name,
            hint=f"Store it in a table sharded by the wider type {column.type} ({error})",
        ) from error


def _is_text(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


def _is_binary(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(data_type)
        or pa.types.is_large_binary(data_type)
        or pa.types.is_fixed_size_binary(data_type)
    )

"""Key columns as their underlying integers or bytes, with the same equality and order.

Hashing, sorting and searching keys works on integers, texts and bytes; other key types are converted to
these:

===================  ========================================================================
type                 form
===================  ========================================================================
date32               the days, int32
date64, timestamp    the units since 1970, int64, whatever the time zone
decimal128           the unscaled value as 16 bytes, big-endian, sign bit flipped
decimal256           the same with 32 bytes
fixed-size binary    its bytes
UUID                 its 16 bytes
===================  ========================================================================
"""

from __future__ import annotations

from decimal import Decimal
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["is_instant", "is_number", "plain_keys", "stored_keys", "stored_type"]

Column = TypeVar("Column", pa.Array, pa.ChunkedArray)


def is_instant(type: pa.DataType) -> bool:
    """Whether values of a type are integers underneath: dates and timestamps.

    Examples
    --------
    >>> is_instant(pa.date32()), is_instant(pa.int32())
    (True, False)
    """
    return bool(pa.types.is_date(type) or pa.types.is_timestamp(type))


def is_number(type: pa.DataType) -> bool:
    """Whether values of a type are integers, or integers underneath.

    Examples
    --------
    >>> is_number(pa.date32()), is_number(pa.int32()), is_number(pa.decimal128(9, 2))
    (True, True, False)
    """
    return bool(pa.types.is_integer(type) or is_instant(type))


def stored_type(type: pa.DataType) -> pa.DataType:
    """Return the type that values of a key column are stored as: of UUIDs fixed-size binary, else their own.

    Examples
    --------
    >>> stored_type(pa.uuid())
    FixedSizeBinaryType(fixed_size_binary[16])
    """
    return type.storage_type if isinstance(type, pa.UuidType) else type


def stored_keys(column: Column) -> Column:
    """Return a column as it is stored: of UUIDs, with which Arrow does not compute, the bytes."""
    kind = stored_type(column.type)
    return column if kind is column.type else column.cast(kind)


def plain_keys(column: pa.Array) -> pa.Array:
    """Return a key column in its plain form; integers, booleans, texts and binaries as they are.

    Parameters
    ----------
    column : pyarrow.Array
        A key column, nulls allowed.

    Returns
    -------
    pyarrow.Array
        The same number of rows, null where the column is.

    Examples
    --------
    >>> plain_keys(pa.array([86_400_000_000], pa.timestamp("us", "UTC"))).to_pylist()
    [86400000000]
    >>> plain_keys(pa.array([1], pa.decimal128(4, 2)))[0].as_py().hex()
    '80000000000000000000000000000064'
    """
    column = stored_keys(column)
    kind = column.type
    if pa.types.is_integer(kind):
        return column
    if is_instant(kind):
        return column.view(pa.int32() if pa.types.is_date32(kind) else pa.int64())
    if pa.types.is_decimal(kind):
        return _ordered_bytes(column)
    return column.cast(pa.binary()) if pa.types.is_fixed_size_binary(kind) else column


def _ordered_bytes(column: pa.Array) -> pa.Array:
    """Return decimals as bytes in whose order they are."""
    kind, rows = column.type, len(column)
    width = kind.bit_width // 8
    if column.null_count:
        filled = column.fill_null(pa.scalar(Decimal(0), kind))
        return pc.if_else(column.is_valid(), _ordered_bytes(filled), pa.scalar(None, pa.binary()))
    stored = np.frombuffer(column.buffers()[1], np.uint8, (column.offset + rows) * width)
    ordered = stored.reshape(-1, width)[column.offset :, ::-1].copy()
    ordered[:, 0] ^= 0x80
    fixed = pa.Array.from_buffers(pa.binary(width), rows, [None, pa.py_buffer(ordered)])
    return fixed.cast(pa.binary())

"""Primary keys: which columns and types may form one, and the order-preserving form of a key.

The ``_pk_index`` of a generation stores one value per row: the key itself when it is a single
column, else all key columns in one binary value whose byte order is the order of the keys:

=====================  ======================================================================
part                   bytes
=====================  ======================================================================
null                   ``00``
not null               ``01``, then the value
int8 ... int64         8 bytes, big-endian, sign bit flipped
uint8 ... uint64       8 bytes, big-endian
bool                   1 byte, ``00`` or ``01``
string, binary         its bytes with every ``00`` written as ``00 ff``, then ``00 00``
date, timestamp        as the int64 that it is underneath (:mod:`weir.format.plain_keys`)
decimal                16 or 32 bytes, big-endian, sign bit flipped
fixed-size binary      its bytes; of a UUID its 16
=====================  ======================================================================

The released library accepts these in a primary key but for the last three, whose tables it cannot write. It
rejects every other type too (floats, times, dictionaries, nested types) when the MemWAL is set up, and
nullable key columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from weir.errors import SchemaError
from weir.format.plain_keys import is_instant, plain_keys, stored_keys, stored_type

__all__ = [
    "FEATURE",
    "SUPPORTED_TYPES",
    "PrimaryKey",
    "check_key_columns",
    "check_key_type",
    "encode_keys",
    "key_note",
]

FEATURE = "key_types"
"""The feature of a table whose key the released library cannot hash: its writers stop there."""


SUPPORTED_TYPES: tuple[pa.DataType, ...] = (
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.uint64(),
    pa.bool_(),
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.large_binary(),
)
"""Types a primary-key column may have with Weir and with the library. Weir takes more:"""

_OF_WEIR_ALONE: tuple[pa.DataType, ...] = (
    pa.date32(),
    pa.date64(),
    pa.timestamp("us"),
    pa.decimal128(1),
    pa.decimal256(1),
    pa.binary(1),
)
_SUPPORTED_IDS = frozenset(type.id for type in (*SUPPORTED_TYPES, *_OF_WEIR_ALONE))
_NULL = pa.scalar(b"\x00", pa.binary())
_NOT_NULL = pa.scalar(b"\x01", pa.binary())
_TERMINATOR = pa.scalar(b"\x00\x00", pa.binary())
_EMPTY = pa.scalar(b"", pa.binary())
_SIGN = np.uint64(1 << 63)


def check_key_type(column: str, type: pa.DataType) -> None:
    """Check that a column of this type may be part of a primary key.

    Raises
    ------
    SchemaError
        It may not; the error names the column, its type and the supported types.

    Examples
    --------
    >>> check_key_type("id", pa.int64())
    >>> check_key_type("price", pa.float32())
    Traceback (most recent call last):
    weir.errors.SchemaError: column 'price' of type float cannot be part of a primary key. Supported...
    """
    if stored_type(type).id not in _SUPPORTED_IDS:
        raise _unsupported(f"column {column!r}", type)


def key_note(types: Sequence[pa.DataType]) -> str:
    """Return why the released library cannot write a table with such a key; empty if it can.

    Examples
    --------
    >>> key_note([pa.binary(16)])
    'it takes no fixed_size_binary[16] column in a primary key'
    """
    for type in types:
        if type not in SUPPORTED_TYPES:
            shown = "uuid" if isinstance(type, pa.UuidType) else type
            return f"it takes no {shown} column in a primary key"
    return ""


def check_key_columns(columns: Sequence[pa.Array]) -> int:
    """Check that these are the key columns of some rows, and return how many rows.

    Raises
    ------
    SchemaError
        There is no column, columns differ in length, or a type is not supported.
    """
    if not columns:
        raise SchemaError("a primary key needs at least one column")
    rows = len(columns[0])
    for number, column in enumerate(columns):
        if stored_type(column.type).id not in _SUPPORTED_IDS:
            raise _unsupported(f"key column {number}", column.type)
        if len(column) != rows:
            raise SchemaError(f"key column {number} has {len(column)} rows, the first has {rows}")
    return rows


def _unsupported(column: str, type: pa.DataType) -> SchemaError:
    return SchemaError(
        f"{column} of type {type} cannot be part of a primary key",
        hint=f"Supported types: {', '.join(map(str, SUPPORTED_TYPES))}, date32, date64, timestamp, "
        "decimal128, decimal256, fixed_size_binary[n], uuid",
    )


@dataclass(frozen=True, slots=True)
class PrimaryKey:
    """The columns that identify a row, in key order.

    Parameters
    ----------
    columns : tuple of str
        Names of the columns, at least one.
    types : tuple of pyarrow.DataType
        Their types, in the same order, each of a supported type.

    Raises
    ------
    SchemaError
        There is no column, a column is named twice, or a type is not supported.
    """

    columns: tuple[str, ...]
    types: tuple[pa.DataType, ...]

    def __post_init__(self) -> None:
        """Check columns and types."""
        if not self.columns or len(self.columns) != len(self.types):
            raise SchemaError(
                f"a primary key needs at least one column and one type for each, "
                f"not {len(self.columns)} columns and {len(self.types)} types"
            )
        for number, (column, type) in enumerate(zip(self.columns, self.types, strict=True)):
            if column in self.columns[:number]:
                raise SchemaError(f"column {column!r} is named twice in the primary key")
            check_key_type(column, type)

    @classmethod
    def from_schema(cls, schema: pa.Schema, columns: Sequence[str]) -> PrimaryKey:
        """Return the primary key over ``columns`` of a table with this schema.

        Raises
        ------
        SchemaError
            A column is missing, doubled, nullable, or of a type that no key has.
        """
        for column in columns:
            found = schema.get_all_field_indices(column)
            if len(found) != 1:
                problem = "is not in the schema" if not found else "is in the schema more than once"
                raise SchemaError(
                    f"primary-key column {column!r} {problem}", hint=f"Columns: {', '.join(schema.names)}"
                )
        key = cls(tuple(columns), tuple(schema.field(column).type for column in columns))
        for column in columns:
            if schema.field(column).nullable:
                raise SchemaError(
                    f"primary-key column {column!r} is nullable",
                    hint="Declare it with pa.field(..., nullable=False)",
                )
        return key

    def arrays(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the key columns of a batch, in key order."""
        return [batch.column(column) for column in self.columns]


def encode_keys(columns: Sequence[pa.Array]) -> pa.Array:
    """Return one value per row that is equal and ordered as the keys are.

    Parameters
    ----------
    columns : sequence of pyarrow.Array
        The key columns, in key order, all of one length, each of a supported type.

    Returns
    -------
    pyarrow.Array
        The column itself for a single one, else ``binary`` values as the module describes.

    Raises
    ------
    SchemaError
        There is no column, columns differ in length, or a type is not supported.

    Examples
    --------
    >>> encode_keys([pa.array([7]), pa.array(["a"])])[0].as_py().hex(" ")
    '01 80 00 00 00 00 00 00 07 01 61 00 00'
    """
    check_key_columns(columns)
    columns = [stored_keys(column) for column in columns]
    if len(columns) == 1:
        return columns[0]
    pieces: list[pa.Array | pa.Scalar] = []
    for column in columns:
        pieces.extend(_pieces(column))
    return pc.binary_join_element_wise(*pieces, _EMPTY)


def _pieces(column: pa.Array) -> list[pa.Array | pa.Scalar]:
    """Return binary values that, joined row by row, are the encoded column."""
    if column.null_count:
        valid = column.is_valid()
        value: pa.Array | pa.Scalar
        joined = pc.binary_join_element_wise(*_pieces(column.fill_null(_filler(column.type))), _EMPTY)
        return [pc.if_else(valid, joined, _NULL)]
    if pa.types.is_fixed_size_binary(column.type) or pa.types.is_decimal(column.type):
        return [_NOT_NULL, plain_keys(column)]
    column = plain_keys(column)
    if pa.types.is_integer(column.type):
        return [_fixed(_big_endian(column))]
    if pa.types.is_boolean(column.type):
        bits = column.cast(pa.uint8()).to_numpy(zero_copy_only=False)
        return [_fixed(bits.reshape(-1, 1))]
    value = pc.replace_substring(column.cast(pa.binary()), b"\x00", b"\x00\xff")
    return [_NOT_NULL, value, _TERMINATOR]


def _filler(type: pa.DataType) -> pa.Scalar:
    if is_instant(type):
        return pa.scalar(0, pa.int32() if pa.types.is_date32(type) else pa.int64()).cast(type)
    if pa.types.is_decimal(type):
        return pa.scalar(Decimal(0), type)
    if pa.types.is_integer(type) or pa.types.is_boolean(type):
        return pa.scalar(0).cast(type)
    if pa.types.is_fixed_size_binary(type):
        return pa.scalar(bytes(type.byte_width), type)
    return pa.scalar(b"").cast(type)


def _big_endian(column: pa.Array) -> npt.NDArray[np.uint8]:
    """Return ``uint8[n, 8]``: the integers as 8 big-endian bytes in the order of the integers."""
    ordered: npt.NDArray[np.uint64]
    if pa.types.is_signed_integer(column.type):
        ordered = column.to_numpy().astype(np.int64).view(np.uint64) ^ _SIGN
    else:
        ordered = column.to_numpy().astype(np.uint64)
    return ordered.astype(">u8").view(np.uint8).reshape(-1, 8)


def _fixed(values: npt.NDArray[np.uint8]) -> pa.Array:
    """Return ``binary`` values of one width, each the byte 01 and one row of ``uint8[n, width]``."""
    count, width = values.shape
    flagged = np.ones((count, width + 1), np.uint8)
    flagged[:, 1:] = values
    offsets = np.arange(0, (count + 1) * (width + 1), width + 1, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(flagged)])

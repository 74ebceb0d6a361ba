"""One Arrow value as the bytes that shard manifests record: little-endian, without length or type.

An ``int32`` is 4 bytes, text its UTF-8 bytes, a bool one byte. A null has no bytes. The released library
writes the same.
"""

from __future__ import annotations

import pyarrow as pa

from weir.errors import CorruptionError

__all__ = ["decode", "encode", "has_bytes"]


def encode(values: pa.Array) -> list[bytes | None]:
    r"""Return every value of a column as its bytes, None for null.

    Examples
    --------
    >>> encode(pa.array([3, None], pa.int32()))
    [b'\x03\x00\x00\x00', None]
    """
    kind = values.type
    if has_bytes(kind):
        return [scalar.as_buffer().to_pybytes() if scalar.is_valid else None for scalar in values]
    if pa.types.is_boolean(kind):
        values, width = values.cast(pa.uint8()), 1
    else:
        width = kind.byte_width
    data = values.buffers()[1]
    start = values.offset * width
    raw = b"" if data is None else data.slice(start, len(values) * width).to_pybytes()
    pieces: list[bytes | None] = [raw[at : at + width] for at in range(0, len(raw), width)]
    if values.null_count:
        valid = values.is_valid().to_pylist()
        pieces = [piece if ok else None for piece, ok in zip(pieces, valid, strict=True)]
    return pieces


def decode(data: bytes, data_type: pa.DataType) -> pa.Scalar:
    r"""Return the value that :func:`encode` wrote as ``data``.

    Raises
    ------
    CorruptionError
        The bytes are not a value of that type.

    Examples
    --------
    >>> decode(b"\x03\x00\x00\x00", pa.int32())
    <pyarrow.Int32Scalar: 3>
    """
    if pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
        try:
            return pa.scalar(data.decode(), data_type)
        except UnicodeDecodeError as error:
            raise CorruptionError("a shard value that should be text is not UTF-8") from error
    if has_bytes(data_type) and not pa.types.is_fixed_size_binary(data_type):
        return pa.scalar(data, data_type)
    width = 1 if pa.types.is_boolean(data_type) else data_type.byte_width
    if len(data) != width:
        raise CorruptionError(
            f"a shard value of type {data_type} should have {width} bytes and has {len(data)}"
        )
    if pa.types.is_boolean(data_type):
        return pa.scalar(data != b"\x00")
    return pa.Array.from_buffers(data_type, 1, [None, pa.py_buffer(data)])[0]


def has_bytes(data_type: pa.DataType) -> bool:
    """Whether the values of a type are text or bytes: what they are made of, and compare by."""
    return bool(
        pa.types.is_string(data_type)
        or pa.types.is_large_string(data_type)
        or pa.types.is_binary(data_type)
        or pa.types.is_large_binary(data_type)
        or pa.types.is_fixed_size_binary(data_type)
    )

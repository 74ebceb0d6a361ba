"""Columns of binary values as Base64 text and back (RFC 4648, with padding), without a loop over rows."""

from __future__ import annotations

import base64
import binascii

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["decode_base64", "encode_base64"]

_PAD = ord("=")


def encode_base64(column: pa.Array) -> pa.Array:
    """Return binary values as Base64 text.

    Parameters
    ----------
    column : pyarrow.Array
        Of type ``binary``, ``large_binary`` or ``binary(n)``.

    Returns
    -------
    pyarrow.Array
        Of type ``large_string``; null where the column is.

    Examples
    --------
    >>> encode_base64(pa.array([b"ab", None, b""])).to_pylist()
    ['YWI=', None, '']
    """
    values, offsets = _bytes_of(column.cast(pa.large_binary()))
    lengths = np.diff(offsets)
    groups = (lengths + 2) // 3
    starts = _running(groups)
    # Every value is moved to a multiple of three bytes, so that all of them encode in one call.
    padded = np.zeros(int(starts[-1]) * 3, dtype=np.uint8)
    padded[np.arange(len(values)) + np.repeat(starts[:-1] * 3 - offsets[:-1], lengths)] = values
    text = np.frombuffer(base64.b64encode(padded.data), dtype=np.uint8).copy()
    ends = starts[1:] * 4
    missing = groups * 3 - lengths
    text[ends[missing >= 1] - 1] = _PAD
    text[ends[missing == 2] - 2] = _PAD
    return _text_of(column, pa.large_string(), starts * 4, text)


def decode_base64(column: pa.Array) -> pa.Array:
    """Return the binary values that Base64 text stands for.

    Parameters
    ----------
    column : pyarrow.Array
        Of type ``string`` or ``large_string``.

    Returns
    -------
    pyarrow.Array
        Of type ``large_binary``; null where the column is.

    Raises
    ------
    pyarrow.ArrowInvalid
        If a text is not Base64.

    Examples
    --------
    >>> decode_base64(pa.array(["YWI=", None, ""])).to_pylist()
    [b'ab', None, b'']
    """
    values, offsets = _bytes_of(column.cast(pa.large_string()).cast(pa.large_binary()))
    lengths = np.diff(offsets)
    pads = np.zeros(len(lengths), dtype=np.int64)
    ends, filled = offsets[1:], lengths > 0
    pads[filled] += values[ends[filled] - 1] == _PAD
    two = filled & (pads == 1) & (lengths > 1)
    pads[two] += values[ends[two] - 2] == _PAD
    if np.any(lengths % 4) or np.count_nonzero(values == _PAD) != pads.sum():
        raise pa.ArrowInvalid("not Base64 text: its length is no multiple of 4, or its padding is wrong")
    # With the padding read as zeros, the texts of all rows are one text.
    whole = np.where(values == _PAD, ord("A"), values).astype(np.uint8)
    try:
        decoded = np.frombuffer(base64.b64decode(whole.data, validate=True), dtype=np.uint8)
    except binascii.Error as error:
        raise pa.ArrowInvalid(f"not Base64 text: {error}") from error
    sizes = lengths // 4 * 3 - pads
    starts = _running(sizes)
    kept = np.arange(int(starts[-1])) + np.repeat(offsets[:-1] // 4 * 3 - starts[:-1], sizes)
    return _text_of(column, pa.large_binary(), starts, decoded[kept])


def _bytes_of(column: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the bytes of all values and where each begins, nulls without bytes, counted from 0."""
    column = pc.fill_null(column, b"")
    _, offsets_buffer, data = column.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int64)[column.offset : column.offset + len(column) + 1]
    if not len(column):
        offsets = np.zeros(1, dtype=np.int64)
    values = np.frombuffer(data or b"", dtype=np.uint8)[offsets[0] : offsets[-1]]
    return values, offsets - offsets[0]


def _running(sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)])


def _text_of(
    column: pa.Array, data_type: pa.DataType, offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]
) -> pa.Array:
    valid = None
    if column.null_count:
        valid = pa.py_buffer(np.packbits(column.is_valid().to_numpy(zero_copy_only=False), bitorder="little"))
    buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(data_type, len(column), buffers)

"""Columns of binary values as Base64 text and back (RFC 4648, with padding)."""

from __future__ import annotations

import binascii

import pyarrow as pa

__all__ = ["decode_base64", "encode_base64"]


def encode_base64(column: pa.Array) -> pa.Array:
    """Return binary values as Base64 text.

    Parameters
    ----------
    column : pyarrow.Array
        A column of type ``binary``, ``large_binary`` or ``binary(n)``.

    Returns
    -------
    pyarrow.Array
        A column of type ``large_string``; null where the input is.

    Examples
    --------
    >>> encode_base64(pa.array([b"ab", None, b""])).to_pylist()
    ['YWI=', None, '']
    """
    texts = [
        None if value is None else binascii.b2a_base64(value, newline=False) for value in column.to_pylist()
    ]
    return pa.array(texts, pa.large_binary()).cast(pa.large_string())


def decode_base64(column: pa.Array) -> pa.Array:
    """Decode binary values from Base64 text.

    Parameters
    ----------
    column : pyarrow.Array
        A column of type ``string`` or ``large_string``.

    Returns
    -------
    pyarrow.Array
        A column of type ``large_binary``; null where the input is.

    Raises
    ------
    pyarrow.ArrowInvalid
        If a text is not Base64.

    Examples
    --------
    >>> decode_base64(pa.array(["YWI=", None, ""])).to_pylist()
    [b'ab', None, b'']
    """
    texts = column.cast(pa.large_binary()).to_pylist()
    try:
        values = [None if text is None else binascii.a2b_base64(text, strict_mode=True) for text in texts]
    except binascii.Error as error:
        raise pa.ArrowInvalid(f"not Base64 text: {error}") from error
    return pa.array(values, pa.large_binary())

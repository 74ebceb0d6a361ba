"""UUIDs as text and as the 16 bytes that a table stores."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["UUID_TEXT", "texts_of_uuids", "uuids_of_texts"]

UUID_TEXT = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
"""What a UUID is as text: 32 hexadecimal digits in five groups."""

_BYTES = 16
_GROUPS = (8, 4, 4, 4, 12)


def uuids_of_texts(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Parse UUIDs from text; null stays null.

    Parameters
    ----------
    texts : Array or ChunkedArray of string
        Each 32 hexadecimal digits in groups of 8, 4, 4, 4 and 12 with hyphens between them.

    Returns
    -------
    Array of fixed_size_binary[16]

    Raises
    ------
    ArrowInvalid
        If a text is not a UUID.

    Examples
    --------
    >>> uuids_of_texts(pa.array(["00000000-0000-0000-0000-000000006162"]))[0].as_py()[-2:]
    b'ab'
    """
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    sound = pc.match_substring_regex(texts, f"^{UUID_TEXT.pattern}$", ignore_case=True)
    if not pc.all(sound, min_count=0).as_py():
        wrong = texts[pc.index(sound, False).as_py()].as_py()
        raise pa.ArrowInvalid(f"{wrong!r} is no UUID such as '12345678-1234-5678-1234-567812345678'")
    digits = "".join(pc.replace_substring(texts.drop_null(), "-", "").to_pylist())
    packed = pa.Array.from_buffers(
        pa.binary(_BYTES), len(digits) // (2 * _BYTES), [None, pa.py_buffer(bytes.fromhex(digits))]
    )
    if not texts.null_count:
        return packed
    there = np.cumsum(texts.is_valid().to_numpy(zero_copy_only=False)) - 1
    return packed.take(pa.array(there, mask=texts.is_null().to_numpy(zero_copy_only=False)))


def texts_of_uuids(uuids: pa.Array) -> pa.Array:
    """Return the texts of UUIDs; null stays null.

    Parameters
    ----------
    uuids : Array of fixed_size_binary[16], or of UUIDs
        The values.

    Returns
    -------
    Array of string

    Examples
    --------
    >>> texts_of_uuids(pa.array([bytes(range(16))], pa.uuid())).to_pylist()
    ['00010203-0405-0607-0809-0a0b0c0d0e0f']
    """
    stored = uuids.storage if isinstance(uuids, pa.ExtensionArray) else uuids
    stored = stored.fill_null(bytes(_BYTES)) if stored.null_count else stored
    raw = stored.buffers()[1]
    digits = bytes(raw)[stored.offset * _BYTES : (stored.offset + len(stored)) * _BYTES].hex()
    columns = np.frombuffer(digits.encode(), np.uint8).reshape(len(stored), 2 * _BYTES)
    text = np.full((len(stored), 2 * _BYTES + len(_GROUPS) - 1), ord("-"), np.uint8)
    start = 0
    for number, size in enumerate(_GROUPS):
        text[:, start + number : start + number + size] = columns[:, start : start + size]
        start += size
    offsets = np.arange(len(stored) + 1, dtype=np.int32) * text.shape[1]
    texts = pa.Array.from_buffers(
        pa.string(), len(stored), [None, pa.py_buffer(offsets), pa.py_buffer(text.tobytes())]
    )
    return pc.if_else(uuids.is_valid(), texts, None) if uuids.null_count else texts

"""The 64-bit hash of a primary key for Bloom filters.

It is SipHash-1-3 with a zero key over the concatenation, for each key column, of

- one byte, 1 for null and 0 otherwise, then, unless null,
- int32, int64: the value, little-endian, in its own width,
- string: its bytes and ``ff``,
- binary: its length as 8 bytes, little-endian, and its bytes,
- date, timestamp, decimal: the value in its plain form (:mod:`weir.format.plain_keys`), as above; the library
  has no tables with such a key,
- **every other type: nothing.** The released library writes its filters that way, so keys that differ only in
  columns of other types share a hash, and a filter cannot distinguish them. Hashing their values would make
  Weir miss rows of generations that the library wrote.

Measured with files the library writes for each key type. The work is done on whole columns; for a
handful of rows plain Python is faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.format.keys import check_key_columns
from weir.format.plain_keys import plain_keys, stored_type

__all__ = ["hash_keys", "siphash13"]

U64: TypeAlias = npt.NDArray[np.uint64]
I64: TypeAlias = npt.NDArray[np.int64]
U8: TypeAlias = npt.NDArray[np.uint8]

_INITIAL = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
_MASK = (1 << 64) - 1

# Up to this many rows are hashed one by one: a step over columns costs as much as a few keys.
_FEW_ROWS = 8
# Rows whose state is kept in the processor's cache at once.
_BLOCK = 8192
# Values longer than this are copied one by one rather than 8 bytes of all rows at a time.
_LONG = 512


def hash_keys(columns: Sequence[pa.Array]) -> U64:
    """Return the hash of every row of the key columns.

    Parameters
    ----------
    columns : sequence of pyarrow.Array
        The key columns, in key order, all of one length, each of a type that a key may have.

    Returns
    -------
    numpy.ndarray
        ``uint64[rows]``.

    Raises
    ------
    SchemaError
        There is no column, columns differ in length, or a type is not supported.

    Examples
    --------
    >>> hash_keys([pa.array([7, 8])])
    array([...], dtype=uint64)
    """
    rows = check_key_columns(columns)
    columns = [column if _is_passed_over(column.type) else plain_keys(column) for column in columns]
    if rows <= _FEW_ROWS:
        return np.fromiter((siphash13(message) for message in _messages(columns, rows)), np.uint64, rows)
    parts = [_Part(column) for column in columns]
    if all(part.fixed_width is not None for part in parts):
        return _hash_fixed(parts, rows)
    return _hash_variable(parts, rows)


def _is_passed_over(kind: pa.DataType) -> bool:
    """Whether stored filters cannot distinguish values of a type."""
    return bool(pa.types.is_fixed_size_binary(stored_type(kind)))


def siphash13(message: bytes) -> int:
    """Return SipHash-1-3 of ``message`` under the zero key.

    Examples
    --------
    >>> hex(siphash13(b"hello"))
    '0x...'
    """
    padded = message + bytes(7 - len(message) % 8) + bytes((len(message) & 0xFF,))
    words = [int.from_bytes(padded[at : at + 8], "little") for at in range(0, len(padded), 8)]
    return _finish_one(_INITIAL, words)


def _finish_one(state: tuple[int, int, int, int], words: Sequence[int]) -> int:
    """Return the hash of the message whose last words are ``words``, ``state`` being that of those before."""
    v0, v1, v2, v3 = state
    # The finalisation is three more rounds, before which 0xff goes into v2.
    for number, word in enumerate((*words, 0, 0, 0)):
        if number == len(words):
            v2 ^= 0xFF
        v3 ^= word
        v0 = (v0 + v1) & _MASK
        v1 = ((v1 << 13) | (v1 >> 51)) & _MASK ^ v0
        v0 = ((v0 << 32) | (v0 >> 32)) & _MASK
        v2 = (v2 + v3) & _MASK
        v3 = ((v3 << 16) | (v3 >> 48)) & _MASK ^ v2
        v0 = (v0 + v3) & _MASK
        v3 = ((v3 << 21) | (v3 >> 43)) & _MASK ^ v0
        v2 = (v2 + v1) & _MASK
        v1 = ((v1 << 17) | (v1 >> 47)) & _MASK ^ v2
        v2 = ((v2 << 32) | (v2 >> 32)) & _MASK
        v0 ^= word
    return v0 ^ v1 ^ v2 ^ v3


class _State:
    """SipHash-1-3 of many messages at once, one element of each array per message."""

    def __init__(self, rows: int) -> None:
        self.v0, self.v1, self.v2, self.v3 = (np.full(rows, value, np.uint64) for value in _INITIAL)
        self._scratch = np.empty(rows, np.uint64)

    def compress(self, word: U64) -> None:
        """Take the next word of the first ``len(word)`` messages."""
        active = len(word)
        v0, v3 = self.v0[:active], self.v3[:active]
        np.bitwise_xor(v3, word, out=v3)
        self._round(active)
        np.bitwise_xor(v0, word, out=v0)

    def row(self, row: int) -> tuple[int, int, int, int]:
        """Return the state of one message."""
        return int(self.v0[row]), int(self.v1[row]), int(self.v2[row]), int(self.v3[row])

    def finish(self) -> U64:
        """Return the hashes; the state is used up."""
        np.bitwise_xor(self.v2, 0xFF, out=self.v2)
        for _ in range(3):
            self._round(len(self.v0))
        return self.v0 ^ self.v1 ^ self.v2 ^ self.v3

    def _round(self, active: int) -> None:
        v0, v1, v2, v3 = self.v0[:active], self.v1[:active], self.v2[:active], self.v3[:active]
        scratch = self._scratch[:active]
        np.add(v0, v1, out=v0)
        _rotate(v1, 13, scratch)
        np.bitwise_xor(v1, v0, out=v1)
        _rotate(v0, 32, scratch)
        np.add(v2, v3, out=v2)
        _rotate(v3, 16, scratch)
        np.bitwise_xor(v3, v2, out=v3)
        np.add(v0, v3, out=v0)
        _rotate(v3, 21, scratch)
        np.bitwise_xor(v3, v0, out=v3)
        np.add(v2, v1, out=v2)
        _rotate(v1, 17, scratch)
        np.bitwise_xor(v1, v2, out=v1)
        _rotate(v2, 32, scratch)


def _rotate(value: U64, bits: int, scratch: U64) -> None:
    """Rotate each element of ``value`` left in place."""
    np.left_shift(value, bits, out=scratch)
    np.right_shift(value, 64 - bits, out=value)
    np.bitwise_or(value, scratch, out=value)


def _messages(columns: Sequence[pa.Array], rows: int) -> list[bytes]:
    """Return the bytes that are hashed for each of a few rows."""
    messages = [b""] * rows
    for column in columns:
        for row, value in enumerate(column.to_pylist()):
            messages[row] += b"\x01" if value is None else b"\x00" + _value_bytes(value, column.type)
    return messages


def _value_bytes(value: int | bool | str | bytes, type: pa.DataType) -> bytes:
    if isinstance(value, str):
        return value.encode() + b"\xff" if type == pa.string() else b""
    if isinstance(value, bytes):
        return len(value).to_bytes(8, "little") + value if type == pa.binary() else b""
    if type == pa.int32() or type == pa.int64():
        return value.to_bytes(type.bit_width // 8, "little", signed=True)
    return b""


class _Part:
    """The contribution of one key column to the hashed message of each row.

    Attributes
    ----------
    fixed_width : int or None
        Bytes added to every row, the null byte included; None if rows differ.
    """

    def __init__(self, column: pa.Array) -> None:
        self.rows = len(column)
        self.valid: npt.NDArray[np.bool_] | None = None
        if column.null_count:
            self.valid = column.is_valid().to_numpy(zero_copy_only=False)
        self.integers: U64 | None = None
        self.lengths: I64 | None = None
        self.is_string = column.type == pa.string()
        width = 0
        if column.type == pa.int32() or column.type == pa.int64():
            width = column.type.bit_width // 8
            raw = np.frombuffer(column.buffers()[1], f"<u{width}")[column.offset : column.offset + self.rows]
            self.integers = raw.astype(np.uint64)
        elif self.is_string or column.type == pa.binary():
            self._read_values(column)
        self.width = width
        self.fixed_width = 1 + width if self.lengths is None and (self.valid is None or not width) else None

    def _read_values(self, column: pa.Array) -> None:
        _, offsets_buffer, data_buffer = column.buffers()
        offsets = np.frombuffer(offsets_buffer, "<i4")[column.offset : column.offset + self.rows + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        # Seven bytes more than there are, so that eight can be read at every offset.
        self.data = np.zeros(last - first + 8, np.uint8)
        if last > first:
            self.data[: last - first] = np.frombuffer(data_buffer, np.uint8)[first:last]
        self.starts = offsets[:-1].astype(np.int64) - first
        self.lengths = np.diff(offsets).astype(np.int64)

    def sizes(self) -> I64:
        """Return ``int64[rows]``: how many bytes each row gets."""
        if self.lengths is not None:
            sizes = self.lengths + (2 if self.is_string else 9)
        else:
            sizes = np.full(self.rows, 1 + self.width, np.int64)
        if self.valid is not None:
            sizes[~self.valid] = 1
        return sizes

    def write(self, flat: U8, cursors: I64) -> None:
        """Write the part of each row at its cursor, and move the cursors past it.

        Up to 8 bytes behind a part may be set to zero; parts are written in order, so nothing is lost.
        """
        if self.valid is not None:
            flat[cursors] = ~self.valid
        cursors += 1
        rows = slice(None) if self.valid is None else np.flatnonzero(self.valid)
        at = cursors[rows]
        if self.integers is not None:
            _unaligned(flat)[at] = self.integers[rows]
            at += self.width
        elif self.lengths is not None:
            lengths = self.lengths[rows]
            if not self.is_string:
                _unaligned(flat)[at] = lengths.astype(np.uint64)
                at += 8
            _copy_values(self.data, self.starts[rows], lengths, flat, at)
            at += lengths
            if self.is_string:
                flat[at] = 0xFF
                at += 1
        cursors[rows] = at


def _unaligned(flat: U8) -> U64:
    """Return a view of the 8 bytes at every offset of ``flat``."""
    return np.ndarray((len(flat) - 7,), "<u8", flat, strides=(1,))


# The low bytes of a word that belong to a value of 0 to 8 remaining bytes.
_LOW_BYTES: U64 = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)


def _copy_values(data: U8, starts: I64, lengths: I64, flat: U8, targets: I64) -> None:
    """Copy ``lengths`` bytes from ``starts`` of ``data`` to ``targets`` of ``flat``, row by row."""
    source, target = _unaligned(data), _unaligned(flat)
    rows = np.flatnonzero((lengths > 0) & (lengths <= _LONG))
    for offset in range(0, _LONG, 8):
        if not len(rows):
            break
        remaining = lengths[rows] - offset
        words = source[starts[rows] + offset] & _LOW_BYTES[np.minimum(remaining, 8)]
        target[targets[rows] + offset] = words
        rows = rows[remaining > 8]
    for row in np.flatnonzero(lengths > _LONG).tolist():
        start, length, at = int(starts[row]), int(lengths[row]), int(targets[row])
        flat[at : at + length] = data[start : start + length]


def _hash_fixed(parts: Sequence[_Part], rows: int) -> U64:
    """Hash keys that all have messages of one length: the words are put together column by column."""
    size = sum(part.fixed_width or 0 for part in parts)
    words = np.zeros((size // 8 + 1, rows), np.uint64)
    words[-1] = np.uint64((size & 0xFF) << 56)
    at = 0
    for part in parts:
        if part.valid is not None:
            _or_into(words, at, (~part.valid).astype(np.uint64), 1)
        at += 1
        if part.integers is not None:
            _or_into(words, at, part.integers, part.width)
            at += part.width
    hashes = np.empty(rows, np.uint64)
    for start in range(0, rows, _BLOCK):
        block = words[:, start : start + _BLOCK]
        state = _State(block.shape[1])
        for word in block:
            state.compress(word)
        hashes[start : start + _BLOCK] = state.finish()
    return hashes


def _or_into(words: U64, at: int, values: U64, width: int) -> None:
    """Add ``values`` of ``width`` bytes to the messages whose words are the rows of ``words``."""
    word, shift = divmod(8 * at, 64)
    words[word] |= values << np.uint64(shift)
    if shift + 8 * width > 64:
        words[word + 1] |= values >> np.uint64(64 - shift)


def _hash_variable(parts: Sequence[_Part], rows: int) -> U64:
    """Hash keys whose messages differ in length, longest first so that those still going are a prefix."""
    sizes = np.zeros(rows, np.int64)
    for part in parts:
        sizes += part.sizes()
    counts = (sizes >> 3) + 1
    # One word more for each row, because writing a part may set bytes behind it to zero.
    ends = np.cumsum(counts + 1)
    firsts = ends - counts - 1
    flat = np.zeros(8 * int(ends[-1]), np.uint8)
    cursors = 8 * firsts
    for part in parts:
        part.write(flat, cursors)
    words = flat.view("<u8")
    words[firsts + counts - 1] |= sizes.astype(np.uint64) << np.uint64(56)

    # Sorting 16-bit numbers is much faster, and more words than they can count are rare.
    longest = int(counts.max())
    order = np.argsort(-counts.astype(np.int16) if longest < 1 << 15 else -counts, kind="stable")
    hashes = np.empty(rows, np.uint64)
    for start in range(0, rows, _BLOCK):
        block = order[start : start + _BLOCK]
        hashes[block] = _hash_block(words, firsts[block], counts[block])
    return hashes


def _hash_block(words: U64, firsts: I64, counts: I64) -> U64:
    """Hash messages of ``counts`` words from ``firsts`` on, longest first."""
    rows = len(counts)
    state = _State(rows)
    common = int(counts[min(_FEW_ROWS, rows - 1)])
    active = rows - np.searchsorted(counts[::-1], np.arange(common), side="right")
    for number in range(common):
        state.compress(words[firsts[: active[number]] + number])
    # The few that are longer still are finished one by one, lest all others wait for them.
    few = int(np.count_nonzero(counts > common))
    longer = [
        _finish_one(state.row(row), words[firsts[row] + common : firsts[row] + counts[row]].tolist())
        for row in range(few)
    ]
    hashes = state.finish()
    hashes[:few] = longer
    return hashes

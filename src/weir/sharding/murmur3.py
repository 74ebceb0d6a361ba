"""The 32-bit Murmur3 hash of shard keys, over whole columns.

This is the hash of the ``bucket`` and ``multi_bucket`` transforms (Lance MemWAL spec, section "Shard
Transform"), value for value as the released library computes it:

* Seed 0. A value is cut into 32-bit blocks; every block is mixed in, then the length in bytes.
* Integers up to 32 bits, bool, ``date32`` and ``time32`` are one block, sign-extended if signed.
* 64-bit integers, ``timestamp``, ``time64`` are two blocks, the low one first.
* Floats are their IEEE bits, with -0.0 taken as 0.0 and every NaN as the one quiet NaN.
* Text is its UTF-8 bytes: whole 4-byte little-endian blocks, then **each remaining byte as a
  sign-extended block of its own** (standard Murmur3 mixes the tail at once).
* A null leaves the seed as it is.

Weir hashes a few types more, which the library refuses as shard keys: ``float16`` as the ``float32`` of
the same value, ``date64`` and ``duration`` as 64-bit integers, binary like text, decimals as the
little-endian 32-bit blocks of their unscaled value.

Several columns are chained: the hash of one column is the seed of the next. Hence nulls are ignored, and
the hash of one column alone is the same as of the single column.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from weir.errors import ShardingError
from weir.sharding.arrow_values import fixed_width_values, valid_mask

__all__ = ["buckets", "can_hash", "murmur3", "murmur3_multi"]

Hashes = NDArray[np.uint32]

_MASK = 0xFFFFFFFF
_C1 = 0xCC9E2D51
_C2 = 0x1B873593
_M5 = 0xE6546B64
_F1 = 0x85EBCA6B
_F2 = 0xC2B2AE35
_NAN32 = np.uint32(0x7FC00000)
_NAN64 = np.uint64(0x7FF8000000000000)


def murmur3(
    column: pa.Array, seed: Hashes | None = None, *, source_type: pa.DataType | None = None
) -> Hashes:
    """Hash a column.

    Parameters
    ----------
    column : pyarrow.Array
        The values; any type :func:`can_hash` accepts, slices and nulls included.
    seed : numpy array of uint32, optional
        One seed per row; 0 for all by default.
    source_type : pyarrow.DataType, optional
        The type the hash is defined by, when the column has been promoted to a wider integer or float
        type since (spec rule "type-promotion resistant"). A value that fits the source type hashes as
        that type; one that does not, and so cannot have been hashed before the promotion, hashes as 64
        bits. The column's own type by default.

    Returns
    -------
    numpy array of uint32
        One hash per row: the bits of the signed integer the spec speaks of. The seed where null.

    Raises
    ------
    ShardingError
        The type cannot be hashed.

    Examples
    --------
    >>> import pyarrow as pa
    >>> (murmur3(pa.array([1, 2, 3], pa.int32())) & 0x7FFFFFFF) % 8
    array([2, 7, 1], dtype=uint32)
    >>> bool((murmur3(pa.array([5]), source_type=pa.int32()) == murmur3(pa.array([5], pa.int32()))).all())
    True
    """
    rows = len(column)
    if rows == 1:
        first = 0 if seed is None else int(seed[0])
        return np.array([_hash_one(column, first, source_type)], np.uint32)
    start: Hashes = np.zeros(rows, np.uint32) if seed is None else seed
    if rows == 0:
        return start
    hashes = _hash_many(column, start, source_type)
    valid = valid_mask(column)
    return hashes if valid is None else np.where(valid, hashes, start)


def murmur3_multi(
    columns: Sequence[pa.Array], source_types: Sequence[pa.DataType] | None = None
) -> tuple[Hashes, NDArray[np.bool_] | None]:
    """Hash several columns together, row by row.

    Parameters
    ----------
    columns : sequence of pyarrow.Array
        One or more columns of the same length, mixed in this order.
    source_types : sequence of pyarrow.DataType, optional
        One per column, see :func:`murmur3`.

    Returns
    -------
    hashes : numpy array of uint32
        One hash per row; null columns of a row are skipped.
    valid : numpy array of bool or None
        Which rows have a hash, that is, at least one value that is not null; None if all have.
    """
    hashes: Hashes | None = None
    valid: NDArray[np.bool_] | None = np.zeros(len(columns[0]), np.bool_)
    for number, column in enumerate(columns):
        source_type = None if source_types is None else source_types[number]
        hashes = murmur3(column, hashes, source_type=source_type)
        mask = valid_mask(column)
        valid = None if mask is None or valid is None else valid | mask
    assert hashes is not None
    return hashes, valid


def buckets(hashes: Hashes, num_buckets: int) -> NDArray[np.int32]:
    """Return the bucket of each hash: ``(hash & 0x7fffffff) % num_buckets``.

    The spec writes ``abs(hash) % num_buckets``; the released library clears the sign bit instead, and so
    does Weir, that both send a key to the same shard.
    """
    return ((hashes & np.uint32(0x7FFFFFFF)) % np.uint32(num_buckets)).view(np.int32)


def can_hash(data_type: pa.DataType) -> bool:
    """Whether values of the type can be hashed."""
    return data_type.id in _FIXED_WORDS or data_type.id in _BYTES_LIKE


# ------------------------------------------------------------------------------------------------
# Values as blocks
# ------------------------------------------------------------------------------------------------


def _one_word(dtype: type[np.generic]) -> Callable[[pa.Array], list[Hashes]]:
    read_as = np.dtype(dtype)
    widened = np.dtype(np.int32 if read_as.kind == "i" else np.uint32)

    def words(column: pa.Array) -> list[Hashes]:
        return [fixed_width_values(column, read_as).astype(widened, copy=False).view(np.uint32)]

    return words


def _bool_word(column: pa.Array) -> list[Hashes]:
    return [fixed_width_values(column.cast(pa.uint8()), np.dtype(np.uint8)).astype(np.uint32)]


def _float16_word(column: pa.Array) -> list[Hashes]:
    values = fixed_width_values(column, np.dtype(np.float16)).astype(np.float32)
    return [_canonical_float32(values)]


def _float32_word(column: pa.Array) -> list[Hashes]:
    return [_canonical_float32(fixed_width_values(column, np.dtype(np.float32)))]


def _float64_words(column: pa.Array) -> list[Hashes]:
    return _split(_canonical_float64(fixed_width_values(column, np.dtype(np.float64))))


def _canonical_float32(values: NDArray[Any]) -> Hashes:
    # Adding 0.0 turns -0.0 into 0.0 and changes nothing else.
    # A signalling NaN is a value like any other; adding to it would be warned of.
    with np.errstate(invalid="ignore"):
        bits = (values + np.float32(0)).view(np.uint32)
    return np.where(np.isnan(values), _NAN32, bits)


def _canonical_float64(values: NDArray[Any]) -> NDArray[np.uint64]:
    # A signalling NaN is a value like any other; adding to it would be warned of.
    with np.errstate(invalid="ignore"):
        bits = (values + np.float64(0)).view(np.uint64)
    return np.where(np.isnan(values), _NAN64, bits)


def _split(values: NDArray[Any]) -> list[Hashes]:
    pairs = np.ascontiguousarray(values).view("<u4").reshape(-1, 2)
    return [pairs[:, 0], pairs[:, 1]]


def _long_words(column: pa.Array) -> list[Hashes]:
    return _split(fixed_width_values(column, np.dtype(np.int64)))


def _decimal_words(column: pa.Array) -> list[Hashes]:
    count = column.type.bit_width // 32
    blocks: Hashes = fixed_width_values(column, np.dtype(("<u4", (count,)))).reshape(-1, count)
    return [blocks[:, number] for number in range(count)]


_FIXED_WORDS: dict[int, Callable[[pa.Array], list[Hashes]]] = {
    pa.bool_().id: _bool_word,
    pa.int8().id: _one_word(np.int8),
    pa.int16().id: _one_word(np.int16),
    pa.int32().id: _one_word(np.int32),
    pa.uint8().id: _one_word(np.uint8),
    pa.uint16().id: _one_word(np.uint16),
    pa.uint32().id: _one_word(np.uint32),
    pa.date32().id: _one_word(np.int32),
    pa.time32("s").id: _one_word(np.int32),
    pa.int64().id: _long_words,
    pa.uint64().id: _long_words,
    pa.date64().id: _long_words,
    pa.time64("us").id: _long_words,
    pa.timestamp("us").id: _long_words,
    pa.duration("us").id: _long_words,
    pa.float16().id: _float16_word,
    pa.float32().id: _float32_word,
    pa.float64().id: _float64_words,
    pa.decimal128(1).id: _decimal_words,
    pa.decimal256(1).id: _decimal_words,
}
_BYTES_LIKE = {
    data_type.id
    for data_type in (
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.binary(1),
    )
}


def _fixed_words(column: pa.Array) -> list[Hashes]:
    words = _FIXED_WORDS.get(column.type.id)
    if words is None:
        raise ShardingError(
            f"values of type {column.type} cannot be hashed",
            hint="Bucket by a column of numbers, text, binary, dates or times",
        )
    return words(column)


def _fits(column: pa.Array, source_type: pa.DataType) -> NDArray[np.bool_] | None:
    """Return which values of a promoted column the source type can hold, None where promotion is moot."""
    if column.type == source_type:
        return None
    fits: NDArray[np.bool_]
    if pa.types.is_integer(column.type) and pa.types.is_integer(source_type):
        dtype = np.dtype(column.type.to_pandas_dtype())
        values = fixed_width_values(column, dtype)
        limits = np.iinfo(source_type.to_pandas_dtype())
        low = max(limits.min, np.iinfo(dtype).min)
        high = min(limits.max, np.iinfo(dtype).max)
        fits = (values >= low) & (values <= high)
        return fits
    if pa.types.is_float64(column.type) and pa.types.is_floating(source_type):
        values = fixed_width_values(column, np.dtype(np.float64))
        with np.errstate(over="ignore"):
            narrowed = values.astype(np.float32)
        fits = (narrowed == values) | np.isnan(values)
        return fits
    return None


def _narrow_words(column: pa.Array, source_type: pa.DataType) -> list[Hashes]:
    """Return the blocks the values of a promoted column had as ``source_type``, garbage where unfit."""
    if pa.types.is_floating(source_type):
        values = fixed_width_values(column, np.dtype(np.float64))
        with np.errstate(over="ignore"):
            return [_canonical_float32(values.astype(np.float32))]
    if source_type.bit_width == 64:
        return _wide_words(column)
    return _fixed_words(column.cast(pa.int64(), safe=False).cast(pa.int32(), safe=False))


def _wide_words(column: pa.Array) -> list[Hashes]:
    if pa.types.is_floating(column.type):
        return _float64_words(column.cast(pa.float64()))
    return _long_words(column.cast(pa.int64(), safe=False))


# ------------------------------------------------------------------------------------------------
# Many rows: NumPy
# ------------------------------------------------------------------------------------------------


def _mix(hashes: Hashes, block: Hashes) -> Hashes:
    k = block * np.uint32(_C1)
    high = k >> np.uint32(17)
    k <<= np.uint32(15)
    k |= high
    k *= np.uint32(_C2)
    k ^= hashes
    high = k >> np.uint32(19)
    k <<= np.uint32(13)
    k |= high
    k *= np.uint32(5)
    k += np.uint32(_M5)
    return k


def _finish(hashes: Hashes, length: Hashes | np.uint32) -> Hashes:
    h = hashes ^ length
    h ^= h >> np.uint32(16)
    h *= np.uint32(_F1)
    h ^= h >> np.uint32(13)
    h *= np.uint32(_F2)
    h ^= h >> np.uint32(16)
    return h


def _hash_words(words: Sequence[Hashes], seed: Hashes) -> Hashes:
    hashes = seed
    for block in words:
        hashes = _mix(hashes, block)
    return _finish(hashes, np.uint32(4 * len(words)))


def _hash_many(column: pa.Array, seed: Hashes, source_type: pa.DataType | None) -> Hashes:
    if column.type.id in _BYTES_LIKE:
        return _hash_bytes(*_byte_ranges(column), seed)
    fits = None if source_type is None else _fits(column, source_type)
    if fits is None:
        return _hash_words(_fixed_words(column), seed)
    assert source_type is not None
    hashes = _hash_words(_narrow_words(column, source_type), seed)
    if fits.all():
        return hashes
    return np.where(fits, hashes, _hash_words(_wide_words(column), seed))


def _byte_ranges(column: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Return the bytes of a column of text or binary, and where each value starts and how long it is."""
    kind = column.type
    if pa.types.is_string_view(kind):
        column = column.cast(pa.large_string())
    elif pa.types.is_binary_view(kind):
        column = column.cast(pa.large_binary())
    if pa.types.is_fixed_size_binary(kind):
        width = kind.byte_width
        data = column.buffers()[1]
        starts = np.arange(column.offset, column.offset + len(column), dtype=np.int64) * width
        lengths = np.full(len(column), width, np.int64)
    else:
        large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
        _, offsets_buffer, data = column.buffers()
        end = column.offset + len(column) + 1
        offsets = np.frombuffer(offsets_buffer, np.int64 if large else np.int32, end)[column.offset :]
        starts = offsets[:-1].astype(np.int64)
        lengths = np.diff(offsets).astype(np.int64)
    if data is None or data.size == 0:
        return np.empty(0, np.uint8), starts, lengths
    return np.frombuffer(data, np.uint8), starts, lengths


def _hash_bytes(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], seed: Hashes
) -> Hashes:
    blocks = lengths >> 2
    longest = int(blocks.max())
    order: NDArray[np.intp] | None = None
    if longest and int(blocks.min()) != longest:
        # Longest first, so that the rows that still have a block are always a prefix.
        order = np.argsort(-blocks, kind="stable")
        starts, lengths, blocks, seed = starts[order], lengths[order], blocks[order], seed[order]
    hashes = seed.copy()
    if longest:
        # A little-endian 32-bit word at every byte; Murmur3 reads values at any alignment.
        words: Hashes = np.ndarray((data.size - 3,), "<u4", data, 0, (1,))
        counts = np.searchsorted(-blocks, -np.arange(longest), side="left").tolist()
        position = starts.copy()
        for count in counts:
            hashes[:count] = _mix(hashes[:count], words[position[:count]])
            position[:count] += 4
    tail = starts + 4 * blocks
    remaining = lengths & 3
    for number in range(3):
        rows = np.flatnonzero(remaining > number)
        if rows.size == 0:
            break
        signed = data[tail[rows] + number].view(np.int8).astype(np.int32).view(np.uint32)
        hashes[rows] = _mix(hashes[rows], signed)
    hashes = _finish(hashes, lengths.astype(np.uint32))
    if order is None:
        return hashes
    unsorted = np.empty_like(hashes)
    unsorted[order] = hashes
    return unsorted


# ------------------------------------------------------------------------------------------------
# One row: plain integers, which are several times faster than arrays of one element
# ------------------------------------------------------------------------------------------------


def _hash_one(column: pa.Array, seed: int, source_type: pa.DataType | None) -> int:
    if column.null_count:
        return seed
    if column.type.id in _BYTES_LIKE:
        value: bytes = column[0].as_buffer().to_pybytes()
        tail = len(value) & ~3
        blocks = list(struct.unpack_from(f"<{tail // 4}I", value))
        blocks += [byte if byte < 128 else byte | 0xFFFFFF00 for byte in value[tail:]]
        return _hash_blocks(blocks, len(value), seed)
    fits = None if source_type is None else _fits(column, source_type)
    if fits is None:
        words = _fixed_words(column)
    elif fits[0]:
        assert source_type is not None
        words = _narrow_words(column, source_type)
    else:
        words = _wide_words(column)
    return _hash_blocks([int(word[0]) for word in words], 4 * len(words), seed)


def _hash_blocks(blocks: Sequence[int], length: int, seed: int) -> int:
    h = seed
    for block in blocks:
        k = (block * _C1) & _MASK
        k = (((k << 15) | (k >> 17)) * _C2) & _MASK
        h ^= k
        h = (((h << 13) | (h >> 19)) & _MASK) * 5 + _M5 & _MASK
    h ^= length & _MASK
    h ^= h >> 16
    h = (h * _F1) & _MASK
    h ^= h >> 13
    h = (h * _F2) & _MASK
    return h ^ (h >> 16)

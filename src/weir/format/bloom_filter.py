"""The bloom filter over the primary keys of a generation.

A split-block bloom filter as in Parquet: blocks of 32 bytes, eight 32-bit words each. A key sets one
bit in every word of one block: the upper half of its hash picks the block, the lower half, multiplied
by the salt of the word, the bit. The file is the blocks and nothing else.

The released library sizes every filter for 8,192 keys at a false-positive rate of 0.00057, which is 32,768
bytes, however many rows the generation has (measured with up to 20,000). Weir makes the same filter up to
8,192 keys; beyond, it sizes the filter for the actual number of keys, so that it stays selective. Readers
take any number of blocks.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from weir.errors import CorruptionError, InputError
from weir.format.buffers import Bytes

__all__ = ["EXPECTED_KEYS", "FALSE_POSITIVE_RATE", "BloomFilter"]

EXPECTED_KEYS = 8192
"""Number of keys the released library sizes every filter for."""

FALSE_POSITIVE_RATE = 0.00057
"""Share of absent keys a filter of the expected size lets through."""

_FEW_KEYS = 256
"""Up to this many keys, setting the bits of each is faster than laying out all keys."""

_BLOCK_BYTES = 32
_WORDS = 8
_MAX_BYTES = 128 * 1024 * 1024
_SALTS = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31],
    np.uint32,
)
# Number of the first bit of each word of a block.
_WORD_BITS = np.arange(0, 32 * _WORDS, 32, dtype=np.int64)


class BloomFilter:
    """A filter for keys that a generation cannot have.

    Immutable. Made by :meth:`build` or :meth:`from_bytes`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from weir.format.key_hash import hash_keys
    >>> keys = BloomFilter.build(hash_keys([pa.array([1, 2, 3])]))
    >>> keys.contains(hash_keys([pa.array([3, 4])])).tolist()
    [True, False]
    """

    __slots__ = ("_blocks",)

    def __init__(self, blocks: npt.NDArray[np.uint32]) -> None:
        self._blocks = blocks

    @classmethod
    def build(cls, hashes: npt.NDArray[np.uint64], *, expected_keys: int | None = None) -> BloomFilter:
        """Return the filter that contains ``hashes``.

        Parameters
        ----------
        hashes : numpy.ndarray
            ``uint64[keys]`` from :func:`weir.format.key_hash.hash_keys`.
        expected_keys : int, optional
            Number of keys to size the filter for. Default: the number of hashes, but no fewer than
            :data:`EXPECTED_KEYS`.

        Raises
        ------
        InputError
            ``expected_keys`` is less than 1.
        """
        count = max(EXPECTED_KEYS, len(hashes)) if expected_keys is None else expected_keys
        if count < 1:
            raise InputError(f"a bloom filter cannot be sized for {count} keys")
        size = _size_in_bytes(count)
        if len(hashes) <= _FEW_KEYS:
            blocks, bits = _positions(hashes, size // _BLOCK_BYTES)
            words = np.zeros((size // _BLOCK_BYTES, _WORDS), "<u4")
            np.bitwise_or.at(words, (blocks[:, None], np.arange(_WORDS)), np.uint32(1) << bits)
            return cls(words)
        first_bits = 8 * _BLOCK_BYTES * _blocks_of(hashes, size // _BLOCK_BYTES)
        low = hashes.astype(np.uint32)
        flags = np.zeros(8 * size, np.bool_)
        # Word by word, so that the working set stays in the processor's cache.
        for first_bit, salt in zip(_WORD_BITS, _SALTS, strict=True):
            flags[first_bits + (first_bit + _bits_of(low, salt))] = True
        return cls(np.packbits(flags, bitorder="little").view("<u4").reshape(-1, _WORDS))

    @classmethod
    def from_bytes(cls, data: Bytes, *, where: str) -> BloomFilter:
        """Return the filter stored as ``data``; it refers to the bytes.

        Raises
        ------
        CorruptionError
            The length is not that of any filter. Nothing else can be checked.
        """
        size = memoryview(data).nbytes
        if size == 0 or size % _BLOCK_BYTES or size > _MAX_BYTES:
            raise CorruptionError(
                f"the bloom filter has {size} bytes, not a number of {_BLOCK_BYTES}-byte blocks", where=where
            )
        return cls(np.frombuffer(data, "<u4").reshape(-1, _WORDS))

    def contains(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Return for each hash whether the key may be there.

        Parameters
        ----------
        hashes : numpy.ndarray
            ``uint64[keys]`` from :func:`weir.format.key_hash.hash_keys`.

        Returns
        -------
        numpy.ndarray
            ``bool[keys]``; False means that the key is certainly absent.
        """
        blocks, bits = _positions(hashes, len(self._blocks))
        found: npt.NDArray[np.bool_] = np.logical_and.reduce((self._blocks[blocks] >> bits) & 1, axis=1)
        return found

    def fits(self, keys: int) -> bool:
        """Whether it has the size that Weir or the released library gives a filter for so many keys.

        The size says which block a key belongs to: one that was cut short, or comes from a writer that
        reckons otherwise, denies keys that are there.

        Examples
        --------
        >>> whole = BloomFilter.build(np.arange(3, dtype=np.uint64))
        >>> half = BloomFilter.from_bytes(whole.to_bytes()[: whole.nbytes // 2], where="half")
        >>> whole.fits(3), half.fits(3)
        (True, False)
        """
        return self.nbytes in (_size_in_bytes(EXPECTED_KEYS), _size_in_bytes(max(EXPECTED_KEYS, keys)))

    def to_bytes(self) -> bytes:
        """Return the bytes to store."""
        return self._blocks.tobytes()

    @property
    def nbytes(self) -> int:
        """Size of the filter in bytes."""
        return self._blocks.nbytes


def _size_in_bytes(keys: int) -> int:
    """Return the size of a filter for so many keys: a power of two of bytes, within Parquet's limits."""
    bits = -8 * keys / math.log(1 - FALSE_POSITIVE_RATE ** (1 / 8))
    size = 1 << math.ceil(math.log2(bits / 8))
    return min(max(size, _BLOCK_BYTES), _MAX_BYTES)


def _positions(
    hashes: npt.NDArray[np.uint64], blocks: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """Return ``int64[keys]``, the block of each hash, and ``uint32[keys, 8]``, the bit in each word."""
    return _blocks_of(hashes, blocks), _bits_of(hashes.astype(np.uint32)[:, None], _SALTS)


def _blocks_of(hashes: npt.NDArray[np.uint64], blocks: int) -> npt.NDArray[np.int64]:
    """Return the block of each hash, which its upper half picks."""
    return (((hashes >> np.uint64(32)) * np.uint64(blocks)) >> np.uint64(32)).astype(np.int64)


def _bits_of(
    low: npt.NDArray[np.uint32], salts: npt.NDArray[np.uint32] | np.uint32
) -> npt.NDArray[np.uint32]:
    """Return the bits that lower halves of hashes have in words with some salts."""
    return (low * salts) >> np.uint32(27)

"""Sets of primary keys and exact matching of rows against them, without a loop over rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from weir.format.key_hash import hash_keys
from weir.format.newest import newest_rows

__all__ = ["KeyIndex", "KeyMatcher", "KeySet"]

Rows = npt.NDArray[np.int64]


_HASHED_TYPES = (pa.int32(), pa.int64(), pa.string(), pa.binary())


def _hashed(column: pa.Array) -> pa.Array:
    """Return a key column as a type whose values the hash of bloom filters tells apart.

    The released library's hash passes over the values of all other types, and Weir's bloom filters
    have to equal the library's. An index that did the same would compare every key with every key.
    """
    kind = column.type
    if kind in _HASHED_TYPES:
        return column
    if pa.types.is_uint64(kind):
        return column.view(pa.int64())
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return column.cast(pa.int64())
    return column.cast(pa.string() if pa.types.is_large_string(kind) else pa.binary())


def _flat(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


class KeySet:
    """Primary keys, one per row, with their hashes.

    Parameters
    ----------
    columns : sequence of Array or ChunkedArray
        The primary-key columns.
    """

    def __init__(self, columns: Sequence[pa.Array | pa.ChunkedArray]) -> None:
        self.columns: tuple[pa.Array, ...] = tuple(_flat(column) for column in columns)

    @cached_property
    def hashes(self) -> npt.NDArray[np.uint64]:
        """The 64-bit hash of every key, by which a :class:`KeyIndex` finds it."""
        hashed = tuple(_hashed(column) for column in self.columns)
        if all(one is other for one, other in zip(hashed, self.columns, strict=True)):
            return self.bloom_hashes
        return hash_keys(hashed)

    @cached_property
    def bloom_hashes(self) -> npt.NDArray[np.uint64]:
        """The 64-bit hash of every key in a generation's bloom filter."""
        return hash_keys(self.columns)

    def __len__(self) -> int:
        """Return how many keys there are."""
        return len(self.columns[0])

    def take(self, rows: Rows) -> KeySet:
        """Return the keys of some rows."""
        indices = pa.array(rows)
        taken = KeySet([column.take(indices) for column in self.columns])
        for known in ("hashes", "bloom_hashes"):
            if known in self.__dict__:
                taken.__dict__[known] = self.__dict__[known][rows]
        return taken

    @staticmethod
    def concat(sets: Sequence[KeySet]) -> KeySet:
        """Return the keys of all ``sets``, one after the other."""
        columns = zip(*(one.columns for one in sets), strict=True)
        return KeySet([pa.concat_arrays(list(parts)) for parts in columns])

    @property
    def nbytes(self) -> int:
        """Bytes the keys take in memory."""
        return sum(column.nbytes for column in self.columns)


@dataclass(frozen=True, slots=True)
class KeyIndex:
    """From keys to the newest row of each, for one immutable set of rows.

    Parameters
    ----------
    keys : KeySet
        The key of every row.
    rows : ndarray of int64
        Offsets of the newest row of each distinct key, in the order of ``hashes``.
    hashes : ndarray of uint64
        Ascending.
    """

    keys: KeySet
    rows: Rows
    hashes: npt.NDArray[np.uint64]

    @classmethod
    def build(cls, keys: KeySet) -> KeyIndex:
        """Index ``keys``; where a key repeats, its last row counts."""
        newest = newest_rows(keys.columns)
        hashes = keys.hashes[newest]
        order = np.argsort(hashes, kind="stable")
        return cls(keys, newest[order], hashes[order])

    def lookup(self, wanted: KeySet) -> tuple[Rows, Rows]:
        """Find keys.

        Returns
        -------
        found : ndarray of int64
            Which of ``wanted`` are here.
        rows : ndarray of int64
            The newest row of each of them, aligned with ``found``.
        """
        low = np.searchsorted(self.hashes, wanted.hashes, side="left")
        high = np.searchsorted(self.hashes, wanted.hashes, side="right")
        counts = high - low
        found = np.flatnonzero(counts)
        if not found.size:
            return found, found
        counts = counts[found]
        if counts.max() > 1:
            # Different keys with one hash: every candidate is compared below.
            starts = np.repeat(low[found] - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
            candidates = starts + np.arange(counts.sum())
            found = np.repeat(found, counts)
        else:
            candidates = low[found]
        rows = self.rows[candidates]
        same = np.ones(len(found), dtype=bool)
        found_indices, row_indices = pa.array(found), pa.array(rows)
        for here, there in zip(self.keys.columns, wanted.columns, strict=True):
            equal = pc.equal(here.take(row_indices), there.take(found_indices))
            same &= equal.fill_null(False).to_numpy(zero_copy_only=False)
        return found[same], rows[same]

    @property
    def nbytes(self) -> int:
        """Bytes the index takes in memory, its keys included."""
        return self.keys.nbytes + self.rows.nbytes + self.hashes.nbytes


class KeyMatcher:
    """Matches rows that stream by against a set of keys, exactly and for keys of any type.

    Keys are numbered column by column: the number after a column is the rank of the pair (number
    before, value) among the pairs that occur, so numbers never outgrow the number of keys.

    Parameters
    ----------
    keys : KeySet
        The keys to look for; repeats are allowed.
    """

    def __init__(self, keys: KeySet) -> None:
        self._steps: list[tuple[pa.Array, Rows]] = []
        numbers = np.zeros(len(keys), dtype=np.int64)
        for column in keys.columns:
            distinct = pc.unique(column)
            values = pc.index_in(column, value_set=distinct).to_numpy(zero_copy_only=False)
            pairs, numbers = np.unique(numbers * max(len(distinct), 1) + values, return_inverse=True)
            self._steps.append((distinct, pairs))
        self.number_of_row: Rows = numbers.astype(np.int64)

    @property
    def count(self) -> int:
        """How many distinct keys there are; their numbers are below this."""
        return len(self._steps[-1][1])

    def match(self, columns: Sequence[pa.Array | pa.ChunkedArray]) -> tuple[Rows, Rows]:
        """Match rows.

        Returns
        -------
        rows : ndarray of int64
            Offsets of the rows whose key is in the set.
        numbers : ndarray of int64
            The number of the key of each, as in ``number_of_row``.
        """
        rows = np.arange(len(columns[0]), dtype=np.int64)
        numbers = np.zeros(len(rows), dtype=np.int64)
        for column, (distinct, pairs) in zip(columns, self._steps, strict=True):
            flat = _flat(column)
            if len(rows) < len(flat):
                flat = flat.take(pa.array(rows))
            values = pc.index_in(flat, value_set=distinct)
            hit = values.is_valid().to_numpy(zero_copy_only=False)
            rows = rows[hit]
            found = values.drop_null().to_numpy(zero_copy_only=False)
            wanted = numbers[hit] * max(len(distinct), 1) + found
            at = np.searchsorted(pairs, wanted)
            inside = at < len(pairs)
            inside[inside] = pairs[at[inside]] == wanted[inside]
            rows, numbers = rows[inside], at[inside]
        return rows, numbers

"""Sets of primary keys and exact matching of rows against them, without a loop over rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from weir.format.integer_order import integer_order
from weir.format.key_hash import hash_keys
from weir.format.newest import newest_rows
from weir.format.plain_keys import is_number, plain_keys, stored_keys

__all__ = ["KeyIndex", "KeyMatcher", "KeySet"]

Rows = npt.NDArray[np.int64]

_NONE: Rows = np.zeros(0, dtype=np.int64)

_HASHED_TYPES = (pa.int32(), pa.int64(), pa.string(), pa.binary())


def _hashed(column: pa.Array) -> pa.Array:
    """Return a key column as a type whose values the Bloom filter hash distinguishes.

    The released library's hash ignores the values of all other types, and Weir's Bloom filters have to equal
    the library's. An index that did the same would compare every key with every key.
    """
    column = plain_keys(column)
    kind = column.type
    if kind in _HASHED_TYPES:
        return column
    if pa.types.is_uint64(kind):
        return column.view(pa.int64())
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return column.cast(pa.int64())
    return column.cast(pa.string() if pa.types.is_large_string(kind) else pa.binary())


def _integers(column: pa.Array) -> npt.NDArray[Any] | None:
    """Return the underlying integers of a key column; None if it has none, or has nulls."""
    if column.null_count or not is_number(column.type):
        return None
    values: npt.NDArray[Any] = plain_keys(column).to_numpy()
    return values


def _flat(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return stored_keys(column)


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
        """A 64-bit number for every key, by which a :class:`KeyIndex` finds it.

        The key itself if it is an integer, which costs nothing and is unique.
        """
        values = self._views[0] if len(self.columns) == 1 else None
        if values is not None:
            wide = np.uint64 if values.dtype.kind == "u" else np.int64
            return values.astype(wide, copy=False).view(np.uint64)
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

    @cached_property
    def _views(self) -> tuple[npt.NDArray[Any] | None, ...]:
        """The values of every column as NumPy sees them, None for types it cannot see without a copy."""
        return tuple(_integers(column) for column in self.columns)

    def follow(self, others: Sequence[KeySet]) -> bool:
        """Whether it is certain that the keys ascend, and begin after all of some others."""
        ends = self._ascending
        if ends is None:
            return False
        last = [one._ascending for one in others if len(one)]
        return all(one is not None and one[1] < ends[0] for one in last)

    @cached_property
    def _ascending(self) -> tuple[int, int] | None:
        """The first and the last key; None if they do not ascend, or are not of one column of integers."""
        values = self._views[0] if len(self._views) == 1 else None
        if values is None or not len(values) or not np.all(values[1:] > values[:-1]):
            return None
        return int(values[0]), int(values[-1])

    def equal(self, rows: Rows, other: KeySet, other_rows: Rows) -> npt.NDArray[np.bool_]:
        """Return, pair by pair, whether the key of one of ``rows`` is that of one of ``other_rows``."""
        same = np.ones(len(rows), dtype=bool)
        for at, (view, other_view) in enumerate(zip(self._views, other._views, strict=True)):
            if view is not None and other_view is not None:
                same &= view[rows] == other_view[other_rows]
            else:
                here = self.columns[at].take(pa.array(rows))
                equal = pc.equal(here, other.columns[at].take(pa.array(other_rows)))
                same &= equal.fill_null(False).to_numpy(zero_copy_only=False)
        return same

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
    has_equal_hashes : bool
        Whether different keys have one hash.
    """

    keys: KeySet
    rows: Rows
    hashes: npt.NDArray[np.uint64]
    has_equal_hashes: bool

    @classmethod
    def build(cls, keys: KeySet) -> KeyIndex:
        """Index ``keys``; where a key repeats, its last row counts."""
        return cls._of(keys, keys.hashes, np.arange(len(keys), dtype=np.int64))

    @classmethod
    def merge(cls, indexes: Sequence[KeyIndex]) -> KeyIndex:
        """Index the rows of several indexes, one after the other; of a key in several the last counts.

        Their sorted parts are merged, which takes a fraction of reindexing all keys.
        """
        keys = KeySet.concat([one.keys for one in indexes])
        if any(one.has_equal_hashes for one in indexes):
            return cls.build(keys)
        starts = np.cumsum([0, *(len(one.keys) for one in indexes[:-1])])
        hashes = np.concatenate([one.hashes for one in indexes])
        rows = np.concatenate([one.rows + start for one, start in zip(indexes, starts, strict=True)])
        return cls._of(keys, hashes, rows)

    @classmethod
    def _of(cls, keys: KeySet, hashes: npt.NDArray[np.uint64], rows: Rows) -> KeyIndex:
        """Index some rows, in which later ones replace earlier ones; other rows of ``keys`` are replaced."""
        order = integer_order(hashes)
        hashes, rows = hashes[order], rows[order]
        is_last = np.ones(len(rows), dtype=bool)
        np.not_equal(hashes[1:], hashes[:-1], out=is_last[:-1])
        older = np.flatnonzero(~is_last)
        if keys.equal(rows[older], keys, rows[older + 1]).all():
            return cls(keys, rows[is_last], hashes[is_last], False)
        # Different keys have one hash.
        newest = newest_rows(keys.columns)
        hashes = keys.hashes[newest]
        order = integer_order(hashes)
        return cls(keys, newest[order], hashes[order], True)

    def lookup(self, wanted: KeySet) -> tuple[Rows, Rows]:
        """Find keys.

        Returns
        -------
        found : ndarray of int64
            Which of ``wanted`` are here.
        rows : ndarray of int64
            The newest row of each of them, aligned with ``found``.
        """
        if not len(self.rows):
            return _NONE, _NONE
        low = self.hashes.searchsorted(wanted.hashes)
        (found,) = (self.hashes.take(low, mode="clip") == wanted.hashes).nonzero()
        if not found.size:
            return _NONE, _NONE
        candidates = low[found]
        if self.has_equal_hashes:
            # Different keys with one hash: every candidate is compared below.
            counts = self.hashes.searchsorted(wanted.hashes[found], side="right") - candidates
            ends = np.cumsum(counts)
            candidates = np.repeat(candidates - (ends - counts), counts) + np.arange(ends[-1])
            found = np.repeat(found, counts)
        rows = self.rows[candidates]
        same = self.keys.equal(rows, wanted, found)
        return (found, rows) if same.all() else (found[same], rows[same])

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

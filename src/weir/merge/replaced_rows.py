"""The second wave of a merge: marks the base rows with merged keys in deletion files.

Where the key index knows the fragments, its pages are searched: those alone that may have one of the keys.
For composite keys, the index of the most selective column gives candidate rows, and the other columns are
read for these. The keys of uncovered fragments are read and searched among the merged ones; so are all keys,
by several tasks, if there are so many merged keys that every page would be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from weir.base.key_index_files import refuse_damaged_key_index
from weir.base.key_pages import KeyPages, indexed_pages
from weir.base.library_errors import LIBRARY_ERRORS, storage_failure
from weir.base.row_commit import FragmentLeft, fragment_sizes, rows_by_address, without_rows
from weir.base.table import BaseTable
from weir.engine import failpoint
from weir.engine.concurrent_map import concurrent_map, processors
from weir.format.integer_order import integer_order
from weir.format.key_order import key_order
from weir.format.newest import newest_rows
from weir.format.plain_keys import is_number
from weir.format.row_address import RowAddresses, fragments_of, offsets_of
from weir.format.wal_entry import TOMBSTONE
from weir.lsm.damage import reading
from weir.lsm.keys import KeyIndex, KeyMatcher, KeySet
from weir.merge.merged_keys import MergedKeys, read_keys

__all__ = [
    "ROWS_PER_LOOK",
    "ReplacedRows",
    "ReplacedRowsTask",
    "SearchedIndex",
    "delete_replaced_rows",
    "replaced_rows_tasks",
    "searched_index",
]

ROWS_PER_LOOK = 4_000_000
_MOST_TASKS = 256
_ROWS_BY_INDEX = 32_000_000
"""Rows of pages of the key index that one task searches; of more, many tasks read the keys sooner."""
_FEW_ROWS_PER_KEY = 10
"""If a merge has a key for every this many rows, it is faster for many tasks to read the keys of all rows."""
_ROWS_PER_KEY = 2.5
"""The per-task work for a merged key takes about as long as reading this many rows."""
_ROWS_PER_TAKEN = 50
"""Number of keys that are read sequentially in the time of one random access."""
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""An odd number whose bits are as good as random: the high bits of a product depend on all bits of a key."""

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ReplacedRowsTask:
    """Find the rows of some fragments that have one of some keys. Picklable, stateless.

    Parameters
    ----------
    base : BaseTable
        The version to read.
    fragment_ids : tuple of int
        The fragments.
    keys : tuple of MergedKeys
        The keys of every run.
    index : str or None
        The key column whose index is searched for them; None to read the keys of the fragments.
    """

    base: BaseTable
    fragment_ids: tuple[int, ...]
    keys: tuple[MergedKeys, ...]
    index: str | None


@dataclass(frozen=True, slots=True)
class ReplacedRows:
    """The reduced fragments. Can be pickled.

    Parameters
    ----------
    fragment_ids : tuple of int
        The fragments that were searched.
    left : tuple of FragmentLeft
        Those that lose rows.
    deletes : dict of int to int
        By fragment, how many of these rows have no replacement; fragments without any are omitted.
    repeats : bool
        Whether several runs have one key, which none should.
    """

    fragment_ids: tuple[int, ...]
    left: tuple[FragmentLeft, ...]
    deletes: dict[int, int]
    repeats: bool


def replaced_rows_tasks(
    base: BaseTable, fragment_ids: Sequence[int], keys: Sequence[MergedKeys]
) -> tuple[ReplacedRowsTask, ...]:
    """Return the tasks that search fragments: one uses the key index, others read keys.

    Parameters
    ----------
    base : BaseTable
        The version.
    fragment_ids : sequence of int
        The fragments.
    keys : sequence of MergedKeys
        The keys of every run.
    """
    left = set(fragment_ids)
    tasks: list[ReplacedRowsTask] = []
    sizes = fragment_sizes(base.dataset)
    rows_there, wanted = sum(sizes.values()), sum(one.rows for one in keys)
    enough = max(ROWS_PER_LOOK, int(_ROWS_PER_KEY * wanted), -(-rows_there // _MOST_TASKS))
    # The index would be read as a whole, by one task.
    are_many = (
        _is_sifted([base.schema.field(name).type for name in base.primary_key])
        and wanted * _FEW_ROWS_PER_KEY >= rows_there >= 2 * enough
    )
    index = None if are_many else searched_index(base, wanted)
    if index is not None and index.rows <= _ROWS_BY_INDEX and left - index.lacking:
        indexed = tuple(sorted(left - index.lacking))
        tasks.append(ReplacedRowsTask(base, indexed, tuple(keys), index.column))
        left &= index.lacking
    group: list[int] = []
    rows = 0
    for number in sorted(left):
        group.append(number)
        rows += sizes[number]
        if rows >= enough:
            tasks.append(ReplacedRowsTask(base, tuple(group), tuple(keys), None))
            group, rows = [], 0
    if group or not tasks:
        tasks.append(ReplacedRowsTask(base, tuple(group), tuple(keys), None))
    return tuple(tasks)


@dataclass(frozen=True, slots=True)
class SearchedIndex:
    """The index that finds rows with some keys fastest.

    Parameters
    ----------
    column : str
        The key column that it is on.
    rows : int
        Rows of its pages that may have one of them, about.
    lacking : frozenset of int
        The fragments it does not cover.
    """

    column: str
    rows: int
    lacking: frozenset[int]


def searched_index(base: BaseTable, keys: int) -> SearchedIndex | None:
    """Return the index to search for this many keys; None if the keys of all rows have to be read."""
    found: list[SearchedIndex] = []
    for column in base.primary_key:
        pages, lacking = indexed_pages(base, column)
        if pages is None:
            continue
        of_value = pages.page_rows if len(base.primary_key) == 1 else pages.rows_of_value
        rows = keys * of_value
        # A value that fills pages belongs to many keys: reading the keys of all rows takes less.
        if of_value <= pages.page_rows or rows * _ROWS_PER_TAKEN <= pages.rows:
            found.append(SearchedIndex(column, min(rows, pages.rows), lacking))
    return min(found, key=lambda one: one.rows, default=None)


def delete_replaced_rows(task: ReplacedRowsTask) -> ReplacedRows:
    """Find the rows that have a merged key, and delete them in deletion files that no version has yet.

    In memory are the merged keys, some keys of the base table, and the places of the rows found.

    Raises
    ------
    StorageError
        The store failed.
    """
    base = task.base
    failpoint.reach("merge.before_deletions")
    keys = read_keys(base.store, task.keys)
    gone = keys.column(TOMBSTONE).to_numpy()
    wanted = KeySet([keys.column(name) for name in base.primary_key])
    pages = indexed_pages(base, task.index)[0] if task.index is not None else None
    matcher: _Matcher | None = None
    if pages is not None:
        refuse_damaged_key_index(base)
    with reading(f"base table version {base.version}", base.uri):
        if pages is None:
            matcher = _Matcher(wanted)
            found = _scanned(base, task.fragment_ids, matcher)
        elif len(wanted.columns) == 1:
            found = _indexed(task, pages, wanted)
        else:
            found = _narrowed(task, pages, wanted)
        parts = list(found) if wanted and task.fragment_ids else []
    which = np.concatenate([one for one, _ in parts]) if parts else np.zeros(0, dtype=np.int64)
    addresses = np.concatenate([one for _, one in parts]) if parts else np.zeros(0, dtype=np.uint64)
    # Pages name rows that are gone already; with an index that begins twice with a fragment, twice.
    order = integer_order(addresses)
    addresses = addresses[order]
    is_first = np.ones(len(order), dtype=bool)
    np.not_equal(addresses[1:], addresses[:-1], out=is_first[1:])
    addresses = addresses[is_first]
    of_deletes = addresses[gone[which[order[is_first]]]]
    if pages is not None and of_deletes.size:
        with reading(f"base table version {base.version}", base.uri):
            _, of_deletes = pages.take(of_deletes, [])
    fragments = fragments_of(addresses)
    numbers, starts = np.unique(fragments, return_index=True)
    offsets = np.split(offsets_of(addresses), starts[1:])
    work = list(zip(numbers.tolist(), offsets, strict=True)) if addresses.size else []
    try:
        # Also on local disk: the library writes these files without the GIL.
        at_once = processors() if base.store.is_local else len(work)
        left = concurrent_map(
            partial(_delete, base), work, is_local=False, engine=base.engine, at_once=at_once
        )
        kept = tuple(one for one in left if one is not None)
    except LIBRARY_ERRORS as error:
        raise storage_failure(error, "deleting replaced rows", where=base.uri) from error
    deleted, counts = np.unique(fragments_of(of_deletes), return_counts=True)
    failpoint.reach("merge.after_deletions")
    return ReplacedRows(
        task.fragment_ids,
        kept,
        dict(zip(deleted.tolist(), counts.tolist(), strict=True)),
        sum(one.runs for one in task.keys) > 1 and _count_distinct(wanted, matcher) < len(wanted),
    )


def _count_distinct(wanted: KeySet, matcher: _Matcher | None) -> int:
    return len(newest_rows(wanted.columns)) if matcher is None else matcher.distinct


def _delete(base: BaseTable, work: tuple[int, Rows]) -> FragmentLeft | None:
    return without_rows(base.dataset, *work)


def _indexed(task: ReplacedRowsTask, pages: KeyPages, wanted: KeySet) -> Iterator[tuple[Rows, RowAddresses]]:
    """Yield which keys rows have, and the addresses of the rows, as the key index has them."""
    order = key_order(wanted.columns[0])
    of_order = order.to_numpy().astype(np.int64)
    asked = np.array(task.fragment_ids, dtype=np.uint64)
    for which, addresses in pages.sweep(wanted.columns[0].take(order)):
        chosen = np.isin(fragments_of(addresses), asked)
        yield of_order[which[chosen]], addresses[chosen]


def _narrowed(task: ReplacedRowsTask, pages: KeyPages, wanted: KeySet) -> Iterator[tuple[Rows, RowAddresses]]:
    """Yield the keys and addresses of rows that may match according to an index.

    Where these are many, the keys of their fragments are read after all, and of no others.
    """
    base = task.base
    assert task.index is not None
    values = pc.unique(wanted.columns[base.primary_key.index(task.index)])
    swept = [addresses for _, addresses in pages.sweep(values.take(key_order(values)))]
    maybe = np.unique(np.concatenate(swept)) if swept else np.zeros(0, dtype=np.uint64)
    fragments = fragments_of(maybe)
    asked = np.isin(fragments, np.array(task.fragment_ids, dtype=np.uint64))
    maybe, numbers = maybe[asked], np.unique(fragments[asked]).tolist()
    sizes = fragment_sizes(base.dataset)
    if maybe.size * _ROWS_PER_TAKEN > sum(sizes[number] for number in numbers):
        yield from _scanned(base, numbers, _Matcher(wanted))
    elif maybe.size:
        rows, addresses = pages.take(maybe, list(base.primary_key))
        offsets, which = _Matcher(wanted).match([_array(rows.column(name)) for name in base.primary_key])
        yield which, addresses[offsets]


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _scanned(
    base: BaseTable, fragment_ids: Sequence[int], matcher: _Matcher
) -> Iterator[tuple[Rows, RowAddresses]]:
    """Yield which keys rows have, and the addresses of the rows, by reading the keys of fragments."""
    rows_there = rows_by_address(base.dataset, fragment_ids, base.primary_key)
    for batch in base.engine.throttle.paced(rows_there):
        rows, which = matcher.match([batch.column(name) for name in base.primary_key])
        if rows.size:
            yield which, batch.column("_rowaddr").to_numpy()[rows]


def _is_sifted(key_types: Sequence[pa.DataType]) -> bool:
    """Whether a bitmap excludes nearly all keys that are not searched for."""
    return len(key_types) == 1 and is_number(key_types[0])


class _Matcher:
    """Finds those among many rows that have one of some keys.

    Parameters
    ----------
    wanted : KeySet
        The keys, each once.
    """

    def __init__(self, wanted: KeySet) -> None:
        self._sieve: _Sieve | None = None
        if _is_sifted([column.type for column in wanted.columns]):
            self._sieve = _Sieve(wanted)
        else:
            self._exact = KeyMatcher(wanted)
            self._row_of_number = np.zeros(self._exact.count, dtype=np.int64)
            self._row_of_number[self._exact.number_of_row] = np.arange(len(wanted))

    @property
    def distinct(self) -> int:
        """How many different keys there are."""
        return self._exact.count if self._sieve is None else self._sieve.distinct

    def match(self, columns: Sequence[pa.Array]) -> tuple[Rows, Rows]:
        """Return the offsets of the rows with such a key, and which of the keys they have."""
        if self._sieve is not None:
            return self._sieve.match(columns)
        rows, numbers = self._exact.match(columns)
        return rows, self._row_of_number[numbers]


class _Sieve:
    """Finds integer keys: a bitmap that fits into the CPU caches excludes nearly all others.

    Among rows whose keys ascend, as in most tables that were loaded at once, the wanted keys are looked for
    instead, in a third of the time.

    Parameters
    ----------
    wanted : KeySet
        The keys, of one column of integers.
    """

    def __init__(self, wanted: KeySet) -> None:
        # One in eight of the others passes, which takes less than a bitmap that the caches do not hold.
        self._bits = min(max(len(wanted).bit_length() + 3, 16), 26)
        self._index = KeyIndex.build(wanted)

    @property
    def distinct(self) -> int:
        """How many different keys there are."""
        return len(self._index.rows)

    def match(self, columns: Sequence[pa.Array]) -> tuple[Rows, Rows]:
        """Return the offsets of the rows with such a key, and which of the keys they have."""
        if columns[0].null_count:
            (there,) = columns[0].is_valid().to_numpy(zero_copy_only=False).nonzero()
            found, which = self.match([columns[0].drop_null()])
            return there[found], which
        keys = KeySet(columns)
        # Of integers, the keys themselves.
        numbers, wanted = keys.hashes, self._index.hashes
        if numbers.size and np.all(numbers[1:] > numbers[:-1]):
            first = int(wanted.searchsorted(numbers[0]))
            end = int(wanted.searchsorted(numbers[-1], side="right"))
            if end - first <= numbers.size:
                rows = numbers.searchsorted(wanted[first:end])
                is_there = numbers[rows] == wanted[first:end]
                return rows[is_there], self._index.rows[first:end][is_there]
        (maybe,) = self._there[self._place(numbers)].nonzero()
        found, which = self._index.lookup(keys.take(maybe))
        return maybe[found], which

    @cached_property
    def _there(self) -> npt.NDArray[np.bool_]:
        """The bitmap."""
        there = np.zeros(1 << self._bits, dtype=bool)
        there[self._place(self._index.hashes)] = True
        return there

    def _place(self, values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        places = values * _SPREAD
        places >>= np.uint64(64 - self._bits)
        return places

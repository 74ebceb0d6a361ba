"""Key lookups in the base table, directly in the pages of its key index.

For a single key the library spends more time planning a query than reading what the plan reads. Its BTREE is
two files per segment: ``page_data.lance`` holds every value with its row address, ordered by value, in pages
of a fixed number of rows; ``page_lookup.lance`` the smallest and largest value of each page. A segment never
changes, so pages are kept in the process cache: first only those requested, and once these have cost about as
much as reading everything, the whole segment.

An index may still name rows that were deleted since; reading them shows that they are gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from lance.file import LanceFileReader

from weir.base.deleted_rows import deleted_in_fragment
from weir.base.guessed_rows import GuessedRows
from weir.base.index_list import REUSE_INDEX, list_indexes
from weir.base.index_store import index_store
from weir.base.key_index import key_index_names
from weir.base.key_index_files import PAGE_FILES, REBUILD, refuse_damaged_key_index
from weir.base.library_errors import (
    LIBRARY_ERRORS,
    LibraryFailure,
    classify,
    is_panic,
    storage_failure,
)
from weir.base.open_files import OpenFile
from weir.base.table import BaseTable, library_options
from weir.engine.cache import Lifetime
from weir.engine.concurrent_map import concurrent_map
from weir.engine.context import EngineContext
from weir.errors import CorruptionError
from weir.format.ascending_search import first_places
from weir.format.key_order import key_order
from weir.format.plain_keys import plain_keys
from weir.indexing.library_message import library_message

__all__ = ["KeyPages", "indexed_pages", "key_pages"]

Offsets = npt.NDArray[np.int64]
RowAddresses = npt.NDArray[np.uint64]

Values: TypeAlias = npt.NDArray[Any] | pa.Array
"""Values of the key: as NumPy sees them where it sees integers, else as Arrow has them."""

_READ_TOGETHER_FROM = 8
_WHOLE_UP_TO_ROWS = 8_000_000
_GATHERED_UP_TO_ROWS = 2_000_000
"""Rows of a segment that a lookup of a few keys may have to wait for."""
_READS_OF_WHOLE = 8
"""Cost of reading one page, relative to its share of reading all."""
_NOMINAL_BYTES = 4096
_SWEPT_PAGES = 64
_SWEPT_AT_ONCE = 8
_READ_PAGES = 256
_ADDRESS_BYTES = 8
_GUESSED_AT_ONCE = 4096
_ROWS_PER_GUESS = 2_500
"""Rows of a segment that are read as a whole in the time that guessing where one key is takes."""
_COMPARED_WHOLE_BYTES = 8 * 1024 * 1024
"""Pages of a segment that are compared with their checksum before the first look-up, in some milliseconds."""
_GAP_PAGES = 8
"""Unrequested pages that are read along, because two reads take longer."""
_LOOKUP_COLUMNS = ["min", "max", "null_count", "page_idx"]
_PAGE_COLUMNS = ["values", "ids"]
_PAGE_LOOKUP, _PAGE_DATA = PAGE_FILES
_FRAGMENT_SHIFT = np.uint64(32)
_OFFSET_MASK = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class _Page:
    """Some rows of a segment, ordered by value."""

    values: Values
    addresses: RowAddresses

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes) + self.addresses.nbytes


class _PageFile:
    """A file of pages, to be read by many threads.

    The result of a call can be read by many threads at once.

    Parameters
    ----------
    file : OpenFile
        The file.
    """

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        self.reads = 0
        """How many times some of it has been read since all of it was."""
        self.guesses = 0
        """For how many keys some rows have been read since then."""

    def read(self, start: int, rows: int) -> _Page:
        """Read some rows."""
        with self._file.reader() as reader:
            self.reads += 1
            found = reader.read_range(start, rows, batch_size=max(rows, 1))
        return _page(found.to_table().select(_PAGE_COLUMNS))

    def take(self, rows: Offsets) -> _Page:
        """Read scattered rows, that ascend."""
        with self._file.reader() as reader:
            found = reader.take_rows(rows.tolist(), batch_size=max(len(rows), 1))
        return _page(found.to_table().select(_PAGE_COLUMNS))


@dataclass(frozen=True, slots=True)
class _Segment:
    """One segment of the index, without its pages.

    Parameters
    ----------
    uuid : str
        Its identity, never used again.
    place : str
        Where its files are.
    file : _PageFile
        Of its pages.
    rows, page_rows : int
        Rows in all, and of every page but the last.
    low, high : ndarray or Array
        Smallest and largest value of each page.
    fragments : ndarray of uint64
        The fragments it covers, ascending; entries for others are ignored.
    is_local : bool
        Whether reading in many places takes no round trips.
    engine : EngineContext
        Whose cache holds its pages, and whose threads read many.
    lifetime : Lifetime, optional
        How long it does.
    """

    uuid: str
    place: str
    file: _PageFile
    rows: int
    page_rows: int
    low: Values
    high: Values
    fragments: npt.NDArray[np.uint64]
    is_local: bool
    engine: EngineContext
    lifetime: Lifetime | None

    def pages(self, wanted: Sequence[int]) -> list[_Page]:
        """Return some pages, in order; ``wanted`` ascends."""
        cache = self.engine.cache
        pages: dict[int, _Page] = {}
        for at in wanted:
            page = cache.get(self._key(at))
            if page is not None:
                pages[at] = page
        missing = [at for at in wanted if at not in pages]
        if len(missing) >= _READ_TOGETHER_FROM and missing[-1] - missing[0] < 2 * len(missing):
            pages.update(self._read(missing[0], missing[-1] + 1))
        else:
            for at in missing:
                pages.update(self._read(at, at + 1))
        return [pages[at] for at in wanted]

    def read(self, first: int, end: int) -> _Page:
        """Read the pages from ``first`` to before ``end`` as one, without keeping them."""
        start = first * self.page_rows
        with _damage_is_named(f"{self.place}/{_PAGE_DATA}"):
            page = self.file.read(start, min(end * self.page_rows, self.rows) - start)
        return self._checked(page, first, end)

    def read_each(self, stretches: Sequence[tuple[int, int]]) -> Iterator[_Page]:
        """Read pages as :meth:`read` does, several stretches of them at once."""
        # Also from local disk: decoding takes the time, and the library does it without the GIL.
        yield from concurrent_map(
            lambda one: self.read(*one), stretches, is_local=len(stretches) < 2, engine=self.engine
        )

    def whole(self) -> _Page:
        """Return all pages as one."""
        return self.engine.cache.get_or_load(
            self._whole_key, self._load_whole, lambda loaded: loaded.nbytes, self.lifetime
        )

    def held(self) -> _Page | None:
        """Return all pages as one if they are in memory, or if reading by page would no longer cost less."""
        if self.rows <= _GATHERED_UP_TO_ROWS and self.file.reads > max(len(self.low) // _READS_OF_WHOLE, 1):
            return self.whole()
        return self.engine.cache.get(self._whole_key)

    def held_for(self, pages: int) -> _Page | None:
        """Return all pages as one where they are in memory, or may be kept there and most are asked for.

        Many merges into a table read its index only once.
        """
        held = self.held()
        if held is not None or 2 * pages < len(self.low) or not self._has_room:
            return held
        return self.whole()

    def read_ahead(self, keys: Values) -> bool:
        """Read all pages, if some of the keys that will be asked for show that most of them are needed.

        Returns whether they are in memory, or will not be kept there.
        """
        cache = self.engine.cache
        if not self._has_room or cache.get(self._whole_key) is not None:
            return True
        if not _is_read_whole(
            self, _union(_search(self.high, keys, "left"), _search(self.low, keys, "right"))
        ):
            return False
        self.whole()
        return True

    def pays_to_guess(self, keys: int) -> bool:
        """Whether to guess where keys are: where most pages would be read, until that has cost as much."""
        if not self.is_local or not isinstance(self.low, np.ndarray) or keys * _ROWS_PER_GUESS > self.rows:
            return False
        would_keep = keys * _GAP_PAGES >= len(self.low) and self._has_room
        has_cost = (self.file.guesses + keys) * _ROWS_PER_GUESS > self.rows
        return not (has_cost and would_keep) and self.engine.cache.get(self._whole_key) is None

    @property
    def _has_room(self) -> bool:
        """Whether all pages may be kept in memory."""
        return self._nbytes <= self.engine.cache.budget // 3

    @property
    def _nbytes(self) -> int:
        """Size of all pages, estimated from that of the smallest values."""
        return self.rows * (int(self.low.nbytes) // max(len(self.low), 1) + _ADDRESS_BYTES)

    @property
    def _whole_key(self) -> tuple[str, str]:
        return ("key pages of a segment", self.uuid)

    def _load_whole(self) -> _Page:
        end = len(self.low)
        parts = list(self.read_each([(at, min(at + _READ_PAGES, end)) for at in range(0, end, _READ_PAGES)]))
        self.file.reads = self.file.guesses = 0
        return parts[0] if len(parts) == 1 else _joined(parts)

    def _key(self, at: int) -> tuple[str, str, int]:
        return ("key page", self.uuid, at)

    def _checked(self, page: _Page, first: int, end: int) -> _Page:
        """Return some pages as read, if they match their table: not zeros, for example.

        It is asked of whole numbers alone, where it takes next to nothing.
        """
        values = page.values
        if not isinstance(values, np.ndarray) or not len(values):
            return page
        is_ordered = values[0] == self.low[first] and values[-1] == self.high[end - 1]
        if is_ordered and np.all(values[:-1] <= values[1:]) and np.count_nonzero(page.addresses == 0) < 2:
            return page
        raise CorruptionError(
            f"pages {first} to {end - 1} of the key index are not what was written",
            where=f"{self.place}/{_PAGE_DATA}",
            hint=REBUILD,
        )

    def _read(self, first: int, end: int) -> dict[int, _Page]:
        start = first * self.page_rows
        count = min(end * self.page_rows, self.rows) - start
        with _damage_is_named(f"{self.place}/{_PAGE_DATA}"):
            whole = self.file.read(start, count)
        whole = self._checked(whole, first, end)
        pages = {}
        for at in range(first, end):
            cut = slice((at - first) * self.page_rows, (at - first + 1) * self.page_rows)
            page = pages[at] = _Page(whole.values[cut], whole.addresses[cut])
            self.engine.cache.put(self._key(at), page, page.nbytes, self.lifetime)
        return pages


class KeyPages:
    """The key index of one version of the base table. Made by :func:`key_pages`.

    Parameters
    ----------
    base : BaseTable
        The base table at that version.
    segments : sequence
        Its segments; together they speak for every fragment of that version.
    """

    def __init__(self, base: BaseTable, segments: Sequence[_Segment]) -> None:
        self._base = base
        self._dataset = base.dataset
        self._segments = tuple(segments)

    def find(self, keys: pa.Array) -> tuple[Offsets, RowAddresses]:
        """Find the rows that have one of some keys, or had until they were deleted.

        Parameters
        ----------
        keys : Array
            Keys of the column's type, without nulls.

        Returns
        -------
        which : ndarray of int64
            For every row found, the offset of its key in ``keys``.
        addresses : ndarray of uint64
            The row addresses, aligned with ``which``.
        """
        if len(keys) == 1:
            return self._find(_searchable(keys))
        order = key_order(keys)
        which, addresses = self._find(_searchable(keys.take(order)))
        return order.to_numpy().astype(np.int64)[which], addresses

    def read_ahead(self, keys: pa.Array) -> bool:
        """Read what finding many keys will need, if some of them show that it is most of the index.

        Parameters
        ----------
        keys : Array
            Some hundred of the keys, in any order, without nulls.

        Returns
        -------
        bool
            Whether there is no more to be read ahead.
        """
        wanted = _searchable(keys)
        done = [segment.read_ahead(wanted) for segment in self._segments]
        return all(done)

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The least and the greatest key, including deleted ones; None unless keys are whole numbers."""
        if not self._segments or not all(isinstance(one.low, np.ndarray) for one in self._segments):
            return None
        ends = [(int(one.low[0]), int(one.high[-1])) for one in self._segments if len(one.low)]
        return (min(low for low, _ in ends), max(high for _, high in ends)) if ends else None

    @property
    def rows(self) -> int:
        """Rows of all its segments."""
        return sum(segment.rows for segment in self._segments)

    @property
    def page_rows(self) -> int:
        """Rows of a page, at most."""
        return max((segment.page_rows for segment in self._segments), default=0)

    @property
    def rows_of_value(self) -> int:
        """Rows of the pages that have one value, about: more than a page where values repeat for longer."""
        return max((one.page_rows * len(one.low) // _distinct(one.low) for one in self._segments), default=0)

    def sweep(self, keys: pa.Array) -> Iterator[tuple[Offsets, RowAddresses]]:
        """Find the rows that have one of many keys, or had until they were deleted, some pages at a time.

        Pages are kept if most of them are read and they take at most a third of the read cache; otherwise
        memory use does not depend on the number of keys.

        Parameters
        ----------
        keys : Array
            Keys of the column's type, ascending, without nulls.

        Yields
        ------
        which, addresses : ndarray
            As :meth:`find` returns them, of some of the keys.
        """
        wanted = _searchable(keys)
        for segment in self._segments:
            yield from _swept(segment, wanted)

    def take(self, addresses: RowAddresses, columns: list[str]) -> tuple[pa.Table, RowAddresses]:
        """Return the rows at some addresses that are not deleted, in order, and the addresses of these."""
        if len(addresses) == 1:
            fragment = self._dataset.get_fragment(int(addresses[0] >> _FRAGMENT_SHIFT))
            offset = None if fragment is None else self._offset(fragment, int(addresses[0]) & _OFFSET_MASK)
            if fragment is not None and offset is not None:
                # In half the time that the dataset takes.
                return fragment.take([offset], columns=columns) if columns else pa.table({}), addresses
        rows = self._dataset._take_rows(addresses.tolist(), columns=[*columns, "_rowid"])
        return rows.select(columns), rows.column("_rowid").to_numpy()

    def _offset(self, fragment: lance.LanceFragment, offset: int) -> int | None:
        """Return which of the rows left in a fragment was at an offset; None if it is gone, or not known."""
        if fragment.deletion_file() is None:
            return offset
        gone = deleted_in_fragment(self._base, fragment) if self._base.store.is_local else None
        if gone is None:
            return None
        before = int(np.searchsorted(gone, offset))
        return None if before < len(gone) and gone[before] == offset else offset - before

    def _find(self, keys: Values) -> tuple[Offsets, RowAddresses]:
        """Find keys that ascend."""
        matches = (_matches(segment, keys) for segment in self._segments)
        found = [match for match in matches if match is not None]
        if not found:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.uint64)
        if len(found) == 1:
            return found[0]
        return np.concatenate([one for one, _ in found]), np.concatenate([other for _, other in found])


def key_pages(base: BaseTable) -> KeyPages | None:
    """Return the pages of the key index, or None if only the library can look up keys.

    That is where the index lacks fragments (merged moments ago), the key has several columns or a type
    without pages in Arrow's order, or the files are not as expected.
    """
    pages, lacking = indexed_pages(base)
    return None if lacking else pages


def indexed_pages(base: BaseTable, column: str | None = None) -> tuple[KeyPages | None, frozenset[int]]:
    """Return the pages of the key index, and the fragments that it lacks.

    Parameters
    ----------
    base : BaseTable
        The table.
    column : str, optional
        One of several key columns, each of which has its own index: its values alone are not keys.

    Returns
    -------
    pages : KeyPages or None
        None if only the library can look up keys.
    lacking : frozenset of int
        The fragments that the pages do not cover.
    """
    if base.dataset.has_stable_row_ids or (column is None and len(base.primary_key) != 1):
        return None, frozenset()
    name = base.primary_key[0] if column is None else column
    key = ("key pages", base.namespace, base.version_key, name)
    # Without the version it is of, which would keep what the library holds of it: files, and memory.
    segments, lacking = base.engine.cache.get_or_load(
        key, lambda: _open(base, name), lambda _: _NOMINAL_BYTES, base.lifetime
    )
    return None if segments is None else KeyPages(base, segments), lacking


def _open(base: BaseTable, column: str) -> tuple[tuple[_Segment, ...] | None, frozenset[int]]:
    dataset = base.dataset
    name = key_index_names(dataset, base.primary_key).get(column)
    existing = {fragment.fragment_id for fragment in dataset.get_fragments()}
    left = set(existing)
    indexes = {index.name: index for index in list_indexes(dataset)}
    if name not in indexes or REUSE_INDEX in indexes:
        return None, frozenset()
    kind = base.schema.field(column).type
    covering: list[tuple[str, set[int]]] = []
    for described in indexes[name].segments:
        covered = existing.intersection(described.fragment_ids)
        left -= covered
        if covered:
            covering.append((str(described.uuid), covered))
    refuse_damaged_key_index(base, (_PAGE_LOOKUP,), and_up_to=_COMPARED_WHOLE_BYTES)
    segments: list[_Segment] = []
    for segment in concurrent_map(
        lambda one: _open_segment(base, *one, kind),
        covering,
        is_local=base.store.is_local,
        engine=base.engine,
    ):
        if segment is None:
            return None, frozenset()
        segments.append(segment)
    return tuple(segments), frozenset(left)


def _open_segment(base: BaseTable, uuid: str, covered: set[int], kind: pa.DataType) -> _Segment | None:
    place = f"{index_store(base, uuid).uri}/_indices/{uuid}"
    opened = _read_lookup(base, place)
    if opened is None:
        return None
    data, rows, pages, metadata = opened
    batch_size = metadata.get(b"batch_size", b"")
    page_rows = int(batch_size) if batch_size.isdigit() and len(batch_size) < 10 else 0
    if (
        metadata.get(b"range_partitioned") != b"false"
        or page_rows < 1
        or pages.num_rows != -(-rows // page_rows)
        or [data.metadata().schema.field(name).type for name in _PAGE_COLUMNS] != [kind, pa.uint64()]
        or pages.schema.types != [kind, kind, pa.uint32(), pa.uint32()]
        or np.any(pages.column("null_count").to_numpy())
        or not np.array_equal(pages.column("page_idx").to_numpy(), np.arange(pages.num_rows))
    ):
        return None
    low, high = (_searchable(pages.column(name).combine_chunks()) for name in ("min", "max"))
    try:
        _search(low, low[:1], "left")
    except pa.ArrowNotImplementedError:
        return None
    # Not the table version, which would then stay in memory as long as the file is cached.
    again = partial(_open_file, place, _PAGE_DATA, library_options(base.store))
    return _Segment(
        uuid,
        place,
        _PageFile(OpenFile(again, data, is_local=base.store.is_local)),
        rows,
        page_rows,
        low,
        high,
        np.array(sorted(covered), dtype=np.uint64),
        base.store.is_local,
        base.engine,
        base.segment_lifetime(uuid),
    )


def _read_lookup(
    base: BaseTable, place: str
) -> tuple[LanceFileReader, int, pa.Table, dict[bytes, bytes]] | None:
    """Return the reader of a segment's pages, its rows, and the table of the pages with its metadata.

    None if there are no such files. Files that are there and cannot be read are not left to the library:
    over some it ends the process.
    """
    options = library_options(base.store)
    try:
        lookup, data = concurrent_map(
            lambda name: _open_file(place, name, options),
            (_PAGE_LOOKUP, _PAGE_DATA),
            is_local=base.store.is_local,
            engine=base.engine,
        )
        with _damage_is_named(f"{place}/{_PAGE_LOOKUP}"):
            described = lookup.metadata()
            pages = lookup.read_all(batch_size=max(described.num_rows, 1)).to_table().select(_LOOKUP_COLUMNS)
        with _damage_is_named(f"{place}/{_PAGE_DATA}"):
            for name in _PAGE_COLUMNS:
                data.metadata().schema.field(name)
    except LIBRARY_ERRORS as error:
        if classify(error) is not LibraryFailure.ABSENT:
            raise
        return None
    return data, data.metadata().num_rows, pages, described.schema.metadata or {}


def _open_file(place: str, name: str, options: dict[str, str] | None) -> LanceFileReader:
    with _damage_is_named(f"{place}/{name}"):
        return LanceFileReader(f"{place}/{name}", storage_options=options)


@contextmanager
def _damage_is_named(where: str) -> Iterator[None]:
    """Turn the library's errors for damaged files into named ones; errors for missing files are kept."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, LIBRARY_ERRORS) and classify(error) is LibraryFailure.ABSENT:
            raise
        if isinstance(error, OSError) and classify(error) is not LibraryFailure.DAMAGED:
            raise storage_failure(error, "reading the key index", where=where) from error
        if not isinstance(error, (*LIBRARY_ERRORS, KeyError)) and not is_panic(error):
            raise
        raise CorruptionError(
            f"a segment of the key index cannot be read: {library_message(error)}",
            where=where,
            hint=REBUILD,
        ) from error


def _page(table: pa.Table) -> _Page:
    return _Page(_searchable(_as_one(table.column("values"))), _as_one(table.column("ids")).to_numpy())


def _as_one(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array: a copy, unless it keeps nothing else in memory."""
    if column.num_chunks == 1:
        (only,) = column.chunks
        if only.get_total_buffer_size() <= only.nbytes + only.nbytes // 8:
            return only
    return column.combine_chunks()


def _joined(parts: Sequence[_Page]) -> _Page:
    """Return pages that follow each other as one."""
    values = [one.values for one in parts]
    is_plain = all(isinstance(one, np.ndarray) for one in values)
    together: Values = np.concatenate(values) if is_plain else pa.concat_arrays(values)
    return _Page(together, np.concatenate([one.addresses for one in parts]))


def _searchable(values: pa.Array) -> Values:
    values = plain_keys(values)
    # NumPy takes a tenth of the time that Arrow takes to search for one value.
    return values.to_numpy() if pa.types.is_integer(values.type) and not values.null_count else values


def _search(values: Values, wanted: Values, side: Literal["left", "right"]) -> Offsets:
    """Return where some values would go among values that ascend."""
    found: Offsets
    if isinstance(values, np.ndarray):
        if side == "left" and isinstance(wanted, np.ndarray):
            return first_places(values, wanted)
        found = values.searchsorted(wanted, side=side)
        return found
    found = pc.search_sorted(values, wanted, side=side).to_numpy().astype(np.int64)
    return found


def _distinct(values: Values) -> int:
    """Return how many values there are among some that ascend, at least one."""
    found = np.unique(values) if isinstance(values, np.ndarray) else pc.unique(values)
    return max(len(found), 1)


def _matches(segment: _Segment, keys: Values) -> tuple[Offsets, RowAddresses] | None:
    """Return which keys, that ascend, are in a segment, and the addresses of their rows."""
    held = segment.held()
    if held is not None:
        return _found_in(segment, held, keys)
    first = _search(segment.high, keys, "left")
    end = _search(segment.low, keys, "right")
    touched = _union(first, end)
    if not touched:
        return None
    if _is_read_whole(segment, touched):
        # One search in all of it takes less than one in every other page.
        return _found_in(segment, segment.whole(), keys)
    found = []
    for at, page in zip(touched, segment.pages(touched), strict=True):
        # Keys ascend, and so do the pages that they may be in.
        start, stop = int(end.searchsorted(at, side="right")), int(first.searchsorted(at, side="right"))
        which, rows = _rows_with(page.values, keys[start:stop])
        if which.size:
            found.append((which + start, page.addresses[rows]))
    if not found:
        return None
    if len(found) == 1:
        return _spoken_for(segment, *found[0])
    return _spoken_for(segment, *(np.concatenate(part) for part in zip(*found, strict=True)))


def _is_read_whole(segment: _Segment, touched: Sequence[int]) -> bool:
    """Whether so many pages are asked for that a segment is read as one."""
    return _READ_TOGETHER_FROM <= len(touched) >= len(segment.low) // 2 and segment.rows <= _WHOLE_UP_TO_ROWS


def _swept(segment: _Segment, keys: Values) -> Iterator[tuple[Offsets, RowAddresses]]:
    """Find many keys, that ascend, in a segment, some rows or pages at a time."""
    if not (isinstance(keys, np.ndarray) and segment.pays_to_guess(len(keys))):
        yield from _swept_pages(segment, keys)
        return
    left = []
    for begin in range(0, len(keys), _GUESSED_AT_ONCE):
        some = keys[begin : begin + _GUESSED_AT_ONCE]
        found, unsure = _guessed(segment, some)
        left.append(begin + unsure)
        if found is not None:
            yield begin + found[0], found[1]
    unsure = np.concatenate(left)
    if unsure.size:
        for which, addresses in _swept_pages(segment, keys[unsure]):
            yield unsure[which], addresses


def _guessed(
    segment: _Segment, keys: npt.NDArray[Any]
) -> tuple[tuple[Offsets, RowAddresses] | None, Offsets]:
    """Find keys, that ascend, near where they probably are; return also which have to be looked for."""
    first = _search(segment.high, keys, "left")
    count = _search(segment.low, keys, "right") - first
    (unsure,) = (count > 1).nonzero()
    (which,) = (count == 1).nonzero()
    if not which.size:
        return None, unsure
    asked, at = keys[which], first[which]
    begin = at * segment.page_rows
    end = np.minimum(begin + segment.page_rows, segment.rows)
    rows = GuessedRows.guess(asked, segment.low[at], segment.high[at], begin, end)
    segment.file.guesses += len(asked)
    with _damage_is_named(f"{segment.place}/{_PAGE_DATA}"):
        page = segment.file.take(rows.rows)
    if np.any(page.values[:-1] > page.values[1:]) or np.count_nonzero(page.addresses == 0) > 1:
        # Not what was written: whoever reads the pages says so.
        return None, np.sort(np.concatenate([unsure, which]))
    is_sure = rows.are_certain(asked, page.values)
    unsure = np.sort(np.concatenate([unsure, which[~is_sure]]))
    found = _found_in(segment, page, asked[is_sure])
    return None if found is None else (which[is_sure][found[0]], found[1]), unsure


def _swept_pages(segment: _Segment, keys: Values) -> Iterator[tuple[Offsets, RowAddresses]]:
    """Find keys, that ascend, in the pages of a segment that may have them, read many at a time."""
    first = _search(segment.high, keys, "left")
    end = _search(segment.low, keys, "right")
    stretches = list(_stretches(_union(first, end)))
    held = segment.held_for(sum(stop - begin for begin, stop in stretches))
    if held is not None:
        found = _found_in(segment, held, keys)
        if found is not None:
            yield found
        return
    for together in _portions(stretches):
        for (begin, stop), page in zip(together, segment.read_each(together), strict=True):
            # Keys ascend, and so do the pages that they may be in.
            start = int(end.searchsorted(begin, side="right"))
            which, rows = _rows_with(page.values, keys[start : int(first.searchsorted(stop, side="left"))])
            if which.size:
                found = _spoken_for(segment, which + start, page.addresses[rows])
                if found is not None:
                    yield found


def _portions(stretches: Sequence[tuple[int, int]]) -> Iterator[Sequence[tuple[int, int]]]:
    """Yield stretches in order, as many together as are read at once and held in memory."""
    for at in range(0, len(stretches), _SWEPT_AT_ONCE):
        yield stretches[at : at + _SWEPT_AT_ONCE]


def _stretches(pages: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield which pages to read together, as the first and the one behind the last."""
    begin = stop = -1
    for at in pages:
        if begin >= 0 and (at - stop > _GAP_PAGES or at - begin >= _SWEPT_PAGES):
            yield begin, stop
            begin = -1
        if begin < 0:
            begin = at
        stop = at + 1
    if begin >= 0:
        yield begin, stop


def _found_in(segment: _Segment, page: _Page, keys: Values) -> tuple[Offsets, RowAddresses] | None:
    """Return which keys, that ascend, are in a page of a segment, and the addresses of their rows."""
    which, rows = _rows_with(page.values, keys)
    return _spoken_for(segment, which, page.addresses[rows]) if which.size else None


def _spoken_for(
    segment: _Segment, which: Offsets, addresses: RowAddresses
) -> tuple[Offsets, RowAddresses] | None:
    """Return the matches in the fragments that a segment covers."""
    known = _are_in(addresses >> _FRAGMENT_SHIFT, segment.fragments)
    if not known.any():
        return None
    return (which, addresses) if known.all() else (which[known], addresses[known])


def _rows_with(values: Values, keys: Values) -> tuple[Offsets, Offsets]:
    """Return which keys are among ascending values, and where, each as often as it occurs."""
    low = _search(values, keys, "left")
    (which,) = _are_at(values, low, keys).nonzero()
    rows = low[which]
    if not which.size:
        return which, rows
    wanted = keys[which] if isinstance(keys, np.ndarray) else keys.take(pa.array(which))
    # Values of a key repeat where rows are there no more, and where the key has other columns.
    if _are_at(values, rows + 1, wanted).any():
        counts = _search(values, wanted, "right") - rows
        ends = np.cumsum(counts)
        rows = np.repeat(rows - (ends - counts), counts) + np.arange(ends[-1])
        which = np.repeat(which, counts)
    return which, rows


def _are_at(values: Values, places: Offsets, wanted: Values) -> npt.NDArray[np.bool_]:
    """Return whether values are at places among others; no place is behind the last by more than one."""
    if not len(values):
        return np.zeros(len(places), dtype=bool)
    found: npt.NDArray[np.bool_]
    inside = places < len(values)
    if isinstance(values, np.ndarray):
        found = values.take(places, mode="clip") == wanted
    else:
        there = values.take(pa.array(np.minimum(places, len(values) - 1)))
        found = pc.equal(there, wanted).fill_null(False).to_numpy(zero_copy_only=False)
    return found & inside


def _union(first: Offsets, end: Offsets) -> list[int]:
    """Return the numbers that lie in some of the ranges, ascending."""
    if len(first) == 1:
        return list(range(int(first[0]), int(end[0])))
    inside = first < end
    if not inside.any():
        return []
    depth = np.zeros(int(end.max()) + 1, dtype=np.int64)
    np.add.at(depth, first[inside], 1)
    np.add.at(depth, end[inside], -1)
    return [int(at) for at in np.flatnonzero(np.cumsum(depth))]


def _are_in(values: npt.NDArray[np.uint64], ordered: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    at = ordered.searchsorted(values)
    at[at == len(ordered)] = 0
    found: npt.NDArray[np.bool_] = ordered[at] == values
    return found

"""One segment of the key index: its pages, read when they are needed and kept in the read cache.

The library's BTREE is two files per segment: ``page_data.lance`` holds every value with its row address,
ordered by value, in pages of a fixed number of rows; ``page_lookup.lance`` the smallest and largest value of
each page. A segment never changes, so its pages can be kept: first only those requested, and once these have
cost about as much as reading everything, all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.file import LanceFileReader

from weir.base.dataset import library_options
from weir.base.index_store import index_store
from weir.base.key_index_files import PAGE_FILES, REBUILD
from weir.base.library_errors import (
    LIBRARY_ERRORS,
    LibraryFailure,
    classify,
    is_panic,
    storage_failure,
)
from weir.base.open_files import OpenFile
from weir.base.ordered_values import Offsets, Values, in_ranges, places_of, rows_with, searchable
from weir.base.table import BaseTable
from weir.engine.cache import Lifetime
from weir.engine.concurrent_map import concurrent_map
from weir.engine.context import EngineContext
from weir.errors import CorruptionError
from weir.format.row_address import RowAddresses, fragments_of
from weir.indexing.library_message import library_message

__all__ = ["Page", "PageFile", "Segment", "open_segment"]

_READ_TOGETHER_FROM = 8
_WHOLE_UP_TO_ROWS = 8_000_000
_GATHERED_UP_TO_ROWS = 2_000_000
"""Rows of a segment that a lookup of a few keys may have to wait for."""
_READS_OF_WHOLE = 8
"""Cost of reading one page, relative to its share of reading all."""
_READ_PAGES = 256
_ADDRESS_BYTES = 8
_ROWS_PER_GUESS = 2_500
"""Rows of a segment that are read as a whole in the time that guessing where one key is takes."""
_PAGES_PER_GUESS = 8
"""Where no more than so many pages come to each key, most of them would be read, and are worth keeping."""
_LOOKUP_COLUMNS = ["min", "max", "null_count", "page_idx"]
_PAGE_COLUMNS = ["values", "ids"]
_PAGE_LOOKUP, _PAGE_DATA = PAGE_FILES


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows of a segment, ordered by value."""

    values: Values
    addresses: RowAddresses

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return int(self.values.nbytes) + self.addresses.nbytes


class PageFile:
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

    def read(self, start: int, rows: int) -> Page:
        """Read some rows."""
        with self._file.reader() as reader:
            self.reads += 1
            found = reader.read_range(start, rows, batch_size=max(rows, 1))
        return _page(found.to_table().select(_PAGE_COLUMNS))

    def take(self, rows: Offsets) -> Page:
        """Read scattered rows, that ascend."""
        with self._file.reader() as reader:
            found = reader.take_rows(rows.tolist(), batch_size=max(len(rows), 1))
        return _page(found.to_table().select(_PAGE_COLUMNS))


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment of the index, without its pages.

    Parameters
    ----------
    uuid : str
        Its identity, never used again.
    place : str
        Where its files are.
    file : PageFile
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
    file: PageFile
    rows: int
    page_rows: int
    low: Values
    high: Values
    fragments: npt.NDArray[np.uint64]
    is_local: bool
    engine: EngineContext
    lifetime: Lifetime | None

    def pages(self, wanted: Sequence[int]) -> list[Page]:
        """Return some pages, in order; ``wanted`` ascends."""
        cache = self.engine.cache
        pages: dict[int, Page] = {}
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

    def read(self, first: int, end: int) -> Page:
        """Read the pages from ``first`` to before ``end`` as one, without keeping them."""
        start = first * self.page_rows
        with _damage_is_named(f"{self.place}/{_PAGE_DATA}"):
            page = self.file.read(start, min(end * self.page_rows, self.rows) - start)
        return self._checked(page, first, end)

    def take(self, rows: Offsets) -> Page:
        """Read scattered rows, that ascend, without keeping them."""
        with _damage_is_named(f"{self.place}/{_PAGE_DATA}"):
            return self.file.take(rows)

    def read_each(self, stretches: Sequence[tuple[int, int]]) -> Iterator[Page]:
        """Read pages as :meth:`read` does, several stretches of them at once."""
        # Also from local disk: decoding takes the time, and the library does it without the GIL.
        yield from concurrent_map(
            lambda one: self.read(*one), stretches, is_local=len(stretches) < 2, engine=self.engine
        )

    def whole(self) -> Page:
        """Return all pages as one."""
        return self.engine.cache.get_or_load(
            self._whole_key, self._load_whole, lambda loaded: loaded.nbytes, self.lifetime
        )

    def held(self) -> Page | None:
        """Return all pages as one if they are in memory, or if reading by page would no longer cost less."""
        if self.rows <= _GATHERED_UP_TO_ROWS and self.file.reads > max(len(self.low) // _READS_OF_WHOLE, 1):
            return self.whole()
        return self.engine.cache.get(self._whole_key)

    def held_for(self, pages: int) -> Page | None:
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
        if not self.is_read_whole(
            in_ranges(places_of(self.high, keys, "left"), places_of(self.low, keys, "right"))
        ):
            return False
        self.whole()
        return True

    def is_read_whole(self, touched: Sequence[int]) -> bool:
        """Whether so many pages are asked for that all are read as one."""
        return _READ_TOGETHER_FROM <= len(touched) >= len(self.low) // 2 and self.rows <= _WHOLE_UP_TO_ROWS

    def found_in(self, page: Page, keys: Values) -> tuple[Offsets, RowAddresses] | None:
        """Return which keys, that ascend, are in some of its rows, and the addresses of their rows."""
        which, rows = rows_with(page.values, keys)
        return self.spoken_for(which, page.addresses[rows]) if which.size else None

    def spoken_for(self, which: Offsets, addresses: RowAddresses) -> tuple[Offsets, RowAddresses] | None:
        """Return the matches in the fragments that it covers; None if there are none."""
        known = _are_in(fragments_of(addresses), self.fragments)
        if not known.any():
            return None
        return (which, addresses) if known.all() else (which[known], addresses[known])

    def pays_to_guess(self, keys: int) -> bool:
        """Whether to guess where keys are: where most pages would be read, until that has cost as much."""
        if not self.is_local or not isinstance(self.low, np.ndarray) or keys * _ROWS_PER_GUESS > self.rows:
            return False
        would_keep = keys * _PAGES_PER_GUESS >= len(self.low) and self._has_room
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

    def _load_whole(self) -> Page:
        end = len(self.low)
        parts = list(self.read_each([(at, min(at + _READ_PAGES, end)) for at in range(0, end, _READ_PAGES)]))
        self.file.reads = self.file.guesses = 0
        return parts[0] if len(parts) == 1 else _joined(parts)

    def _key(self, at: int) -> tuple[str, str, int]:
        return ("key page", self.uuid, at)

    def _checked(self, page: Page, first: int, end: int) -> Page:
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

    def _read(self, first: int, end: int) -> dict[int, Page]:
        start = first * self.page_rows
        count = min(end * self.page_rows, self.rows) - start
        with _damage_is_named(f"{self.place}/{_PAGE_DATA}"):
            whole = self.file.read(start, count)
        whole = self._checked(whole, first, end)
        pages = {}
        for at in range(first, end):
            cut = slice((at - first) * self.page_rows, (at - first + 1) * self.page_rows)
            page = pages[at] = Page(whole.values[cut], whole.addresses[cut])
            self.engine.cache.put(self._key(at), page, page.nbytes, self.lifetime)
        return pages


def open_segment(base: BaseTable, uuid: str, covered: set[int], kind: pa.DataType) -> Segment | None:
    """Return a segment of the key index; None if it is not of the form that is known here.

    Parameters
    ----------
    base : BaseTable
        The table.
    uuid : str
        The segment.
    covered : set of int
        The fragments it covers, of those that exist.
    kind : DataType
        The type of the key column.

    Raises
    ------
    CorruptionError
        If a file is damaged.
    StorageError
        The store failed.
    """
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
    low, high = (searchable(pages.column(name).combine_chunks()) for name in ("min", "max"))
    try:
        places_of(low, low[:1], "left")
    except pa.ArrowNotImplementedError:
        return None
    # Not the table version, which would then stay in memory as long as the file is cached.
    again = partial(_open_file, place, _PAGE_DATA, library_options(base.store))
    return Segment(
        uuid,
        place,
        PageFile(OpenFile(again, data, is_local=base.store.is_local)),
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


def _page(table: pa.Table) -> Page:
    return Page(searchable(_as_one(table.column("values"))), _as_one(table.column("ids")).to_numpy())


def _as_one(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array: a copy, unless it keeps nothing else in memory."""
    if column.num_chunks == 1:
        (only,) = column.chunks
        if only.get_total_buffer_size() <= only.nbytes + only.nbytes // 8:
            return only
    return column.combine_chunks()


def _joined(parts: Sequence[Page]) -> Page:
    """Return pages that follow each other as one."""
    values = [one.values for one in parts]
    is_plain = all(isinstance(one, np.ndarray) for one in values)
    together: Values = np.concatenate(values) if is_plain else pa.concat_arrays(values)
    return Page(together, np.concatenate([one.addresses for one in parts]))


def _are_in(values: npt.NDArray[np.uint64], ordered: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    at = ordered.searchsorted(values)
    at[at == len(ordered)] = 0
    found: npt.NDArray[np.bool_] = ordered[at] == values
    return found

"""Key lookups in the base table, directly in the pages of its key index (:mod:`weir.base.key_segment`).

For a single key the library spends more time planning a query than reading what the plan reads. An index may
still name rows that were deleted since; reading them shows that they are gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.base.deleted_rows import deleted_in_fragment
from weir.base.guessed_rows import GuessedRows
from weir.base.index_list import REUSE_INDEX, list_indexes
from weir.base.key_index import key_index_names
from weir.base.key_index_files import PAGE_FILES, refuse_damaged_key_index
from weir.base.key_segment import Segment, open_segment
from weir.base.ordered_values import (
    Offsets,
    Values,
    count_distinct,
    in_ranges,
    places_of,
    rows_with,
    searchable,
)
from weir.base.table import BaseTable
from weir.engine.concurrent_map import concurrent_map
from weir.format.key_order import key_order
from weir.format.row_address import FRAGMENT_BITS, OFFSET_MASK, RowAddresses

__all__ = ["KeyPages", "indexed_pages", "key_pages"]

_NOMINAL_BYTES = 4096
_SWEPT_PAGES = 64
_SWEPT_AT_ONCE = 8
_GUESSED_AT_ONCE = 4096
_COMPARED_WHOLE_BYTES = 8 * 1024 * 1024
"""Pages of a segment that are compared with their checksum before the first look-up, in some milliseconds."""
_GAP_PAGES = 8
"""Unrequested pages that are read along, because two reads take longer."""
_PAGE_LOOKUP = PAGE_FILES[0]


class KeyPages:
    """The key index of one version of the base table. Made by :func:`key_pages`.

    Parameters
    ----------
    base : BaseTable
        The base table at that version.
    segments : sequence
        Its segments; together they speak for every fragment of that version.
    """

    def __init__(self, base: BaseTable, segments: Sequence[Segment]) -> None:
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
            return self._find(searchable(keys))
        order = key_order(keys)
        which, addresses = self._find(searchable(keys.take(order)))
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
        wanted = searchable(keys)
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
        return max(
            (one.page_rows * len(one.low) // count_distinct(one.low) for one in self._segments), default=0
        )

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
        wanted = searchable(keys)
        for segment in self._segments:
            yield from _swept(segment, wanted)

    def take(self, addresses: RowAddresses, columns: list[str]) -> tuple[pa.Table, RowAddresses]:
        """Return the rows at some addresses that are not deleted, in order, and the addresses of these."""
        if len(addresses) == 1:
            fragment = self._dataset.get_fragment(int(addresses[0]) >> FRAGMENT_BITS)
            offset = None if fragment is None else self._offset(fragment, int(addresses[0]) & OFFSET_MASK)
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
        found = [match for segment in self._segments if (match := _matches(segment, keys)) is not None]
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


def _open(base: BaseTable, column: str) -> tuple[tuple[Segment, ...] | None, frozenset[int]]:
    dataset = base.dataset
    name = key_index_names(dataset, base.primary_key).get(column)
    existing = {fragment.fragment_id for fragment in dataset.get_fragments()}
    if not existing:
        return (), frozenset()  # there is nothing to find
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
    segments: list[Segment] = []
    for segment in concurrent_map(
        lambda one: open_segment(base, *one, kind),
        covering,
        is_local=base.store.is_local,
        engine=base.engine,
    ):
        if segment is None:
            return None, frozenset()
        segments.append(segment)
    return tuple(segments), frozenset(left)


def _matches(segment: Segment, keys: Values) -> tuple[Offsets, RowAddresses] | None:
    """Return which keys, that ascend, are in a segment, and the addresses of their rows."""
    held = segment.held()
    if held is not None:
        return segment.found_in(held, keys)
    first = places_of(segment.high, keys, "left")
    end = places_of(segment.low, keys, "right")
    touched = in_ranges(first, end)
    if not touched:
        return None
    if segment.is_read_whole(touched):
        # One search in all of it takes less than one in every other page.
        return segment.found_in(segment.whole(), keys)
    found = []
    for at, page in zip(touched, segment.pages(touched), strict=True):
        # Keys ascend, and so do the pages that they may be in.
        start, stop = int(end.searchsorted(at, side="right")), int(first.searchsorted(at, side="right"))
        which, rows = rows_with(page.values, keys[start:stop])
        if which.size:
            found.append((which + start, page.addresses[rows]))
    if not found:
        return None
    if len(found) == 1:
        return segment.spoken_for(*found[0])
    return segment.spoken_for(*(np.concatenate(part) for part in zip(*found, strict=True)))


def _swept(segment: Segment, keys: Values) -> Iterator[tuple[Offsets, RowAddresses]]:
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


def _guessed(segment: Segment, keys: npt.NDArray[Any]) -> tuple[tuple[Offsets, RowAddresses] | None, Offsets]:
    """Find keys, that ascend, near where they probably are; return also which have to be looked for."""
    first = places_of(segment.high, keys, "left")
    count = places_of(segment.low, keys, "right") - first
    (unsure,) = (count > 1).nonzero()
    (which,) = (count == 1).nonzero()
    if not which.size:
        return None, unsure
    asked, at = keys[which], first[which]
    begin = at * segment.page_rows
    end = np.minimum(begin + segment.page_rows, segment.rows)
    rows = GuessedRows.guess(asked, segment.low[at], segment.high[at], begin, end)
    segment.file.guesses += len(asked)
    page = segment.take(rows.rows)
    if np.any(page.values[:-1] > page.values[1:]) or np.count_nonzero(page.addresses == 0) > 1:
        # Not what was written: whoever reads the pages says so.
        return None, np.sort(np.concatenate([unsure, which]))
    is_sure = rows.are_certain(asked, page.values)
    unsure = np.sort(np.concatenate([unsure, which[~is_sure]]))
    found = segment.found_in(page, asked[is_sure])
    return None if found is None else (which[is_sure][found[0]], found[1]), unsure


def _swept_pages(segment: Segment, keys: Values) -> Iterator[tuple[Offsets, RowAddresses]]:
    """Find keys, that ascend, in the pages of a segment that may have them, read many at a time."""
    first = places_of(segment.high, keys, "left")
    end = places_of(segment.low, keys, "right")
    stretches = list(_stretches(in_ranges(first, end)))
    held = segment.held_for(sum(stop - begin for begin, stop in stretches))
    if held is not None:
        found = segment.found_in(held, keys)
        if found is not None:
            yield found
        return
    for together in _portions(stretches):
        for (begin, stop), page in zip(together, segment.read_each(together), strict=True):
            # Keys ascend, and so do the pages that they may be in.
            start = int(end.searchsorted(begin, side="right"))
            which, rows = rows_with(page.values, keys[start : int(first.searchsorted(stop, side="left"))])
            if which.size:
                found = segment.spoken_for(which + start, page.addresses[rows])
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

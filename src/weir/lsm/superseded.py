"""The rows of the base table with a newer version, or a tombstone, in a fresh source."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.base.key_pages import key_pages
from weir.base.table import BaseTable
from weir.lsm.base_rows import base_rows_with_keys
from weir.lsm.damage import reading
from weir.lsm.generation import Generation
from weir.lsm.keys import KeyMatcher, KeySet
from weir.lsm.newest import FreshSource

__all__ = ["FindRows", "superseded_rows"]

RowIds = npt.NDArray[np.uint64]
FindRows = Callable[[Sequence[pa.Array]], Sequence[RowIds] | None]
"""Finds the rows of the base table that have a key of each of some sets; None if it cannot."""

_NO_ROWS: RowIds = np.zeros(0, dtype=np.uint64)


def _rows_of_each(base: BaseTable, key_sets: Sequence[KeySet], find: FindRows | None) -> Iterator[RowIds]:
    """Yield the ids of the base table's rows that have one of the keys of each set."""
    if not key_sets:
        return
    known = None if find is None else find([one.columns[0] for one in key_sets])
    if known is not None:
        yield from known
        return
    keys = KeySet.concat(key_sets)
    ends = np.cumsum([len(one) for one in key_sets])
    with reading(f"base table version {base.version}", base.uri):
        pages = key_pages(base)
        found = None if pages is None else pages.find(keys.columns[0])
    if found is not None:
        # Rows deleted since the index was made may be among them, which does no harm here.
        which, addresses = found
        if len(key_sets) == 1:
            yield _ascending(addresses)
            return
        set_of_match = ends.searchsorted(which, side="right").astype(np.min_scalar_type(len(ends)))
        counts = np.bincount(set_of_match, minlength=len(key_sets))
        # NumPy sorts short integers digit by digit.
        grouped = addresses[np.argsort(set_of_match, kind="stable")]
        yield from (_ascending(part) for part in np.split(grouped, np.cumsum(counts)[:-1]))
        return
    which, rows = base_rows_with_keys(base, keys)
    row_ids = _NO_ROWS if rows is None else rows.column("_rowid").to_numpy().astype(np.uint64)
    numbers = KeyMatcher(keys).number_of_row
    number_of_match = numbers[which]
    for own in np.split(numbers, ends[:-1]):
        mine = np.zeros(int(numbers.max()) + 1, dtype=bool)
        mine[own] = True
        yield row_ids[mine[number_of_match]]


def superseded_rows(
    namespace: str, base: BaseTable, sources: Sequence[FreshSource], find: FindRows | None = None
) -> RowIds:
    """Return the row ids of the base table's rows that some source has a newer version of, ascending.

    What one immutable source supersedes in one version of the base table is found once per process.

    Parameters
    ----------
    namespace : str
        Identity of the table, for caches.
    base : BaseTable
        The base table, pinned at a version.
    sources : sequence of FreshSource
        The sources.
    find : callable, optional
        Asked before the key index, which is not read then.
    """
    cache = base.engine.cache
    found: list[RowIds] = []
    missing: list[FreshSource] = []
    for source in sources:
        known = cache.get(_key(namespace, base, source))
        if known is None:
            missing.append(source)
        else:
            found.append(known)
    missing = [source for source in missing if len(source.keys)]
    key_sets = [_keys(source) for source in missing]
    for source, part in zip(missing, _rows_of_each(base, key_sets, find), strict=True):
        cache.put(_key(namespace, base, source), part, part.nbytes, base.lifetime)
        found.append(part)
    return _ascending(np.concatenate(found)) if found else _NO_ROWS


def _keys(source: FreshSource) -> KeySet:
    """Return the keys of a source: each once where they may repeat often."""
    if isinstance(source, Generation):
        return source.keys
    index = source.index
    return index.keys.take(index.rows)


def _ascending(row_ids: RowIds) -> RowIds:
    """Return row ids in order, each once.

    Most often there are few ascending runs, those of fragments or sources, which a stable sort merges.
    NumPy's own ``unique`` uses a hash table since 2.3, which takes ten times as long here.
    """
    if np.all(row_ids[1:] > row_ids[:-1]):
        # Where rows are stored in the order of their keys.
        return row_ids
    ordered = np.sort(row_ids, kind="stable")
    first = np.ones(len(ordered), dtype=np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]


def _key(namespace: str, base: BaseTable, source: FreshSource) -> Hashable:
    return ("superseded", namespace, base.version_key, source.identity)

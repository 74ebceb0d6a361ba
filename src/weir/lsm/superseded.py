"""Which rows of the base table have a newer version, or a tombstone, in a fresh source."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.base.key_pages import KeyPages, key_pages
from weir.base.table import BaseTable
from weir.lsm.damage import reading
from weir.lsm.keys import KeyMatcher, KeySet
from weir.lsm.literals import key_filter
from weir.lsm.newest import FreshSource

__all__ = ["base_rows_with_keys", "superseded_rows"]

RowIds = npt.NDArray[np.uint64]

_MAX_KEYS_BY_INDEX = 512
_SCAN_ROWS = 1_000_000
_NO_ROWS: RowIds = np.zeros(0, dtype=np.uint64)


def base_rows_with_keys(
    base: BaseTable, keys: KeySet, columns: Sequence[str] | None = None
) -> tuple[npt.NDArray[np.int64], pa.Table | None]:
    """Find the base table's rows that have one of some keys.

    Parameters
    ----------
    base : BaseTable
        The base table, pinned at a version.
    keys : KeySet
        The keys; repeats are allowed.
    columns : sequence of str, optional
        Columns of the result besides ``_rowid``. Default: none.

    Returns
    -------
    which : ndarray of int64
        For every row found, the offset of (one of) the equal keys in ``keys``.
    rows : Table or None
        ``columns`` and ``_rowid`` of the rows found; None if there are none.
    """
    with reading(f"base table version {base.version}", base.uri):
        return _find(base, keys, list(columns or ()))


def _find(base: BaseTable, keys: KeySet, wanted: list[str]) -> tuple[npt.NDArray[np.int64], pa.Table | None]:
    names = base.primary_key
    pages = key_pages(base)
    if pages is not None:
        return _take(pages, *pages.find(keys.columns[0]), wanted)
    read = list(dict.fromkeys([*names, *wanted]))
    matcher = KeyMatcher(keys)
    first_row = np.zeros(matcher.count, dtype=np.int64)
    first_row[matcher.number_of_row[::-1]] = np.arange(len(keys) - 1, -1, -1)
    condition = key_filter(names, keys.columns) if matcher.count <= _MAX_KEYS_BY_INDEX else None
    narrow = condition is not None or read == list(names)
    scanner = base.dataset.scanner(
        columns=read if narrow else list(names),
        filter=condition,
        with_row_id=True,
        batch_size=None if condition else _SCAN_ROWS,
    )
    which, parts = [], []
    for batch in scanner.to_batches():
        rows, numbers = matcher.match([batch.column(name) for name in names])
        if rows.size:
            which.append(first_row[numbers])
            parts.append(batch.take(pa.array(rows)))
    if not parts:
        return np.zeros(0, dtype=np.int64), None
    found = pa.Table.from_batches(parts)
    if not narrow:
        row_ids = found.column("_rowid")
        found = base.dataset._take_rows(row_ids.to_pylist(), columns=wanted)
        found = found.append_column("_rowid", row_ids)
    return np.concatenate(which), found.select([*wanted, "_rowid"])


def _take(
    pages: KeyPages, which: npt.NDArray[np.int64], addresses: RowIds, columns: list[str]
) -> tuple[npt.NDArray[np.int64], pa.Table | None]:
    """Read the rows at some addresses, without those that have been deleted."""
    if not addresses.size:
        return which, None
    if addresses.size > 1:
        # The library would put them in order itself, and the rows back after it.
        order = np.argsort(addresses)
        which, addresses = which[order], addresses[order]
    rows = pages.take(addresses, [*columns, "_rowid"])
    if rows.num_rows == len(addresses):
        return which, rows
    left = rows.column("_rowid").to_numpy()
    return which[np.searchsorted(addresses, left)], rows


def _rows_of_each(base: BaseTable, key_sets: Sequence[KeySet]) -> Iterator[RowIds]:
    """Yield the ids of the base table's rows that have one of the keys of each set."""
    if not key_sets:
        return
    keys = KeySet.concat(key_sets)
    ends = np.cumsum([len(one) for one in key_sets])
    with reading(f"base table version {base.version}", base.uri):
        pages = key_pages(base)
        found = None if pages is None else pages.find(keys.columns[0])
    if found is not None:
        # Rows deleted since the index was made may be among them, which does no harm here.
        which, addresses = found
        set_of_match = ends.searchsorted(which, side="right")
        yield from (np.unique(addresses[set_of_match == at]) for at in range(len(key_sets)))
        return
    which, rows = base_rows_with_keys(base, keys)
    row_ids = _NO_ROWS if rows is None else rows.column("_rowid").to_numpy().astype(np.uint64)
    numbers = KeyMatcher(keys).number_of_row
    number_of_match = numbers[which]
    for own in np.split(numbers, ends[:-1]):
        mine = np.zeros(int(numbers.max()) + 1, dtype=bool)
        mine[own] = True
        yield row_ids[mine[number_of_match]]


def superseded_rows(namespace: str, base: BaseTable, sources: Sequence[FreshSource]) -> RowIds:
    """Return the row ids of the base table's rows that some source has a newer version of, ascending.

    What one immutable source supersedes in one version of the base table is found once per process.
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
    missing = [source for source in missing if len(source.index.rows)]
    key_sets = [source.index.keys.take(source.index.rows) for source in missing]
    for source, part in zip(missing, _rows_of_each(base, key_sets), strict=True):
        cache.put(_key(namespace, base, source), part, part.nbytes)
        found.append(part)
    return np.unique(np.concatenate(found)) if found else np.zeros(0, dtype=np.uint64)


def _key(namespace: str, base: BaseTable, source: FreshSource) -> Hashable:
    return ("superseded", namespace, base.version_key, source.identity)

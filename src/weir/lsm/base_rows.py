"""Finding rows of the base table by key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.base.key_pages import KeyPages, key_pages
from weir.base.table import BaseTable
from weir.engine.cancellation import check_cancelled
from weir.lsm.damage import name_failure
from weir.lsm.keys import KeyMatcher, KeySet
from weir.lsm.literals import key_filter

__all__ = ["base_rows_with_keys"]

RowIds = npt.NDArray[np.uint64]

_ROW_ID = "_rowid"
_MAX_KEYS_BY_INDEX = 512
_SCAN_ROWS = 1_000_000


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
        Columns of the result. Default: the row id of each row, as ``_rowid``.

    Returns
    -------
    which : ndarray of int64
        For every row found, the offset of (one of) the equal keys in ``keys``.
    rows : Table or None
        The columns of the rows found; None if there are none.
    """
    wanted = list(columns or ())
    base.refuse_damaged_deletions()
    check_cancelled()
    try:
        if base.columns is None or not wanted:
            return _find(base, keys, wanted)
        made = base.columns.select(wanted)
        which, rows = _find(base, keys, made.source_names)
        return which, None if rows is None else made.table(rows, where=base.uri)
    except BaseException as error:
        name_failure(error, f"base table version {base.version}", base.uri)
        raise


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
        found = base.dataset._take_rows(found.column(_ROW_ID).to_pylist(), columns=wanted)
    return np.concatenate(which), found.select(wanted or [_ROW_ID])


def _take(
    pages: KeyPages, which: npt.NDArray[np.int64], addresses: RowIds, columns: list[str]
) -> tuple[npt.NDArray[np.int64], pa.Table | None]:
    """Read the rows at some addresses, without deleted ones."""
    if not addresses.size:
        return which, None
    if addresses.size > 1:
        # The library would put them in order itself, and the rows back after it.
        order = np.argsort(addresses)
        which, addresses = which[order], addresses[order]
    rows, left = pages.take(addresses, columns)
    if len(left) < len(addresses):
        which = which[np.searchsorted(addresses, left)]
    return which, rows if columns else pa.table({_ROW_ID: left})

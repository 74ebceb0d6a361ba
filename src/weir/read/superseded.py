"""Which rows of the base table have a newer version, or a tombstone, in a fresh source."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.base.table import BaseTable
from weir.cache import process_cache
from weir.read.damage import reading
from weir.read.keys import KeyMatcher, KeySet
from weir.read.literals import key_filter
from weir.read.overlay import FreshSource

__all__ = ["base_rows_with_keys", "superseded_rows"]

RowIds = npt.NDArray[np.uint64]

_MAX_KEYS_BY_INDEX = 512
_SCAN_ROWS = 1_000_000


def base_rows_with_keys(
    base: BaseTable, keys: KeySet, columns: Sequence[str] | None = None
) -> tuple[npt.NDArray[np.int64], pa.Table]:
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
    rows : Table
        ``columns`` and ``_rowid`` of the rows found.
    """
    with reading(f"base table version {base.version}", base.uri):
        return _find(base, keys, list(columns or ()))


def _find(base: BaseTable, keys: KeySet, wanted: list[str]) -> tuple[npt.NDArray[np.int64], pa.Table]:
    names = base.primary_key
    read = list(dict.fromkeys([*names, *wanted]))
    if len(keys) == 1 and len(names) == 1 and (only := key_filter(names, keys.columns)) is not None:
        # The filter says exactly what the matcher would.
        found = base.dataset.scanner(columns=wanted, filter=only, with_row_id=True).to_table()
        return np.zeros(found.num_rows, dtype=np.int64), found
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
        empty = pa.schema([*(base.schema.field(name) for name in wanted), ("_rowid", pa.uint64())])
        return np.zeros(0, dtype=np.int64), empty.empty_table()
    found = pa.Table.from_batches(parts)
    if not narrow:
        row_ids = found.column("_rowid")
        found = base.dataset._take_rows(row_ids.to_pylist(), columns=wanted)
        found = found.append_column("_rowid", row_ids)
    return np.concatenate(which), found.select([*wanted, "_rowid"])


def superseded_rows(namespace: str, base: BaseTable, sources: Sequence[FreshSource]) -> RowIds:
    """Return the row ids of the base table's rows that some source has a newer version of, ascending.

    What one immutable source supersedes in one version of the base table is found once per process.
    """
    cache = process_cache()
    found: list[RowIds] = []
    missing: list[FreshSource] = []
    for source in sources:
        known = cache.get(_key(namespace, base, source))
        if known is None:
            missing.append(source)
        else:
            found.append(known)
    missing = [source for source in missing if len(source.index.rows)]
    if missing:
        key_sets = [source.index.keys.take(source.index.rows) for source in missing]
        keys = KeySet.concat(key_sets)
        which, rows = base_rows_with_keys(base, keys)
        row_ids = rows.column("_rowid").to_numpy().astype(np.uint64)
        numbers = KeyMatcher(keys).number_of_row
        number_of_match = numbers[which]
        ends = np.cumsum([len(one) for one in key_sets])
        for source, own in zip(missing, np.split(numbers, ends[:-1]), strict=True):
            mine = np.zeros(int(numbers.max()) + 1, dtype=bool)
            mine[own] = True
            part = row_ids[mine[number_of_match]]
            cache.put(_key(namespace, base, source), part, part.nbytes)
            found.append(part)
    return np.unique(np.concatenate(found)) if found else np.zeros(0, dtype=np.uint64)


def _key(namespace: str, base: BaseTable, source: FreshSource) -> Hashable:
    return ("superseded", namespace, base.version, source.identity)

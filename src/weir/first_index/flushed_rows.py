"""The rows of a MemWAL: from its WAL, and as the file that a flush writes.

The first MemWAL index says that a MemTable has been flushed, and has no place for where to. Weir writes the
newest row of every key as one entry beside the WAL, and notes the directory as the location of the MemTable,
which is where these rows are from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa

from weir.base.table import BaseTable
from weir.errors import ObjectExistsError
from weir.first_index.wal import RegionWal, WalReader, read_entry
from weir.format.first_index_details import MemWal
from weir.format.newest import newest_rows

__all__ = ["flushed_location", "newest_of", "read_entries", "read_flushed", "write_flushed"]

_SUFFIX = "-rows"


def flushed_location(mem_wal: MemWal) -> str:
    """Return where a flush writes the rows of a MemWAL.

    Examples
    --------
    >>> from weir.format.first_index_details import MemWalState
    >>> from weir.format.u64_segment import U64Segment
    >>> flushed_location(MemWal("eu", 3, "", "wals/eu-3", U64Segment(), MemWalState.SEALED, "", 1))
    'wals/eu-3-rows'
    """
    return mem_wal.wal_location.rstrip("/") + _SUFFIX


def read_entries(
    reader: WalReader, base: BaseTable, mem_wal: MemWal, known: Mapping[int, pa.Table]
) -> dict[int, pa.Table]:
    """Return the rows of every entry of a MemWAL by its number, ascending.

    Parameters
    ----------
    reader : WalReader
        Reads its WAL.
    base : BaseTable
        The table, whose columns the rows get.
    mem_wal : MemWal
        The MemWAL.
    known : mapping of int to Table
        Those that are in memory and need not be read.

    Raises
    ------
    CorruptionError
        An entry is missing or damaged.
    """
    found = {}
    for entry in mem_wal.entries.ascending():
        if entry in known:
            found[entry] = known[entry]
            continue
        found[entry] = read_entry(reader, mem_wal, entry, base.row_schema, base.primary_key)
    return found


def newest_of(base: BaseTable, entries: Iterable[pa.Table]) -> pa.Table:
    """Return the newest row of every key of entries, which are in their order; deletes among them."""
    rows = pa.concat_tables([base.row_schema.empty_table(), *entries])
    return rows.take(newest_rows([rows.column(name) for name in base.primary_key]))


def write_flushed(wal: RegionWal, mem_wal: MemWal, rows: pa.Table) -> None:
    """Write the newest rows of a MemWAL that no longer takes entries."""
    # Who has done so before wrote the same.
    with suppress(ObjectExistsError):
        wal.append(_flushed(mem_wal), 0, rows)


def read_flushed(wal: RegionWal, base: BaseTable, mem_wal: MemWal) -> pa.Table | None:
    """Return the rows that a flush has written; None if the MemWAL was flushed by another program.

    Raises
    ------
    CorruptionError
        They are missing or damaged.
    """
    if mem_wal.mem_table_location != flushed_location(mem_wal):
        return None
    return read_entry(wal, _flushed(mem_wal), 0, base.row_schema, base.primary_key)


def _flushed(mem_wal: MemWal) -> MemWal:
    return replace(mem_wal, wal_location=flushed_location(mem_wal))

"""Merging a flushed MemWAL into the base table: rows and state in one version of the table."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from weir.base.details_commit import wait_for_turn
from weir.base.durability import sync_objects
from weir.base.library_errors import LIBRARY_ERRORS, storage_failure
from weir.base.publish import publish_first_details
from weir.base.row_commit import (
    RowChange,
    deletion_files,
    fragment_files,
    fragment_sizes,
    row_operation,
    write_fragment_files,
)
from weir.base.table import BaseTable
from weir.engine import failpoint
from weir.first_index.commit import MAX_ATTEMPTS, newest_manifest, regions_to_change, too_many_races
from weir.first_index.flushed_rows import newest_of, read_entries, read_flushed
from weir.first_index.protocol import merged, owned
from weir.first_index.view import base_of, base_only
from weir.first_index.wal import RegionWal
from weir.format.first_index_details import FirstIndexDetails, MemWal
from weir.format.wal_entry import TOMBSTONE
from weir.merge.merged_keys import write_keys
from weir.merge.replaced_rows import delete_replaced_rows, replaced_rows_tasks
from weir.storage.interface import ObjectStore

__all__ = ["merge_mem_wal"]


@dataclass(frozen=True, slots=True)
class _Written:
    """The files of a version that does not exist yet."""

    change: RowChange
    files: tuple[str, ...]


def merge_mem_wal(
    store: ObjectStore, region: str, generation: int, owner: str
) -> tuple[int, FirstIndexDetails]:
    """Put the rows of a flushed MemWAL into the base table, exactly once.

    Returns
    -------
    int, FirstIndexDetails
        The version that contains them, and its state of the regions.

    Raises
    ------
    FencedError
        The MemWAL belongs to another owner, or the table has been upgraded. Nothing is changed.
    InputError
        It is not flushed, or an older one of the region is not merged. Nothing is changed.
    CorruptionError
        Its rows cannot be read. Nothing is changed.
    ConflictError
        Others committed during every attempt.
    """
    for attempt in range(MAX_ATTEMPTS):
        wait_for_turn(attempt)
        manifest = newest_manifest(store)
        details = regions_to_change(store, manifest)
        after = merged(details, region, generation, owner, version=manifest.version + 1)
        view = base_only(store)
        if view is None or view.version != manifest.version:
            continue
        base = base_of(view)
        rows = _rows(store, base, owned(details, region, generation, owner))
        written = _write(store, base, rows)
        sync_objects(store, written.files)
        failpoint.reach("region.before_merge")
        operation = row_operation(manifest, written.change) if written.files else None
        if publish_first_details(store, manifest, after, operation) is not None:
            failpoint.reach("region.after_merge")
            return manifest.version + 1, after
        store.delete(written.files)
    raise too_many_races(store)


def _rows(store: ObjectStore, base: BaseTable, mem_wal: MemWal) -> pa.Table:
    wal = RegionWal(store)
    rows = read_flushed(wal, base, mem_wal)
    return newest_of(base, read_entries(wal, base, mem_wal, {}).values()) if rows is None else rows


def _write(store: ObjectStore, base: BaseTable, rows: pa.Table) -> _Written:
    gone = rows.column(TOMBSTONE)
    upserts = rows.filter(pc.invert(gone)).drop_columns([TOMBSTONE])
    upserts = pa.Table.from_arrays(upserts.columns, schema=base.schema)
    key = list(base.primary_key)
    try:
        new = write_fragment_files(base.dataset, base.schema, upserts.to_batches()) if len(upserts) else ()
    except LIBRARY_ERRORS as error:
        raise storage_failure(error, "writing merged rows", where=store.uri) from error
    keys = write_keys(store, upserts.select(key), rows.filter(gone).select(key))
    tasks = replaced_rows_tasks(base, list(fragment_sizes(base.dataset)), [keys]) if keys.rows else ()
    left = [one for task in tasks for one in delete_replaced_rows(task).left]
    if keys.path is not None:
        store.delete([keys.path])
    files = (*fragment_files(new), *deletion_files(left))
    return _Written(RowChange(left, new), files)

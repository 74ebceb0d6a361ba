"""Marking the primary key of a table with regions: many were written before there was a mark for it."""

from __future__ import annotations

import json

import lance
from lance.dataset import LanceOperation
from lance.schema import LanceSchema

from weir.base.create import check_stored_keys, key_to_adopt
from weir.base.dataset import open_dataset, primary_key_of
from weir.base.dataset_fields import row_schema
from weir.base.details_commit import wait_for_turn
from weir.base.manifest import TableManifest
from weir.base.publish import publish_first_details
from weir.base.schema import key_metadata
from weir.base.stored_types import check_stored_types
from weir.engine import failpoint
from weir.first_index.commit import MAX_ATTEMPTS, newest_manifest, too_many_races
from weir.first_index.regions import unmerged
from weir.first_index.view import regions_of
from weir.first_index.wal import RegionWal, WalReader, read_entry
from weir.format.first_index_details import FirstIndexDetails
from weir.format.table_fields import NO_PARENT, TableField, decode_fields, encode_fields
from weir.storage.interface import ObjectStore

__all__ = ["mark_primary_key"]


def mark_primary_key(
    store: ObjectStore, key: tuple[str, ...], *, reader: WalReader | None = None, dry_run: bool = False
) -> int | None:
    """Make columns the primary key of a table with regions, in a version that has the same rows and regions.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    key : tuple of str
        The columns, in key order.
    reader : WalReader, optional
        Reads the WALs. Default: the form that Weir writes.
    dry_run : bool, default False
        Whether to check everything and write nothing.

    Returns
    -------
    int or None
        How many rows the MemWALs have that are not merged; None if there was nothing to do: it has that key,
        or no regions.

    Raises
    ------
    SchemaError
        It has another key, or the columns cannot be one.
    KeyValueError
        A key of the base table is null or there twice.
    CorruptionError
        An entry that is listed cannot be read, or a row of it has no key.
    ConflictError
        Others committed during every attempt.
    """
    for attempt in range(MAX_ATTEMPTS):
        wait_for_turn(attempt)
        manifest = newest_manifest(store)
        details = regions_of(manifest)
        if details is None:
            return None
        dataset = open_dataset(store)
        if dataset.version != manifest.version:
            continue
        check_stored_types(dataset)
        key = key_to_adopt(store, dataset, key)
        if primary_key_of(dataset):
            return None
        check_stored_keys(store, dataset, key)
        rows = _check_entries(reader or RegionWal(store), dataset, details, key)
        if dry_run or _publish(store, manifest, dataset, details, key):
            return rows
    raise too_many_races(store)


def _check_entries(
    reader: WalReader, dataset: lance.LanceDataset, details: FirstIndexDetails, key: tuple[str, ...]
) -> int:
    schema = row_schema(dataset)
    count = 0
    for mem_wal in unmerged(details):
        for entry in mem_wal.entries.ascending():
            rows = read_entry(reader, mem_wal, entry, schema, key)
            count += rows.num_rows
    return count


def _publish(
    store: ObjectStore,
    manifest: TableManifest,
    dataset: lance.LanceDataset,
    details: FirstIndexDetails,
    key: tuple[str, ...],
) -> bool:
    """Publish the version after ``manifest`` with the key marked, unless another process has."""
    metadata = {name.decode(): list(value) for name, value in (dataset.schema.metadata or {}).items()}
    fields = [_marked(field, key) for field in decode_fields(manifest.data, where=manifest.where)]
    schema = LanceSchema._from_protos(json.dumps(metadata), *encode_fields(fields))
    failpoint.reach("upgrade.before_key")
    done = publish_first_details(store, manifest, details, LanceOperation.Project(schema))
    failpoint.reach("upgrade.after_key")
    return done is not None


def _marked(field: TableField, key: tuple[str, ...]) -> TableField:
    if field.parent_id != NO_PARENT or field.name not in key:
        return field
    position = key.index(field.name)
    return field.as_key(position + 1 if len(key) > 1 else 0, key_metadata(position, len(key)))

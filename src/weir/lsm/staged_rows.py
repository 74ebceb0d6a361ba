"""The rows of generations that were published without log entries, when rows are read in log order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from uuid import UUID

import lance
import pyarrow as pa

from weir.base.dataset import library_options
from weir.base.dataset_fields import generation_columns
from weir.errors import CorruptionError, ObjectNotFoundError, SnapshotExpiredError
from weir.format import generation_catalog, layout
from weir.format.generation_catalog import GenerationCatalog
from weir.log.manifest_store import read_latest_manifest
from weir.log.wal import PositionedEntry
from weir.lsm.damage import reading
from weir.storage.interface import ObjectStore

__all__ = ["Gone", "staged_rows", "with_published_rows"]

Gone = Callable[[ObjectStore, UUID, int], SnapshotExpiredError]
"""Returns the error for missing data at a position of a shard's log."""


def with_published_rows(
    store: ObjectStore, shard_id: UUID, schema: pa.Schema, item: PositionedEntry, gone: Gone
) -> PositionedEntry:
    """Return a log entry with the rows of the generations that it names; itself if it names none.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    shard_id : UUID
        The shard.
    schema : Schema
        Columns that the rows are given: the table's, with their field ids, and ``_tombstone``.
    item : PositionedEntry
        The entry.
    gone : callable
        Makes the error if a generation has been removed.

    Raises
    ------
    SnapshotExpiredError
        If garbage collection has removed a generation.
    CorruptionError
        If one is damaged.
    """
    batches: list[pa.RecordBatch] = []
    for name in item.entry.header.published:
        path = layout.generation_path(shard_id, name)
        if not store.list_directories(path):
            raise gone(store, shard_id, item.position)
        with _unless_collected(store, shard_id, item.position, path, gone):
            batches += staged_rows(store, shard_id, name, schema)
    if not batches:
        return item
    return PositionedEntry(item.position, replace(item.entry, schema=schema, batches=tuple(batches)))


def staged_rows(store: ObjectStore, shard_id: UUID, name: str, schema: pa.Schema) -> list[pa.RecordBatch]:
    """Return the rows of a generation in their order, whether a manifest lists it or not.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    shard_id : UUID
        The shard it is in.
    name : str
        Its directory there.
    schema : Schema
        Columns that the rows are given: the table's, with their field ids, and ``_tombstone``.

    Raises
    ------
    CorruptionError
        If it is damaged, or not there.
    """
    path = layout.generation_path(shard_id, name)
    where = f"{store.uri}/{path}"
    with reading(f"generation {name!r}", where):
        dataset = lance.dataset(where, storage_options=library_options(store))
        columns = generation_columns(dataset, schema, partial(_catalog, store, path))
        found = dataset.scanner(columns=columns.source_names, scan_in_order=True).to_batches()
        return [columns.apply(batch, where=where) for batch in found]


def _catalog(store: ObjectStore, path: str) -> GenerationCatalog | None:
    path = f"{path}/{layout.CATALOG}"
    try:
        return generation_catalog.decode(store.get(path), where=f"{store.uri}/{path}")
    except ObjectNotFoundError:
        return None


@contextmanager
def _unless_collected(
    store: ObjectStore, shard_id: UUID, position: int, path: str, gone: Gone
) -> Iterator[None]:
    """Distinguish a generation collected during the read from a damaged one."""
    try:
        yield
    except CorruptionError as error:
        newest = read_latest_manifest(store, shard_id)
        name = path.rsplit("/", 1)[-1]
        if newest is not None and name not in {one.path for one in newest.flushed_generations}:
            raise gone(store, shard_id, position) from error
        raise

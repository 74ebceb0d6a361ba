"""The rows of generations that were published without being in the log, where the change feed needs them."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import lance
import pyarrow as pa

from weir.base.table import library_options
from weir.format import layout
from weir.format.conform import conform_batch
from weir.read.damage import reading
from weir.read.expiry import changes_gone
from weir.shard.wal import PositionedEntry
from weir.storage.interface import ObjectStore

__all__ = ["with_published_rows"]


def with_published_rows(
    store: ObjectStore, shard_id: UUID, schema: pa.Schema, item: PositionedEntry
) -> PositionedEntry:
    """Return a log entry with the rows of the generations that it names; itself if it names none.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    shard_id : UUID
        The shard.
    schema : Schema
        Schema of the rows: the table's columns and ``_tombstone``.
    item : PositionedEntry
        The entry.

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
            raise changes_gone(store, shard_id, item.position)
        uri = f"{store.uri}/{path}"
        with reading(f"generation {name!r}", uri):
            dataset = lance.dataset(uri, storage_options=library_options(store))
            known = [field.name for field in schema if field.name in dataset.schema.names]
            batches += [
                conform_batch(batch, schema, where=uri)
                for batch in dataset.scanner(columns=known, scan_in_order=True).to_batches()
            ]
    return PositionedEntry(item.position, replace(item.entry, batches=tuple(batches))) if batches else item

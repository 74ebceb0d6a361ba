"""The columns that the rows of a generation were stored with, if the generation itself does not say.

Rows written by the released library have no mark for a column that plain Lance added and no Weir writer has
seen (:mod:`weir.format.field_births`): the time they were stored decides. The library flushes rows that may
have been in its log for long, and a column with the same id, name and type may have been added in between. So
the times of their log entries are used, as far as these still exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from uuid import UUID

import pyarrow as pa

from weir.base.dataset_fields import generation_written
from weir.errors import ObjectNotFoundError, SchemaError
from weir.format import layout, wal_entry
from weir.format.field_births import BeforeMarks, births_of, microseconds, stored_at
from weir.format.field_ids import field_id
from weir.format.shard_manifest import FlushedGeneration
from weir.format.wal_entry import WalEntry
from weir.storage.interface import ObjectMeta, ObjectStore

__all__ = ["stored_columns"]


def stored_columns(
    store: ObjectStore, shard_id: UUID, flushed: FlushedGeneration, own: pa.Schema, before: BeforeMarks
) -> pa.Schema:
    """Return the columns of a generation with the time at which it was stored.

    Without columns that were gone when a column of the table with their id was added, if no row was stored
    later.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    shard_id : UUID
        The shard.
    flushed : FlushedGeneration
        The generation.
    own : Schema
        Its columns, with field ids.
    before : mapping of int to Unmarked
        The known history of the table's columns before they were marked.

    Raises
    ------
    SchemaError
        Some rows were stored before a column with the same id was added, and some later: they cannot be
        distinguished.
    StorageError
        The store failed.
    """
    path = layout.generation_path(shard_id, flushed.path)
    written = generation_written(store, path)
    if written is None:
        return own
    came = {number: then.since for number, then in before.items() if then.since is not None}
    # What was stored before then as a whole is no value of theirs anyway.
    doubtful = {
        number: came[number]
        for number, birth in births_of(own).items()
        if birth is None and came.get(number, inf) <= microseconds(written)
    }
    earlier = _stored_earlier(store, shard_id, flushed.generation, doubtful) if doubtful else set()
    if not earlier:
        return stored_at(own, written)
    left = [column for column in own if field_id(column) not in earlier]
    mixed = earlier & _stored_later(store, shard_id, flushed.generation, {one: came[one] for one in earlier})
    for column in own:
        ids = set(births_of([column]))
        if not ids.isdisjoint(mixed) or (column in left and not ids.isdisjoint(earlier)):
            raise SchemaError(
                f"generation {flushed.generation} of shard {shard_id} has values of column {column.name!r} "
                "from before it, or a part of it, was dropped and added again by plain Lance, and others",
                where=f"{store.uri}/{path}",
                hint="They cannot be told apart. Drop the column, add it again through Weir's alter, and "
                "write its values again: no other value is lost",
            )
    return stored_at(pa.schema(left, own.metadata), written)


def _stored_earlier(store: ObjectStore, shard_id: UUID, generation: int, came: Mapping[int, int]) -> set[int]:
    """Return the fields that an entry of a generation has which was stored before one of their id came."""
    found: set[int] = set()
    last = max(came.values())
    for meta in reversed([one for one in _log(store, shard_id) if microseconds(one.last_modified) < last]):
        entry = _entry(store, meta)
        if entry is None or entry.header.generation is None:
            continue
        if entry.header.generation < generation:
            break
        if entry.header.generation == generation:
            unmarked, time = _unmarked(entry), microseconds(meta.last_modified)
            found |= {number for number, since in came.items() if number in unmarked and time < since}
    return found


def _stored_later(store: ObjectStore, shard_id: UUID, generation: int, came: Mapping[int, int]) -> set[int]:
    """Return the fields that an entry of a generation has which was stored after one of their id came."""
    found: set[int] = set()
    for meta in _log(store, shard_id):
        time = microseconds(meta.last_modified)
        if time < min(came.values()) or found == came.keys():
            continue
        entry = _entry(store, meta)
        if entry is not None and entry.header.generation == generation:
            unmarked = _unmarked(entry)
            found |= {number for number, since in came.items() if number in unmarked and time >= since}
    return found


def _log(store: ObjectStore, shard_id: UUID) -> list[ObjectMeta]:
    """Return the existing entries of a shard's log, in order."""
    return sorted(
        store.list(layout.wal_directory(shard_id)),
        key=lambda meta: layout.parse_wal_name(meta.path.rpartition("/")[2]),
    )


def _entry(store: ObjectStore, meta: ObjectMeta) -> WalEntry | None:
    """Return a log entry with rows; None for one without, and where it has been collected since."""
    try:
        data = store.get(meta.path)
    except ObjectNotFoundError:
        return None
    entry = wal_entry.decode(data, where=f"{store.uri}/{meta.path}")
    return entry if entry.num_rows else None


def _unmarked(entry: WalEntry) -> set[int]:
    return {number for number, birth in births_of(entry.schema).items() if birth is None}

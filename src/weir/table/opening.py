"""Making, adopting and opening a table: its place, its base table, and what follows from its shard spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import pyarrow as pa

from weir.base.append_only import chosen_append_only
from weir.base.column_marks import births_to_mark
from weir.base.create import adopt_base_table, create_base_table, refuse_table
from weir.base.dataset import open_dataset, primary_key_of
from weir.base.dataset_fields import marks_of
from weir.base.expiry import chosen_expiry
from weir.base.merge_engine import chosen_engine
from weir.base.schema import FEED_NAMES, all_field_ids, field_ids, table_schema
from weir.base.stored_types import unreadable_by_library
from weir.base.table import BaseTable
from weir.base.writer_defaults import MAX_MEMTABLE_AGE
from weir.config import WriterOptions
from weir.engine.context import EngineContext, default_context
from weir.engine.logs import get_logger
from weir.errors import OptionError, SchemaError, UriError
from weir.format.field_births import FIRST
from weir.format.merge_engine import MergeEngine
from weir.log.table_sharding import newest_spec
from weir.maintenance.leftovers import refuse_leftovers, set_leftovers_aside
from weir.sharding.shard_by import ShardBy, unsharded
from weir.sharding.shard_ids import RULE, VALUES
from weir.sharding.spec import build_spec, describe_spec, library_note
from weir.storage.interface import ObjectStore
from weir.storage.metered import MeteredStore
from weir.storage.open import open_store

__all__ = ["adopt_table", "as_names", "create_table", "shard_fields", "table_store"]

_log = get_logger(__name__)


def table_store(
    uri: str | Path,
    storage_options: Mapping[str, str] | None,
    fsync: bool,
    engine: EngineContext | None = None,
) -> ObjectStore:
    """Return the store of a table.

    Raises
    ------
    UriError
        If a table cannot be there.
    """
    if str(uri).startswith("memory:"):
        raise UriError(
            "a table cannot be kept in memory: Weir and Lance do not share it",
            where=str(uri),
            hint="Use a temporary directory",
        )
    return MeteredStore(open_store(uri, storage_options, fsync=fsync), engine or default_context())


def create_table(
    store: ObjectStore,
    schema: pa.Schema,
    primary_key: str | Sequence[str] | None,
    shard_by: ShardBy | Sequence[ShardBy] | None,
    merge_engine: MergeEngine | str | None = None,
    sequence_by: str | None = None,
    *,
    max_memtable_age: float | None = None,
    dedup: bool = True,
    sort_by: str | Sequence[str] = (),
    expire_after: timedelta | None = None,
    expire_by: str | None = None,
) -> BaseTable:
    """Create a table and return its base table. See :func:`weir.create`."""
    key = _key_of_new(primary_key)
    append = chosen_append_only(key, dedup, sort_by, schema)
    if append is not None:
        if merge_engine is not None or sequence_by is not None:
            raise OptionError(
                "a merge engine combines the versions of a key, and this table is append-only",
                where="sequence_by" if merge_engine is None else "merge_engine",
                hint="Leave it out, or give the table a primary key",
            )
        key = ()
    engine = chosen_engine(merge_engine, sequence_by, schema, key)
    expiry = chosen_expiry(expire_after, expire_by, schema, engine)
    required = None if append is None else append.unique
    # Rows that are only added never change their shard.
    stays = key if append is None else tuple(schema.names)
    # As it is stored, where a UUID of the key is its bytes.
    stored = table_schema(schema, key, required=required)
    ids = field_ids(stored)
    births = dict.fromkeys(ids.values(), FIRST)
    spec = build_spec(shard_fields(shard_by), stored, stays, ids, births=births)
    defaults = {RULE: VALUES}
    if max_memtable_age is not None:
        WriterOptions.from_keywords(max_memtable_age=max_memtable_age)
        defaults[MAX_MEMTABLE_AGE] = repr(float(max_memtable_age))
    return _told(
        create_base_table(
            store,
            schema,
            key,
            shard_specs=(spec,),
            writer_defaults=defaults,
            merge_engine=engine,
            append=append,
            expiry=expiry,
        )
    )


def adopt_table(
    store: ObjectStore,
    primary_key: str | Sequence[str] | None,
    shard_by: ShardBy | Sequence[ShardBy] | None,
    *,
    set_aside: bool = False,
) -> BaseTable:
    """Turn a Lance dataset into a table and return its base table. See :func:`weir.adopt`."""
    key = None if primary_key is None else as_names(primary_key)
    dataset = open_dataset(store)
    if not set_aside:
        refuse_table(store, dataset)
        refuse_leftovers(store)
    named = key or primary_key_of(dataset)
    spec = build_spec(
        shard_fields(shard_by),
        dataset.schema,
        named,
        all_field_ids(dataset.lance_schema),
        births=births_to_mark(marks_of(dataset)),
    )
    recorded = {RULE: VALUES}
    if set_aside:
        refuse_table(store, dataset)
        set_leftovers_aside(store, dataset.schema)
        # A writer of the library takes no lease, and may still be writing shards of the former table: none of
        # this one is to have the id of one of those.
        recorded = {}
    base = _told(adopt_base_table(store, key, shard_specs=(spec,), writer_defaults=recorded))
    for column in sorted(FEED_NAMES.intersection(base.schema.names)):
        _log.warning("table.without_change_feed", where=base.uri, column=column)
    return base


def _key_of_new(primary_key: str | Sequence[str] | None) -> tuple[str, ...]:
    if primary_key is None:
        return ()
    key = as_names(primary_key)
    if not key:
        raise SchemaError(
            "the primary key has no column",
            where="primary_key",
            hint="Name its columns, or pass primary_key=None for an append-only table",
        )
    return key


def as_names(primary_key: str | Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a primary key as callers give them."""
    return (primary_key,) if isinstance(primary_key, str) else tuple(primary_key)


def shard_fields(shard_by: ShardBy | Sequence[ShardBy] | None) -> tuple[ShardBy, ...]:
    """Return the fields of a shard spec as callers give them; without any, the spec of one shard."""
    if shard_by is None:
        return (unsharded(),)
    return (shard_by,) if isinstance(shard_by, ShardBy) else tuple(shard_by)


def _told(base: BaseTable) -> BaseTable:
    """Say of a new table if the released library cannot write it too; afterwards its status does."""
    spec = newest_spec(base)
    note = library_note(spec) or unreadable_by_library(base.schema, base.primary_key)
    if note:
        sharded_by = describe_spec(spec, base.columns_of(spec))
        _log.warning("table.library_cannot_route", where=base.uri, sharded_by=sharded_by, reason=note)
    return base

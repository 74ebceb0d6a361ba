"""Creating base tables: new ones, and Lance datasets that become Weir tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import lance
import pyarrow as pa
from lance.dataset import LanceOperation
from lance.fragment import FragmentMetadata, write_fragments

from weir.base.dataset import library_options, open_dataset, primary_key_of
from weir.base.details_commit import wait_for_turn
from weir.base.durability import committing, sync_objects
from weir.base.file_checksums import record_checksums
from weir.base.key_index import build_key_index, extend_key_index
from weir.base.library_errors import LIBRARY_ERRORS, LibraryFailure, classify, storage_failure
from weir.base.maintained_indexes import with_maintained_named
from weir.base.manifest import VERSIONS, TableManifest, read_manifest
from weir.base.merge_engine import with_sketches
from weir.base.publish import built_version, mem_wal_index_change, publish_details, publish_manifest
from weir.base.schema import (
    RESERVED_NAMES,
    all_field_ids,
    check_new_column,
    field_ids,
    key_metadata,
    table_schema,
)
from weir.base.scratch import scratch_directory
from weir.base.stored_types import check_stored_types
from weir.base.table import PLACE, TABLE_ID, BaseTable
from weir.base.whole_files import refuse_torn
from weir.engine import failpoint
from weir.engine.concurrent_map import concurrent_map
from weir.errors import (
    ConflictError,
    KeyValueError,
    SchemaError,
    ShardingError,
    TableExistsError,
    TableNotFoundError,
)
from weir.format import layout
from weir.format.append_only import APPEND_ONLY, AppendOnly
from weir.format.append_only import FEATURE as APPEND_ONLY_FEATURE
from weir.format.append_only import encode as encode_append_only
from weir.format.expiry import EXPIRY, Expiry
from weir.format.expiry import FEATURE as EXPIRY_FEATURE
from weir.format.expiry import encode as encode_expiry
from weir.format.field_births import FIRST, births_of, with_births
from weir.format.field_ids import new_field_ids, with_field_ids, without_field_ids
from weir.format.index_details import IndexDetails, ShardSpec
from weir.format.keys import FEATURE as KEY_TYPES
from weir.format.keys import PrimaryKey, key_note
from weir.format.merge_engine import FEATURE as MERGE_ENGINE_FEATURE
from weir.format.merge_engine import MERGE_ENGINE, MergeEngine
from weir.format.merge_engine import encode as encode_merge_engine
from weir.format.newest import key_codes, newest_rows
from weir.format.recorded_key import PRIMARY_KEY
from weir.format.recorded_key import encode as encode_key
from weir.format.table_manifest import decode_files
from weir.format.unsliced import unsliced
from weir.storage.interface import ObjectStore

__all__ = [
    "adopt_base_table",
    "check_stored_keys",
    "create_base_table",
    "key_to_adopt",
    "refuse_table",
    "with_key_feature",
]

_FIRST_VERSION = 3
_MAX_ATTEMPTS = 16
_INDEXES = "_indices"


def create_base_table(
    store: ObjectStore,
    schema: pa.Schema,
    primary_key: tuple[str, ...],
    *,
    shard_specs: Sequence[ShardSpec] = (),
    initial_data: pa.Table | pa.RecordBatch | pa.RecordBatchReader | None = None,
    writer_defaults: Mapping[str, str] | None = None,
    merge_engine: MergeEngine | None = None,
    append: AppendOnly | None = None,
    expiry: Expiry | None = None,
) -> BaseTable:
    """Create a table: the Lance dataset, its primary key and its MemWAL index, in one atomic step.

    A process that dies on the way leaves no table, only files that nothing refers to, and the call
    can be made again. The key index (:func:`~weir.base.key_index.extend_key_index`) is built after
    that step; a table without it is complete, only slower, and the first merge builds it.

    The first version is 3, however the library built it: of two concurrent creators only one finds the number
    free. Earlier versions, without a MemWAL index, are never visible.

    Parameters
    ----------
    store : ObjectStore
        The place of the table; nothing but the table is below it.
    schema : pyarrow.Schema
        Columns. Key columns become not nullable. For deletes all others must be nullable.
    primary_key : tuple of str
        Key columns, in key order.
    shard_specs : sequence of ShardSpec, default ()
        How rows map to shards; source columns by id (:func:`~weir.base.schema.field_ids`). None:
        every shard is made by hand.
    initial_data : Table, RecordBatch or RecordBatchReader, optional
        Rows the table starts with. Of several rows with one key the last wins.
    writer_defaults : mapping of str to str, optional
        Writer options to record with the table.
    merge_engine : MergeEngine, optional
        How the versions of a key are combined. Default: the last row.
    append : AppendOnly, optional
        How rows are only added, of a table without a key. Default: they are replaced by key.
    expiry : Expiry, optional
        When rows expire. Default: never.

    Returns
    -------
    BaseTable
        The new table.

    Raises
    ------
    SchemaError
        The schema cannot be that of a table, or the initial data does not fit it. Nothing is
        written.
    KeyValueError
        A key in the initial data is null. Nothing is written.
    ShardingError
        A shard spec names a column that does not exist, or an id twice. Nothing is written.
    TableExistsError
        There is a Lance dataset at that place, Weir table or not. Nothing is written.
    """
    schema = table_schema(schema, primary_key, required=None if append is None else append.unique)
    for field in schema:
        check_new_column(field)
    schema = _marked(schema if merge_engine is None else with_sketches(schema, merge_engine))
    details = _new_details(store, shard_specs, writer_defaults)
    details = with_key_feature(details, schema, primary_key)
    ids, recorded, features = field_ids(schema), dict(details.writer_config_defaults), [*details.features]
    births = dict.fromkeys(ids.values(), FIRST)
    if primary_key:
        recorded[PRIMARY_KEY] = encode_key(primary_key, ids, births)
    if merge_engine is not None:
        recorded[MERGE_ENGINE] = encode_merge_engine(merge_engine, ids, births)
        features.append(MERGE_ENGINE_FEATURE)
    if append is not None:
        recorded[APPEND_ONLY] = encode_append_only(append, ids, births)
        features.append(APPEND_ONLY_FEATURE)
    if expiry is not None:
        recorded[EXPIRY] = encode_expiry(expiry, ids, births)
        features.append(EXPIRY_FEATURE)
    details = replace(details, features=tuple(features), writer_config_defaults=recorded)
    _check_shard_specs(shard_specs, all_field_ids(schema))
    rows = None if initial_data is None else _initial_rows(initial_data, schema, primary_key)
    _refuse_existing(store)
    failpoint.reach("create.before_data")
    fragments = [] if rows is None or not rows.num_rows else _write_data(store, rows, schema)
    failpoint.reach("create.before_publish")
    with scratch_directory() as scratch:
        try:
            first = lance.LanceDataset.commit(scratch, LanceOperation.Overwrite(schema, fragments))
            change = mem_wal_index_change(first.version, details, replaced=None)
            built = lance.LanceDataset.commit(str(scratch), change, read_version=first.version)
            if not fragments:
                # Here it is known without round trips that there are no rows.
                build_key_index(built, primary_key)
        except LIBRARY_ERRORS as error:
            _discard(store, fragments)
            raise storage_failure(error, "building the table", where=store.uri) from error
        manifest, transactions = built_version(
            store, scratch, built.version, counts_down=True, number=_FIRST_VERSION
        )
        indexes = _put_indexes(store, scratch, manifest)
        version = publish_manifest(store, manifest, transactions)
    if version is None:
        _discard(store, fragments)
        store.delete(indexes)
        raise _exists(store)
    if store.waits_for_disk:
        record_checksums(store, version, [*_data_files(fragments), *indexes])
    base = BaseTable.of_published(store, manifest)
    if not fragments:
        return base
    failpoint.reach("create.before_key_index")
    return extend_key_index(base)


def _put_indexes(store: ObjectStore, scratch: Path, manifest: TableManifest) -> list[str]:
    """Store the files of the indexes that were built in a scratch directory, and return their paths."""
    data = {file.path for file in decode_files(manifest.data, where=manifest.where).data}
    refuse_torn(str(scratch), manifest.data, where=manifest.where, known=data)
    files = [file for file in (scratch / _INDEXES).rglob("*") if file.is_file()]
    paths = [file.relative_to(scratch).as_posix() for file in files]
    puts = [partial(store.put, path, file.read_bytes()) for path, file in zip(paths, files, strict=True)]
    for _ in concurrent_map(lambda put: put(), puts, is_local=store.is_local, engine=store.engine):
        pass
    return paths


def _marked(schema: pa.Schema) -> pa.Schema:
    """Mark the columns of a new table with their births."""
    ids = new_field_ids(schema)
    numbered = with_field_ids(schema, ids)
    marked = with_births(numbered, dict.fromkeys(births_of(numbered), FIRST))
    return without_field_ids(marked, births=False)


def adopt_base_table(
    store: ObjectStore,
    primary_key: tuple[str, ...] | None = None,
    *,
    shard_specs: Sequence[ShardSpec] = (),
    writer_defaults: Mapping[str, str] | None = None,
    check_keys: bool = True,
) -> BaseTable:
    """Turn a Lance dataset into a Weir table, in place: its rows and versions stay.

    Parameters
    ----------
    store : ObjectStore
        The place of the dataset.
    primary_key : tuple of str, optional
        Key columns, for a dataset without a primary key: they become not nullable and are marked, which
        cannot be undone. For a dataset with a key it must be that key or omitted.
    shard_specs, writer_defaults
        As for :func:`create_base_table`.
    check_keys : bool, default True
        Whether to read the key columns and make sure that every key is there once.

    Returns
    -------
    BaseTable
        The table.

    Raises
    ------
    TableNotFoundError
        There is no Lance dataset.
    TableExistsError
        The dataset is a Weir table, or has been set up by the library, which is the same.
    SchemaError
        It has no primary key and none is given, or the one given differs or cannot be one.
    KeyValueError
        A key is null, or several rows have the same.
    ConflictError
        Others committed during every attempt.
    """
    details = _new_details(store, shard_specs, writer_defaults)
    for attempt in range(_MAX_ATTEMPTS):
        wait_for_turn(attempt)
        dataset = open_dataset(store)
        manifest = read_manifest(store, dataset.version)
        _refuse_index(store, manifest)
        check_stored_types(dataset)
        key = key_to_adopt(store, dataset, primary_key)
        details = with_key_feature(details, dataset.schema, key)
        _check_shard_specs(shard_specs, all_field_ids(dataset.lance_schema))
        if check_keys:
            check_stored_keys(store, dataset, key)
        if not primary_key_of(dataset):
            _mark_key(store, dataset, key)
            continue  # look again: rows may have been committed before the mark was
        failpoint.reach("adopt.before_publish")
        # The births of unmarked columns are not known yet.
        recorded = encode_key(key, all_field_ids(dataset.lance_schema), {})
        details = replace(
            details, writer_config_defaults={**details.writer_config_defaults, PRIMARY_KEY: recorded}
        )
        named = with_maintained_named(details, dataset)
        if publish_details(store, manifest, named) is not None:
            return extend_key_index(BaseTable.open(store))
    raise ConflictError(
        f"the dataset changed during each of {_MAX_ATTEMPTS} attempts to adopt it",
        where=store.uri,
        hint="Stop what writes to it until it is a Weir table",
    )


def refuse_table(store: ObjectStore, dataset: lance.LanceDataset) -> None:
    """Refuse a dataset that is a table already.

    Raises
    ------
    TableExistsError
        It is.
    """
    _refuse_index(store, read_manifest(store, dataset.version))


def _refuse_index(store: ObjectStore, manifest: TableManifest) -> None:
    if manifest.mem_wal_index() is not None:
        raise TableExistsError(
            "the dataset is a Weir table already", where=store.uri, hint="Open it with weir.open"
        )


def with_key_feature(details: IndexDetails, schema: pa.Schema, primary_key: Sequence[str]) -> IndexDetails:
    """Return details that stop the library's writers, if they cannot hash such a key."""
    note = key_note([schema.field(name).type for name in primary_key])
    return replace(details, features=(KEY_TYPES,)) if note else details


def _new_details(
    store: ObjectStore,
    shard_specs: Sequence[ShardSpec],
    writer_defaults: Mapping[str, str] | None,
) -> IndexDetails:
    ids = [spec.spec_id for spec in shard_specs]
    for spec_id in ids:
        if spec_id < 1 or ids.count(spec_id) > 1:
            raise ShardingError(
                f"shard spec id {spec_id} is {'used twice' if spec_id > 0 else 'not positive'}",
                hint="Number the shard specs from 1",
            )
    return IndexDetails(
        shard_specs=tuple(shard_specs),
        maintain_all_indexes=True,
        writer_config_defaults={**(writer_defaults or {}), TABLE_ID: str(uuid4()), PLACE: store.uri},
    )


def _check_shard_specs(shard_specs: Sequence[ShardSpec], known: Mapping[str, int]) -> None:
    for spec in shard_specs:
        for item in spec.fields:
            unknown = [source for source in item.source_ids if source not in known.values()]
            if unknown:
                columns = ", ".join(f"{name} = {number}" for name, number in known.items())
                raise ShardingError(
                    f"field {item.field_id!r} of shard spec {spec.spec_id} is computed from the column "
                    f"with id {unknown[0]}, which the table does not have",
                    hint=f"Columns: {columns}",
                )


def _refuse_existing(store: ObjectStore) -> None:
    directories = store.list_directories("")
    if VERSIONS in directories:
        with suppress(TableNotFoundError):
            open_dataset(store)
            raise _exists(store)
    shards = store.list_directories(layout.MEM_WAL) if layout.MEM_WAL in directories else ()
    if shards:
        # A new table would take their rows for its own.
        raise TableExistsError(
            f"there are {len(shards)} shards of a former table but no Lance dataset",
            where=f"{store.uri}/{layout.MEM_WAL}",
            hint="Delete its remains, or choose another location",
        )


def _exists(store: ObjectStore) -> TableExistsError:
    return TableExistsError(
        "there is a table or a Lance dataset already",
        where=store.uri,
        hint="Open it with weir.open, or turn a plain Lance dataset into a table with weir.adopt",
    )


def _initial_rows(
    data: pa.Table | pa.RecordBatch | pa.RecordBatchReader, schema: pa.Schema, primary_key: tuple[str, ...]
) -> pa.Table:
    """Return the rows with the table's schema, one per key."""
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    elif isinstance(data, pa.RecordBatchReader):
        data = data.read_all()
    elif not isinstance(data, pa.Table):
        raise SchemaError(f"initial data is an Arrow table, batch or reader, not {type(data).__name__}")
    if sorted(data.schema.names) != sorted(schema.names):
        odd = sorted(set(data.schema.names) ^ set(schema.names)) or sorted(data.schema.names)
        raise SchemaError(
            f"the initial data and the schema do not have the same columns: {', '.join(odd)}",
            where=odd[0],
            hint=f"Columns of the table: {', '.join(schema.names)}",
        )
    for field in schema:
        nulls = data.column(field.name).null_count
        if nulls and field.name in primary_key:
            raise KeyValueError(f"{nulls} rows of the initial data have no key", where=field.name)
        if nulls and not field.nullable:
            raise SchemaError(f"{nulls} nulls in a column that is not nullable", where=field.name)
    columns = []
    for field in schema:
        try:
            columns.append(data.column(field.name).cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaError(
                f"the initial data has the type {data.schema.field(field.name).type} and the table "
                f"{field.type}: {error}",
                where=field.name,
            ) from error
    rows = pa.Table.from_arrays(columns, schema=schema)
    if not primary_key:
        return rows
    kept = newest_rows([rows.column(name) for name in primary_key])
    return rows if len(kept) == rows.num_rows else rows.take(pa.array(kept))


def _write_data(store: ObjectStore, rows: pa.Table, schema: pa.Schema) -> list[FragmentMetadata]:
    try:
        fragments: list[FragmentMetadata] = write_fragments(
            unsliced(rows), store.uri, schema=schema, mode="create", storage_options=library_options(store)
        )
    except LIBRARY_ERRORS as error:
        if classify(error) is LibraryFailure.EXISTS:
            raise _exists(store) from error
        raise storage_failure(error, "writing the initial data", where=store.uri) from error
    # Durable before the table exists: its first version never refers to what a power cut can take.
    sync_objects(store, _data_files(fragments))
    return fragments


def _data_files(fragments: Iterable[FragmentMetadata]) -> list[str]:
    return [f"data/{file.path}" for fragment in fragments for file in fragment.files]


def _discard(store: ObjectStore, fragments: Iterable[FragmentMetadata]) -> None:
    store.delete(_data_files(fragments))


def key_to_adopt(
    store: ObjectStore, dataset: lance.LanceDataset, primary_key: tuple[str, ...] | None
) -> tuple[str, ...]:
    """Return the primary key that a dataset has, or could be given.

    Raises
    ------
    SchemaError
        It has another one, or none and none is given, or the columns cannot be one.
    """
    recorded = primary_key_of(dataset)
    if not recorded and primary_key is None:
        raise SchemaError(
            "the dataset has no primary key", where=store.uri, hint="Pass the columns of its primary key"
        )
    if recorded and primary_key is not None and primary_key != recorded:
        raise SchemaError(
            f"the dataset's primary key is ({', '.join(recorded)}), not ({', '.join(primary_key)}), and "
            "cannot be changed",
            where=store.uri,
        )
    key = recorded or primary_key
    assert key is not None
    reserved = [name for name in dataset.schema.names if name in RESERVED_NAMES]
    if reserved:
        raise SchemaError(
            f"the column name {reserved[0]!r} is reserved",
            where=reserved[0],
            hint="Rename the column (LanceDataset.alter_columns) and adopt the dataset then",
        )
    # The types of the columns are those Lance stores; nullability is settled when the key is marked.
    not_null = pa.schema(
        [field.with_nullable(False) if field.name in key else field for field in dataset.schema]
    )
    PrimaryKey.from_schema(not_null, key)
    return key


def check_stored_keys(store: ObjectStore, dataset: lance.LanceDataset, key: tuple[str, ...]) -> None:
    """Make sure that every key of a dataset is there once.

    Raises
    ------
    KeyValueError
        A key is null, or several rows have the same.
    """
    keys = dataset.to_table(columns=list(key))
    for name in key:
        if keys.column(name).null_count:
            raise KeyValueError(
                f"{keys.column(name).null_count} rows have no key",
                where=f"{store.uri}, column {name}",
                hint="Delete them or give them one, and adopt the dataset then",
            )
    codes, count = key_codes([keys.column(name) for name in key])
    if count < len(codes):
        raise KeyValueError(
            f"{len(codes) - count} rows repeat the key of another row",
            where=store.uri,
            hint="Keep one row of every key, and adopt the dataset then",
        )


def _mark_key(store: ObjectStore, dataset: lance.LanceDataset, key: tuple[str, ...]) -> None:
    """Make the columns the dataset's primary key, unless another commit gets in the way."""
    nullable = [name for name in key if dataset.schema.field(name).nullable]
    try:
        with committing(store, dataset) as own:
            if nullable:
                changes: Any = [{"path": name, "nullable": False} for name in nullable]
                own.alter_columns(*changes)
            # All columns in one commit: in the library a key cannot be changed once it is set.
            own.update_field_metadata(
                {name: dict(key_metadata(position, len(key))) for position, name in enumerate(key)}
            )
    except LIBRARY_ERRORS as error:
        if classify(error) is not LibraryFailure.CONFLICT:
            raise storage_failure(error, "marking the primary key", where=store.uri) from error

"""Creating, opening, copying and removing tables: the functions of the public interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Literal

import pyarrow as pa

from weir.base.table import BaseTable
from weir.engine.concurrent_map import ask_both
from weir.engine.context import EngineContext
from weir.errors import FirstIndexError, LeaseHeldError, OptionError, WeirError
from weir.first_index.upgrade import UpgradeReport, upgrade_table
from weir.first_index.wal import WalReader
from weir.format.merge_engine import MergeEngine
from weir.log.first_look import look_ahead
from weir.maintenance.clone import clone_table
from weir.maintenance.drop import DropReport, drop_table
from weir.rows import RowInput
from weir.rows.own_schema import rows_with_schema
from weir.sharding.shard_by import ShardBy
from weir.snapshots.asked_state import At
from weir.storage.interface import ObjectStore
from weir.table.kept_writer import release_kept
from weir.table.open_table import OpenTable
from weir.table.opening import adopt_table, as_names, create_table, shard_fields, table_store
from weir.table.region_table import RegionTable
from weir.table.table import Table

__all__ = ["adopt", "clone", "create", "drop", "open", "upgrade"]

# How long garbage collection keeps the state being cloned, if the process dies meanwhile.
_CLONE_RETENTION = timedelta(hours=1)


def create(
    uri: str | Path,
    schema: pa.Schema | RowInput,
    *,
    primary_key: str | Sequence[str] | None,
    dedup: bool = True,
    sort_by: str | Sequence[str] = (),
    shard_by: ShardBy | Sequence[ShardBy] | None = None,
    merge_engine: MergeEngine | str | None = None,
    sequence_by: str | None = None,
    expire_after: timedelta | None = None,
    expire_by: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    fsync: bool = True,
    max_memtable_age: float | None = None,
    engine: EngineContext | None = None,
    maintenance: Literal["auto", "off"] = "auto",
) -> Table:
    """Create a table.

    Parameters
    ----------
    uri : str or Path
        The location: a directory, or ``s3://``, ``gs://`` or ``az://``.
    schema : Schema or table-like
        The columns; or rows, which define the columns and are written: an Arrow table or reader, a pandas or
        polars data frame, a DuckDB relation, a list of dicts, dataclasses or pydantic models, or an iterator
        of these. Deletes require every column outside the primary key to be nullable.
    primary_key : str or sequence of str
        The column, or columns, that identify a row: integers, booleans, text, binary, dates, timestamps,
        decimals or UUIDs, which are stored as fixed-size binary. The released Lance library can read a table
        whose key has one of the last four, but not write it. None: rows are only added, and nothing is looked
        up by key. That is the fastest to write, for events and logs: ``delete(where=...)`` works, but
        ``get``, ``patch`` and deletes by key are refused. The released Lance library can read the base table
        of such a table, but cannot write it or read unmerged rows.
    dedup : bool
        Whether a row replaces the one with the same key. False: rows are only added, as with
        ``primary_key=None``, for keys that are unique by construction, which is not checked. Default True.
    sort_by : str or sequence of str
        For an append-only table, columns to sort by: merges, flushes and compactions sort the rows of every
        generation and fragment, so that ranges are found without reading the rest. Default: rows stay in the
        order they were written.
    shard_by : ShardBy or sequence of ShardBy, optional
        How rows are split into shards, for example ``weir.bucket("id", 8)``. Each shard has one writer at a
        time. Default: one shard. If the released Lance library cannot route rows by the rule, the log has a
        warning, and from then on :attr:`TableStatus.library_note` says so.
    merge_engine : MergeEngine or str, optional
        How the versions of a key combine: ``"first_row"``, ``"partial_update"`` or a
        :class:`weir.MergeEngine`. Default: the last row wins. The released Lance library can read the base
        table of a table with an engine, but cannot write it or read unmerged rows.
    sequence_by : str, optional
        A column that decides which row is last, instead of the order of writes: the row with the higher value
        wins in whatever order they arrive; of equal values, the later write. A delete that passes the column
        is ordered by its value too, until it is merged; one that does not removes what was written before it.
    expire_after : timedelta, optional
        How long after the time in ``expire_by`` a row expires. Default: at that time.
    expire_by : str, optional
        A column of timestamps or dates, in UTC if they have no zone, by which rows expire. From that instant
        no read returns the row; a row whose time is null never expires. Upkeep removes expired rows. A read
        at a token judges expiry at the instant of the token.
    storage_options : mapping of str to str, optional
        Credentials and other options of the store, named as in Lance.
    fsync : bool
        On local disk, whether an acknowledged write survives the loss of power (invariant I1), not
        only the death of every process. Default True. No effect on object stores.
    max_memtable_age : float, optional
        Seconds after which writers flush rows, however few there are: recorded with the table, as the default
        of the writer option ``max_memtable_age``. Default: 60.
    engine : Engine, optional
        The engine whose limits and threads the table uses. Default: the engine of the process.
    maintenance : {"auto", "off"}
        Whether the engine maintains the table in the background while it is written here: merges, compaction
        and garbage collection. Default "auto". The environment variable ``WEIR_MAINTENANCE=off`` switches it
        off for the process.

    Raises
    ------
    TableExistsError
        If a table already exists there.
    SchemaError, ShardingError, OptionError
        If the schema, the key, the shard spec or the merge engine cannot work. Nothing is written.

    Examples
    --------
    >>> import tempfile, pyarrow as pa, weir
    >>> schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    >>> table = weir.create(tempfile.mkdtemp() + "/people", schema, primary_key="id")
    >>> with table.writer() as writer:
    ...     _ = writer.upsert([{"id": 1, "name": "Ada"}, {"id": 2, "name": "Grace"}])
    ...     _ = writer.delete([2])
    >>> table.scan().to_table().to_pylist()
    [{'id': 1, 'name': 'Ada'}]

    From rows:

    >>> rows = [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Grace"}]
    >>> weir.create(tempfile.mkdtemp() + "/people", rows, primary_key="id").scan().count()
    2
    """
    is_tended = _is_tended(maintenance)
    store = table_store(uri, storage_options, fsync, engine)
    if isinstance(schema, pa.Schema):
        columns, rows = schema, None
    else:
        columns, rows = rows_with_schema(schema)
    base = create_table(
        store,
        columns,
        primary_key,
        shard_by,
        merge_engine,
        sequence_by,
        max_memtable_age=max_memtable_age,
        dedup=dedup,
        sort_by=sort_by,
        expire_after=expire_after,
        expire_by=expire_by,
    )
    table = Table(store, base, is_tended=is_tended)
    if rows is None:
        return table
    try:
        with table.writer() as writer:
            writer.upsert(rows)
    except BaseException:
        # All or nothing, so the same call can be repeated.
        with suppress(WeirError):
            drop_table(store)
        raise
    return table


def open(
    uri: str | Path,
    *,
    storage_options: Mapping[str, str] | None = None,
    fsync: bool = True,
    engine: EngineContext | None = None,
    maintenance: Literal["auto", "off"] = "auto",
) -> Table:
    """Open a table.

    A table with the first form of the MemWAL index, with regions, is read like any other, unmerged rows
    included; writing to it raises ``FirstIndexError``. :func:`upgrade` converts it to the current form.

    Parameters
    ----------
    uri, storage_options, fsync, engine, maintenance
        As for :func:`create`.

    Raises
    ------
    TableNotFoundError
        If there is no table, or a Lance dataset that is not a Weir table.
    """
    is_tended = _is_tended(maintenance)
    store = table_store(uri, storage_options, fsync, engine)
    try:
        base = _open_base(store)
    except FirstIndexError:
        return RegionTable(store)
    return Table(store, base, is_tended=is_tended)


def _open_base(store: ObjectStore) -> BaseTable:
    """Open the base table, and at the same time look up where the first read will begin."""
    if store.is_local:
        return BaseTable.open(store)

    def look() -> None:
        look_ahead(store)

    base, _ = ask_both(lambda: BaseTable.open(store), look, is_local=False, engine=store.engine)
    return base


def adopt(
    uri: str | Path,
    *,
    primary_key: str | Sequence[str] | None = None,
    shard_by: ShardBy | Sequence[ShardBy] | None = None,
    set_aside: bool = False,
    storage_options: Mapping[str, str] | None = None,
    fsync: bool = True,
    engine: EngineContext | None = None,
    maintenance: Literal["auto", "off"] = "auto",
) -> Table:
    """Turn a Lance dataset into a Weir table, in place: its rows and versions stay.

    Parameters
    ----------
    uri : str or Path
        Where the dataset is.
    primary_key : str or sequence of str, optional
        The column, or columns, that identify a row, for a dataset without a primary key. They become not
        nullable and are marked as the key, which cannot be undone.
    set_aside : bool
        Whether to move what a former table left here (shards, pins, consumers) to ``_weir/set_aside``, where
        nothing reads it. Lance leaves it behind when it overwrites a dataset or drops its MemWAL index. The
        writers of the former table are fenced. Default False: a location with such remains is refused.
    shard_by, storage_options, fsync, engine, maintenance
        As for :func:`create`.

    Raises
    ------
    TableNotFoundError
        If there is no dataset.
    TableExistsError
        If it is a Weir table already, or a former table left something here.
    LeaseHeldError
        If a writer holds a lease on the former table.
    SchemaError, KeyValueError, ShardingError
        If its columns cannot be those of a table, or a key is null or duplicate. Nothing is written.

    Examples
    --------
    >>> import lance, tempfile, pyarrow as pa, weir
    >>> place = tempfile.mkdtemp() + "/people"
    >>> _ = lance.write_dataset(pa.table({"id": [1, 2], "name": ["Ada", "Grace"]}), place)
    >>> weir.adopt(place, primary_key="id").get([2]).to_pylist()
    [{'id': 2, 'name': 'Grace'}]
    """
    is_tended = _is_tended(maintenance)
    store = table_store(uri, storage_options, fsync, engine)
    base = adopt_table(store, primary_key, shard_by, set_aside=set_aside)
    return Table(store, base, is_tended=is_tended)


def clone(
    source: str | Path,
    target: str | Path,
    *,
    at: At | None = None,
    storage_options: Mapping[str, str] | None = None,
    target_options: Mapping[str, str] | None = None,
    fsync: bool = True,
) -> Table:
    """Copy a state of a table to another location, as an independent table.

    The clone has the rows of that state, merged or not, the columns, the rules and the indexes. It has its
    own identity and shards and no history: no older versions, tokens, consumers, or marks of repeatable
    writes. It shares nothing with the source, which is not changed.

    Parameters
    ----------
    source : str or Path
        Where the table is.
    target : str or Path
        Where to put the clone. After a crash, the same call continues where the last one stopped.
    at : SnapshotToken, str or datetime, optional
        The state to copy: a token, a tag or an instant of the source. Default: the newest.
    storage_options : mapping of str to str, optional
        Credentials and other options of the source's store.
    target_options : mapping of str to str, optional
        The same for the target. Default: those of the source, if both are on object stores.
    fsync : bool
        As for :func:`create`.

    Raises
    ------
    TableNotFoundError
        If there is no table at the source.
    TableExistsError
        If there is something at the target.
    SnapshotExpiredError, InputError
        If the token has expired, or belongs to another table.
    ShardConflictError
        If several shards hold versions of one key.

    Examples
    --------
    >>> import tempfile, pyarrow as pa, weir
    >>> schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    >>> place = tempfile.mkdtemp()
    >>> table = weir.create(place + "/people", schema, primary_key="id")
    >>> with table.writer() as writer:
    ...     _ = writer.upsert([{"id": 1, "name": "Ada"}])
    ...     token = table.snapshot()
    ...     _ = writer.delete([1])
    >>> weir.clone(place + "/people", place + "/as-it-was", at=token).scan().to_table().to_pylist()
    [{'id': 1, 'name': 'Ada'}]
    """
    store = table_store(source, storage_options, fsync)
    if target_options is None and "://" in str(target):
        target_options = storage_options
    table = OpenTable(store, BaseTable.open(store))
    return _cloned(table, table_store(target, target_options, fsync), at)


def drop(
    uri: str | Path,
    *,
    takeover: bool = False,
    storage_options: Mapping[str, str] | None = None,
    fsync: bool = True,
    on_progress: Callable[[int, int], None] | None = None,
    on_wait: Callable[[LeaseHeldError], None] | None = None,
) -> DropReport:
    """Remove a table: its rows, versions, branches and everything else that belongs to it at its location.

    From the first step on the table can no longer be opened. Where it is open, the next read of its base
    table fails; writers are fenced. After a crash, call it again: it continues.

    Parameters
    ----------
    uri : str or Path
        Where the table is.
    takeover : bool
        Whether to fence active writers and wait until their leases have expired. Default False: the call is
        refused while there are any. Writers of the released library take no lease; stop them first.
    storage_options, fsync
        As for :func:`create`.
    on_progress : callable, optional
        Called with (objects deleted, objects in all).
    on_wait : callable, optional
        Called when a wait for a writer's lease begins, with an error that says whose lease, for how long and
        why. The error is not raised; a callable that raises it ends the call, which can be repeated later.

    Returns
    -------
    DropReport
        The deleted objects.

    Raises
    ------
    TableNotFoundError
        If there is no table, or a Lance dataset that is not a Weir table; it is left as it is.
    LeaseHeldError
        If a writer is active. Nothing was changed.

    Examples
    --------
    >>> import tempfile, pyarrow as pa, weir
    >>> place = tempfile.mkdtemp() + "/people"
    >>> _ = weir.create(place, pa.schema([pa.field("id", pa.int64(), nullable=False)]), primary_key="id")
    >>> weir.drop(place).objects > 0
    True
    """
    store = table_store(uri, storage_options, fsync)
    release_kept(store.uri)
    return drop_table(store, takeover=takeover, on_progress=on_progress, on_wait=on_wait)


def upgrade(
    uri: str | Path,
    *,
    into: str | Path | None = None,
    primary_key: str | Sequence[str] | None = None,
    shard_by: ShardBy | Sequence[ShardBy] | None = None,
    dry_run: bool = False,
    wal_reader: WalReader | None = None,
    storage_options: Mapping[str, str] | None = None,
    target_options: Mapping[str, str] | None = None,
    fsync: bool = True,
) -> UpgradeReport:
    """Convert a table with the first form of the MemWAL index, with regions, to the current form.

    The result has every row that reads of the table showed: rows of unmerged MemWALs become generations of
    shards. In place, the writers of its regions are fenced first. After a crash, call it again: nothing is
    lost. The WALs of the regions are left where they are.

    Parameters
    ----------
    uri : str or Path
        Where the table is.
    into : str or Path, optional
        Where to put an upgraded copy. The table itself then stays as it is, and its writers continue.
        Default: upgrade in place.
    primary_key : str or sequence of str, optional
        The key columns, for a table whose key is not marked, as in tables written before there was a mark.
        They are marked in the table itself, also for a copy, and permanently; its regions, rows and writers
        are not affected.
    shard_by : ShardBy or sequence of ShardBy, optional
        How rows are split into shards, as for :func:`create`. Default: one shard.
    dry_run : bool
        Whether to read everything but write nothing. Default False.
    wal_reader : WalReader, optional
        Reads the entries of the WALs (``weir.first_index.wal.WalReader``), whose form the spec leaves to the
        writer. Default: the form that Weir writes.
    storage_options : mapping of str to str, optional
        Credentials and other options of the table's store.
    target_options : mapping of str to str, optional
        The same for the copy. Default: those of the table, if both are on object stores.
    fsync : bool
        As for :func:`create`.

    Returns
    -------
    UpgradeReport
        What was done, or would be.

    Raises
    ------
    TableNotFoundError
        If there is no table.
    SchemaError
        If the table has no primary key and none is given, or the one given differs or cannot be one.
    KeyValueError
        If a key of the base table is null or duplicate.
    TableExistsError
        If it already has the current form, or there is something at the target.
    CorruptionError
        If an entry that the index lists cannot be read, or has a row without a key.
    ConflictError
        If other writers claimed its regions during every attempt.
    """
    store = table_store(uri, storage_options, fsync)
    if target_options is None and "://" in str(into):
        target_options = storage_options
    target = None if into is None else table_store(into, target_options, fsync)
    return upgrade_table(
        store,
        target,
        primary_key=None if primary_key is None else as_names(primary_key),
        shard_by=shard_fields(shard_by),
        reader=wal_reader,
        dry_run=dry_run,
    )


def _is_tended(maintenance: object) -> bool:
    if maintenance not in ("auto", "off"):
        raise OptionError(
            f'maintenance must be "auto" or "off", got {maintenance!r}',
            where="maintenance",
            hint="A policy belongs to an engine: open the table with an engine that has it",
        )
    return maintenance == "auto"


def _cloned(source: OpenTable, target: ObjectStore, at: At | None) -> Table:
    token = source.reader.take_token(_CLONE_RETENTION) if at is None else source.reader.token_of(at)
    try:
        snapshot = source.reader.at(token)
        base, _ = clone_table(snapshot, target, source.sharding.router, source.shard_values(snapshot))
        return Table(target, base)
    finally:
        if at is None:
            source.reader.release(token)

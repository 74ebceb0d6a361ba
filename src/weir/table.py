"""The front door: create, open and use a Weir table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from weir.base.create import adopt_base_table, create_base_table
from weir.base.schema import all_field_ids, field_ids, table_schema
from weir.base.table import BaseTable, open_dataset, primary_key_of
from weir.config import WriterOptions
from weir.errors import OptionError, UriError
from weir.format.index_details import ShardSpec
from weir.format.newest import newest_rows
from weir.format.wal_entry import wal_schema
from weir.read.filters import check_filter
from weir.read.keys import KeySet
from weir.read.lookup import get_rows
from weir.read.plan import ScanPlan
from weir.read.planner import ScanPlanner, check_columns
from weir.read.scan import Scan
from weir.read.shard_view import ShardView
from weir.read.snapshot import STRONG, Consistency, ReadSnapshot, SnapshotReader
from weir.rows import RowInput, as_key_table
from weir.services.merge import MergeReport, merge_generations
from weir.services.runner import Runner, ThreadRunner
from weir.services.status import TableStatus, table_status
from weir.shard.writer import ShardWriter
from weir.shard_catalog import ShardCatalog
from weir.sharding import pruning
from weir.sharding.router import Router
from weir.sharding.shard_by import ShardBy, unsharded
from weir.sharding.shard_values import ShardValues
from weir.sharding.spec import build_spec, describe_spec, library_note
from weir.storage.interface import ObjectStore
from weir.storage.open import open_store
from weir.writer import TableWriter

_MAX_LIMIT = 2**63 - 1

__all__ = ["Table", "create", "open"]


def _table_store(uri: str | Path, storage_options: Mapping[str, str] | None, fsync: bool) -> ObjectStore:
    if str(uri).startswith("memory:"):
        raise UriError(
            "a table cannot live in memory: Weir and Lance would each have a memory of their own",
            where=str(uri),
            hint="Use a temporary directory",
        )
    return open_store(uri, storage_options, fsync=fsync)


def create(
    uri: str | Path,
    schema: pa.Schema,
    *,
    primary_key: str | Sequence[str],
    shard_by: ShardBy | Sequence[ShardBy] | None = None,
    storage_options: Mapping[str, str] | None = None,
    fsync: bool = True,
) -> Table:
    """Create a table.

    Parameters
    ----------
    uri : str or Path
        Where: a directory, or ``s3://``, ``gs://`` or ``az://``.
    schema : Schema
        The columns. Deletes need every column outside the primary key to be nullable.
    primary_key : str or sequence of str
        The column, or columns, that identify a row.
    shard_by : ShardBy or sequence of ShardBy, optional
        How rows are split into shards, for example ``weir.bucket("id", 8)``. Each shard has one
        writer at a time. Default: one shard.
    storage_options : mapping of str to str, optional
        Credentials and the like, spelled as Lance spells them.
    fsync : bool
        On local disk, whether an acknowledged write survives the loss of power (invariant I1), not
        only the death of every process. Default True. No effect on object stores.

    Raises
    ------
    TableExistsError
        If there is a table already.
    SchemaError, ShardingError
        If the schema, the key or the shard spec cannot work. Nothing is written.

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
    """
    store = _table_store(uri, storage_options, fsync)
    key = (primary_key,) if isinstance(primary_key, str) else tuple(primary_key or ())
    if shard_by is None:
        shard_by = unsharded()
    fields = (shard_by,) if isinstance(shard_by, ShardBy) else tuple(shard_by)
    spec = build_spec(fields, schema, key, field_ids(table_schema(schema, key)))
    return Table(store, create_base_table(store, schema, key, shard_specs=(spec,)))


def open(
    uri: str | Path,
    *,
    storage_options: Mapping[str, str] | None = None,
    fsync: bool = True,
) -> Table:
    """Open a table.

    Parameters
    ----------
    uri, storage_options, fsync
        As for :func:`create`.

    Raises
    ------
    TableNotFoundError
        If there is no table, or a Lance dataset that is not a Weir table.
    """
    store = _table_store(uri, storage_options, fsync)
    return Table(store, BaseTable.open(store))


def adopt(
    uri: str | Path,
    *,
    primary_key: str | Sequence[str] | None = None,
    shard_by: ShardBy | Sequence[ShardBy] | None = None,
    storage_options: Mapping[str, str] | None = None,
    fsync: bool = True,
) -> Table:
    """Turn a Lance dataset into a Weir table, in place: its rows and versions stay.

    Parameters
    ----------
    uri : str or Path
        Where the dataset is.
    primary_key : str or sequence of str, optional
        The column, or columns, that identify a row; for a dataset that has no primary key yet. They
        become not nullable and are marked as the key, which cannot be undone.
    shard_by, storage_options, fsync
        As for :func:`create`.

    Raises
    ------
    TableNotFoundError
        If there is no dataset.
    TableExistsError
        If it is a Weir table already.
    SchemaError, KeyValueError, ShardingError
        If its columns cannot be those of a table, or a key is null or occurs twice. Nothing is
        written.

    Examples
    --------
    >>> import lance, tempfile, pyarrow as pa, weir
    >>> place = tempfile.mkdtemp() + "/people"
    >>> _ = lance.write_dataset(pa.table({"id": [1, 2], "name": ["Ada", "Grace"]}), place)
    >>> weir.adopt(place, primary_key="id").get([2]).to_pylist()
    [{'id': 2, 'name': 'Grace'}]
    """
    store = _table_store(uri, storage_options, fsync)
    key = (
        (primary_key,)
        if isinstance(primary_key, str)
        else None
        if primary_key is None
        else tuple(primary_key)
    )
    dataset = open_dataset(store)
    named = key or primary_key_of(dataset)
    if shard_by is None:
        shard_by = unsharded()
    fields = (shard_by,) if isinstance(shard_by, ShardBy) else tuple(shard_by)
    spec = build_spec(fields, dataset.schema, named, all_field_ids(dataset.lance_schema))
    return Table(store, adopt_base_table(store, key, shard_specs=(spec,)))


@dataclass(frozen=True, slots=True)
class _Sharding:
    """What follows from the table's shard spec."""

    spec: ShardSpec
    router: Router
    catalog: ShardCatalog


class Table:
    """A Weir table. Made by :func:`create` and :func:`open`; safe to use from many threads.

    Parameters
    ----------
    store : ObjectStore
        Where the table is.
    base : BaseTable
        Its base table at any version.
    """

    def __init__(self, store: ObjectStore, base: BaseTable) -> None:
        self._store = store
        self._base = base
        spec = max(base.details.shard_specs, key=lambda one: one.spec_id, default=ShardSpec(0, ()))
        router = Router(spec, base.schema, base.field_ids)
        self._sharding = _Sharding(spec, router, ShardCatalog(store, base, router, spec))
        self._reader = SnapshotReader(store, base)
        self._planner = ScanPlanner(store, self._prune)

    @property
    def uri(self) -> str:
        """Where the table is."""
        return self._store.uri

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._base.schema

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The columns that identify a row."""
        return self._base.primary_key

    @property
    def sharded_by(self) -> str:
        """How rows are split into shards, for people."""
        return describe_spec(self._sharding.spec, self._base.field_ids)

    def writer(self, **options: Any) -> TableWriter:
        """Return a writer of this table, to be used as a context manager.

        It claims each shard when the first row reaches it, which fences whoever wrote it before.

        Parameters
        ----------
        **options
            The fields of :class:`weir.config.WriterOptions`: ``max_memtable_rows``,
            ``max_memtable_bytes``, ``max_wal_delay``, ...

        Raises
        ------
        OptionError
            If an option is unknown or out of range.
        """
        checked = WriterOptions.from_keywords(**options)
        rows_schema = wal_schema(self.schema)

        def open_shard(values: ShardValues, flusher: Executor) -> ShardWriter:
            return ShardWriter(
                self._store,
                self._sharding.catalog.resolve(values),
                rows_schema,
                self.primary_key,
                namespace=self._base.identity,
                options=checked,
                flusher=flusher,
                shard_spec_id=self._sharding.spec.spec_id,
                shard_fields=values.to_manifest(),
            )

        return TableWriter(self.schema, self.primary_key, self._sharding.router, open_shard, checked)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: str | None = None,
        limit: int | None = None,
        *,
        consistency: str | Consistency = STRONG,
    ) -> Scan:
        """Scan the merged view: base table, flushed generations and what is only in the WAL.

        Parameters
        ----------
        columns : sequence of str, optional
            Columns of the result, in order. Default: all.
        filter : str, optional
            SQL condition with Lance's (DataFusion's) meaning, such as ``"delay > 60"``.
        limit : int, optional
            Rows after which to stop; which ones is not defined.
        consistency : str
            ``"strong"`` (default) sees every acknowledged write; ``"bounded(500)"`` what was true
            at most 500 ms ago; ``"snapshot"`` the base table and the published shard snapshots.

        Returns
        -------
        Scan
            Runs on ``.to_table()``, ``.to_batches()``, ``.to_pandas()``, ``.count()``;
            ``.explain()`` shows what it would read.

        Raises
        ------
        SchemaError, FilterError, OptionError
            If a column, the filter or an option cannot be used.
        """
        fresh = Consistency.parse(consistency)
        if columns is not None:
            columns = check_columns(self.schema, columns)
        if filter is not None:
            check_filter(self.schema, filter)
        if limit is not None:
            if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
                raise OptionError(f"limit must be a whole number of at least 0, got {limit!r}", where="limit")
            limit = min(limit, _MAX_LIMIT)

        def plan(count_only: bool) -> ScanPlan:
            return self._planner.plan(
                self._reader.take(fresh),
                columns=() if count_only else columns,
                filter=filter,
                limit=limit,
                consistency=fresh,
            )

        return Scan(plan)

    def get(
        self,
        keys: RowInput,
        columns: Sequence[str] | None = None,
        *,
        consistency: str | Consistency = STRONG,
    ) -> pa.Table:
        """Look rows up by primary key.

        Parameters
        ----------
        keys : list, Array or table-like
            Keys: a list of values, of tuples for a composite key, or anything that holds the key
            columns.
        columns : sequence of str, optional
            Columns of the result, in order. Default: all.
        consistency : str
            As for :meth:`scan`.

        Returns
        -------
        Table
            One row per distinct key that exists, in the order of ``keys``.

        Raises
        ------
        KeyValueError, SchemaError
            If a key is null, incomplete, or does not fit its column.
        """
        fresh = Consistency.parse(consistency)
        if columns is not None:
            columns = check_columns(self.schema, columns)
        table = as_key_table(keys, self.schema, self.primary_key)
        wanted = KeySet(_distinct(table).columns)
        names = self.schema.names if columns is None else list(columns)
        return get_rows(self._store, self._reader.take(fresh), wanted, names, self._route_keys)

    def merge(
        self, *, runner: Runner | None = None, on_progress: Callable[[int, int], None] | None = None
    ) -> MergeReport:
        """Merge every flushed generation into the base table, exactly once.

        Rows that are only in a MemTable and the WAL wait for their flush. Safe to run beside
        writers, readers and other merges.

        Parameters
        ----------
        runner : Runner, optional
            Executes the tasks. Default: threads of this process.
        on_progress : callable, optional
            Called with (shards done, shards in all).

        Raises
        ------
        ConflictError
            If concurrent commits did not settle.
        """
        snapshot = self._reader.take_newest()
        manifests = [view.manifest for view in snapshot.shards]
        return merge_generations(snapshot.base, manifests, runner or ThreadRunner(), on_progress=on_progress)

    def status(self) -> TableStatus:
        """Return shards, epochs, lag in rows, bytes and seconds, and merge progress."""
        snapshot = self._reader.take_newest()
        values = self._sharding.catalog.values_of(view.manifest for view in snapshot.shards)
        return table_status(
            self._store,
            snapshot,
            values_of={shard: held.to_text() for shard, held in values.items() if held is not None},
            sharded_by=self.sharded_by,
            library_note=library_note(self._sharding.spec),
        )

    def __repr__(self) -> str:
        """Return location, key and sharding."""
        return f"Table({self.uri!r}, primary_key={self.primary_key}, sharded_by={self.sharded_by!r})"

    def _prune(
        self, snapshot: ReadSnapshot, condition: str | None
    ) -> tuple[Sequence[ShardView], Sequence[tuple[ShardView, str]]]:
        values = self._sharding.catalog.values_of(view.manifest for view in snapshot.shards)
        own = [(shard, held) for shard, held in values.items() if held is not None]
        if condition is None or not own:
            return snapshot.shards, ()
        result = pruning.prune(condition, self._sharding.spec, self.schema, self._base.field_ids, own)
        pruned = set(result.pruned)
        kept = [view for view in snapshot.shards if view.shard_id not in pruned]
        return kept, [(view, result.reason) for view in snapshot.shards if view.shard_id in pruned]

    def _route_keys(
        self, snapshot: ReadSnapshot, keys: KeySet
    ) -> Sequence[tuple[ShardView, np.ndarray[Any, np.dtype[np.int64]]]]:
        """Return, per shard, the keys it may hold: routed where its values are known, else all."""
        if len(snapshot.shards) == 1:
            return [(snapshot.shards[0], np.arange(len(keys), dtype=np.int64))]
        values = self._sharding.catalog.values_of(view.manifest for view in snapshot.shards)
        views = {view.shard_id: view for view in snapshot.shards}
        table = pa.table(list(keys.columns), list(self.primary_key))
        routed = pruning.shards_of_keys(self._sharding.router, table, list(values.items()))
        return [(views[shard], rows) for shard, rows in routed]


def _distinct(keys: pa.Table) -> pa.Table:
    """Return the first occurrence of every key, in order."""
    if keys.num_rows < 2:
        return keys
    last = newest_rows([column.combine_chunks()[::-1] for column in keys.columns])
    return keys.take(pa.array(np.sort(keys.num_rows - 1 - last)))

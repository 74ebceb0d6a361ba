"""The front door: create, open and use a Weir table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa

from weir.base.alter import alter_base_table
from weir.base.alteration import Alteration
from weir.base.generation_indexes import generation_indexes
from weir.base.index_changes import base_indexes, drop_index
from weir.base.stored_types import unreadable_by_library
from weir.base.table import BaseTable
from weir.changes.feed import ChangeFeed, ConsumerTerms, open_feed
from weir.changes.options import FeedOptions
from weir.config import DEFAULT_ROWS_PER_FRAGMENT, RETRAIN_IMBALANCE_THRESHOLD
from weir.engine.context import EngineContext
from weir.engine.runner import Runner, ThreadRunner
from weir.format.snapshot_token import SnapshotToken
from weir.indexing.definition import IndexDefinition
from weir.indexing.describe import ExistingIndex
from weir.indexing.kinds import IndexKind
from weir.indexing.policy import IndexPolicy
from weir.maintenance.catch_up import CatchUpReport, catch_up_indexes
from weir.maintenance.clone import clone_table
from weir.maintenance.clones import of_its_own
from weir.maintenance.compact import CompactReport, compact
from weir.maintenance.drop import DropReport, drop_table
from weir.maintenance.garbage.garbage import DEFAULT_HORIZON, collect_garbage
from weir.maintenance.garbage.report import GarbageReport
from weir.maintenance.index_creation import create_index, create_indexes
from weir.maintenance.maintain import MaintenanceReport
from weir.maintenance.recover import RecoverReport, recover_shards
from weir.maintenance.repair import RepairReport, repair_table
from weir.maintenance.shard_repairs import TableShards
from weir.maintenance.status import TableStatus, table_status
from weir.maintenance.verify import VerifyReport, verify_table
from weir.merge.policy import ALWAYS, MergePolicy
from weir.merge.service import MergeReport, merge_generations
from weir.read.scan import Scan
from weir.read.shard_choice import ShardChoice
from weir.read.shared_keys import find_shared_keys, find_twins
from weir.read.sql import SqlQuery
from weir.rows import RowInput
from weir.search.requests import HybridRequest, TextRequest, VectorRequest
from weir.search.search import Search
from weir.search.text.query import TextQuery
from weir.sharding.router import Router
from weir.sharding.shard_by import ShardBy
from weir.sharding.shard_values import ShardValues
from weir.sharding.spec import describe_spec, library_note
from weir.snapshots.consumers import drop_consumer
from weir.snapshots.snapshot import STRONG, Consistency, ReadSnapshot
from weir.storage.interface import ObjectStore
from weir.table.opening import TableSharding, adopt_table, create_table, table_store
from weir.table.reader import TableReader
from weir.write.flush.staged_generations import StagedGeneration, stage_generation
from weir.write.open_writer import open_writer
from weir.write.table_writer import TableWriter

__all__ = ["Table", "adopt", "clone", "create", "drop", "open"]


def create(
    uri: str | Path,
    schema: pa.Schema,
    *,
    primary_key: str | Sequence[str],
    shard_by: ShardBy | Sequence[ShardBy] | None = None,
    storage_options: Mapping[str, str] | None = None,
    fsync: bool = True,
    engine: EngineContext | None = None,
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
        writer at a time. Default: one shard. A rule by which the released Lance library cannot route
        rows is warned of in the log, and in :attr:`TableStatus.library_note` from then on.
    storage_options : mapping of str to str, optional
        Credentials and the like, spelled as Lance spells them.
    fsync : bool
        On local disk, whether an acknowledged write survives the loss of power (invariant I1), not
        only the death of every process. Default True. No effect on object stores.
    engine : Engine, optional
        Whose limits and threads the table counts against. Default: the engine of the process.

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
    store = table_store(uri, storage_options, fsync, engine)
    return Table(store, create_table(store, schema, primary_key, shard_by))


def open(
    uri: str | Path,
    *,
    storage_options: Mapping[str, str] | None = None,
    fsync: bool = True,
    engine: EngineContext | None = None,
) -> Table:
    """Open a table.

    Parameters
    ----------
    uri, storage_options, fsync, engine
        As for :func:`create`.

    Raises
    ------
    TableNotFoundError
        If there is no table, or a Lance dataset that is not a Weir table.
    """
    return _opened(table_store(uri, storage_options, fsync, engine))


def adopt(
    uri: str | Path,
    *,
    primary_key: str | Sequence[str] | None = None,
    shard_by: ShardBy | Sequence[ShardBy] | None = None,
    set_aside: bool = False,
    storage_options: Mapping[str, str] | None = None,
    fsync: bool = True,
    engine: EngineContext | None = None,
) -> Table:
    """Turn a Lance dataset into a Weir table, in place: its rows and versions stay.

    Parameters
    ----------
    uri : str or Path
        Where the dataset is.
    primary_key : str or sequence of str, optional
        The column, or columns, that identify a row; for a dataset that has no primary key yet. They
        become not nullable and are marked as the key, which cannot be undone.
    set_aside : bool
        Whether to move what a former table has left here (shards, pins, consumers) to ``_weir/set_aside``,
        where nothing reads it. Lance leaves it behind when it overwrites a dataset or drops its MemWAL index.
        Its writers are fenced. Default False: such a place is refused.
    shard_by, storage_options, fsync, engine
        As for :func:`create`.

    Raises
    ------
    TableNotFoundError
        If there is no dataset.
    TableExistsError
        If it is a Weir table already, or a former one has left something here.
    LeaseHeldError
        If somebody is writing the former table.
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
    store = table_store(uri, storage_options, fsync, engine)
    return Table(store, adopt_table(store, primary_key, shard_by, set_aside=set_aside))


def clone(
    source: str | Path,
    target: str | Path,
    *,
    at: SnapshotToken | str | None = None,
    storage_options: Mapping[str, str] | None = None,
    target_options: Mapping[str, str] | None = None,
    fsync: bool = True,
) -> Table:
    """Copy a state of a table to another place, as a table of its own.

    The clone has the rows of that state, merged or not, the columns, the rules and the indexes. It has
    another identity, shards of its own and no history: no older versions, tokens, consumers, or marks of
    repeatable writes. Nothing is shared with the source, and nothing of the source is changed.

    Parameters
    ----------
    source : str or Path
        Where the table is.
    target : str or Path
        Where the clone is to be. If a call has died, the same call goes on from what it left.
    at : SnapshotToken or str, optional
        A token of the source: the state to copy. Default: the newest.
    storage_options : mapping of str to str, optional
        Credentials and the like of the source.
    target_options : mapping of str to str, optional
        Those of the target. Default: those of the source, if both are on object stores.
    fsync : bool
        As for :func:`create`.

    Raises
    ------
    TableNotFoundError
        If there is no table at the source.
    TableExistsError
        If there is something at the target.
    SnapshotExpiredError, InputError
        If the token has expired, or is of another table.
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
    table = open(source, storage_options=storage_options, fsync=fsync)
    if target_options is None and "://" in str(target):
        target_options = storage_options
    return table._clone_to(table_store(target, target_options, fsync), at)


def drop(
    uri: str | Path,
    *,
    takeover: bool = False,
    storage_options: Mapping[str, str] | None = None,
    fsync: bool = True,
    on_progress: Callable[[int, int], None] | None = None,
) -> DropReport:
    """Remove a table: its rows, versions, branches and everything else below its place that is its own.

    From the first step on nobody can open it. Whoever has it open is told at the next read of its base table;
    writers are fenced. A call that has died is repeated, and goes on.

    Parameters
    ----------
    uri : str or Path
        Where the table is.
    takeover : bool
        Whether to fence writers that are at work, and wait until their leases have run out. Default False:
        the call is refused while there are any. Writers of the released library take no lease; stop them.
    storage_options, fsync
        As for :func:`create`.
    on_progress : callable, optional
        Called with (objects deleted, objects in all).

    Returns
    -------
    DropReport
        What was deleted.

    Raises
    ------
    TableNotFoundError
        If there is no table, or a Lance dataset that is not one, which is left as it is.
    LeaseHeldError
        If a writer is at work. Nothing was changed.

    Examples
    --------
    >>> import tempfile, pyarrow as pa, weir
    >>> place = tempfile.mkdtemp() + "/people"
    >>> _ = weir.create(place, pa.schema([pa.field("id", pa.int64(), nullable=False)]), primary_key="id")
    >>> weir.drop(place).objects > 0
    True
    """
    store = table_store(uri, storage_options, fsync)
    return drop_table(store, takeover=takeover, on_progress=on_progress)


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
        self._bind(base)

    def _bind(self, base: BaseTable) -> None:
        """Make this the table with a base table."""
        store = self._store
        self._bound_to = base.identity
        self._sharding = TableSharding.of(store, base)
        sharding = self._sharding
        shards = ShardChoice(base, sharding.spec, sharding.router, sharding.catalog.values_of)
        self._reader = TableReader(store, base, shards)

    def _clone_to(self, target: ObjectStore, at: SnapshotToken | str | None) -> Table:
        token = self.snapshot() if at is None else at
        try:
            snapshot = self._reader.at(token)
            values = self._sharding.catalog.values_of(view.manifest for view in snapshot.shards)
            base, _ = clone_table(snapshot, target, self._sharding.router, values)
            return Table(target, base)
        finally:
            if at is None:
                self.release(token)

    def _own(self) -> None:
        """Make the table one of its own before it is written, if it is a clone of another one."""
        own = of_its_own(self._base)
        # Somebody else may have made it one of its own, and a read have followed.
        if own.identity != self._bound_to:
            self._bind(own)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle where the table is; whoever gets it opens it as it is then."""
        return _opened, (self._store,)

    @property
    def _base(self) -> BaseTable:
        """The base table at the newest version that has been seen."""
        return self._reader.base

    @property
    def engine(self) -> EngineContext:
        """What the table shares with others of this process: its limits, threads and metrics."""
        return self._store.engine

    @property
    def uri(self) -> str:
        """Where the table is."""
        return self._store.uri

    @property
    def schema(self) -> pa.Schema:
        """The columns, as they were when the table was opened, last read or altered here."""
        return self._base.schema

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The columns that identify a row."""
        return self._base.primary_key

    @property
    def sharded_by(self) -> str:
        """How rows are split into shards, for people."""
        return describe_spec(self._sharding.spec, self._base.field_ids)

    def alter(
        self,
        *,
        add: Sequence[pa.Field] | None = None,
        drop: Sequence[str] | None = None,
        rename: Mapping[str, str] | None = None,
        widen: Mapping[str, pa.DataType] | None = None,
    ) -> None:
        """Add, drop, rename and widen columns, all at once, while others read and write.

        Nothing has to be merged or flushed before: columns are told from each other by their field ids,
        wherever their values are. A renamed column keeps its values, and one that is dropped and added
        again under its name does not get its old ones back. Snapshots taken before are read with the
        columns of their time. Open writers take the new columns over.

        A column in a struct is named by its path, with dots: ``"arrival.gate"``.

        Parameters
        ----------
        add : sequence of Field, optional
            New columns, null in every row there is.
        drop : sequence of str, optional
            Columns to drop.
        rename : mapping of str to str, optional
            New names by the present ones. All change at once: ``{"a": "b", "b": "a"}`` swaps two.
        widen : mapping of str to DataType, optional
            Wider types: integers and floats of more bits, decimals with more digits before and no fewer
            after the point, finer units of time, ``large_string`` and ``large_binary``, and lists of such.
            The column is written anew in the base table.

        Raises
        ------
        SchemaError
            If a column is unknown, mentioned twice, or needed as it is by the primary key, the shard rule
            or an index; a name exists, is reserved or cannot be stored; a type is no wider one; a new
            column is not nullable; or something is of the wrong kind. Nothing was changed.
        ConflictError
            If others committed during every attempt. Nothing was changed.

        Examples
        --------
        >>> import tempfile, pyarrow as pa, weir
        >>> schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("delay", pa.int32())])
        >>> table = weir.create(tempfile.mkdtemp() + "/flights", schema, primary_key="id")
        >>> with table.writer() as writer:
        ...     _ = writer.upsert([{"id": 1, "delay": 5}])
        >>> table.alter(rename={"delay": "minutes"}, add=[pa.field("gate", pa.string())])
        >>> table.scan().to_table().to_pylist()
        [{'id': 1, 'minutes': 5, 'gate': None}]
        """
        asked = Alteration.of(add, drop, rename, widen)
        self._own()
        self._reader.follow(alter_base_table(self._base, asked))

    def stage(self, shard: ShardValues, rows: pa.Table) -> StagedGeneration:
        """Write rows of one shard as a generation that nothing refers to, for its writer to publish.

        For writes of many machines at once: whoever commits them publishes what all have staged with
        :meth:`TableWriter.publish_routed`, within 12 hours. Claims nothing, and changes nothing that can
        be read.

        Parameters
        ----------
        shard : ShardValues
            The shard, as :attr:`router` tells it.
        rows : Table
            Rows of that shard in the schema of log entries, in their order; of several with one key the
            last counts.
        """
        self._own()
        return stage_generation(
            self._store,
            self._sharding.catalog.resolve([shard])[shard],
            rows,
            self.primary_key,
            indexes=generation_indexes(self._base),
            shard_spec_id=self._sharding.spec.spec_id,
            shard_fields=shard.to_manifest(),
        )

    @property
    def row_schema(self) -> pa.Schema:
        """The columns with their field ids, and ``_tombstone``, for whoever makes rows to write later."""
        return self._base.row_schema

    @property
    def identity(self) -> str:
        """What tells the table from all others, also from one at the same place before or after it."""
        return self._base.identity

    @property
    def store(self) -> ObjectStore:
        """The store that holds the table, for parts of Weir that keep something beside it."""
        return self._store

    @property
    def router(self) -> Router:
        """What splits rows by shard, for whoever routes them before they are written. Can be pickled."""
        return self._sharding.router

    def writer(self, **options: Any) -> TableWriter:
        """Return a writer of this table, to be used as a context manager.

        It claims each shard when the first row reaches it, and holds a lease on it from then on. A
        shard whose lease another writer holds is left to that writer, unless told to take over.

        Parameters
        ----------
        **options
            The fields of :class:`weir.config.WriterOptions`: ``takeover=True`` fences whoever holds
            the lease; ``lease_ttl`` says for how many seconds the shards of a writer that has
            vanished stay closed to others (default 300, and not at all if it was a process of this
            machine); ``max_memtable_rows``, ``max_unflushed_bytes``, ``max_wal_delay``, ... What the
            library has recorded with the table for its own writers is the default of the same
            options here.

        Raises
        ------
        OptionError
            If an option is unknown or out of range.
        ShardingError
            If the table is sharded by a column outside its key, without the promise that it stays.
        ShardConflictError
            If the table is part of a copy.

        Notes
        -----
        A clone that Lance has made of a table, a branch, and a copy without ``_mem_wal`` become tables of
        their own here, in one commit: without shards, and with another identity.
        """
        self._own()
        sharding = self._sharding
        return open_writer(
            self._store,
            self._base.latest_to_change() if self._base.torn else self._base,
            sharding.router,
            sharding.catalog.resolve,
            lambda columns, where: self.scan(columns, where).to_table(),
            spec_id=sharding.spec.spec_id,
            options=options,
        )

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: str | None = None,
        limit: int | None = None,
        *,
        consistency: str | Consistency = STRONG,
        at: SnapshotToken | str | None = None,
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
        at : SnapshotToken or str, optional
            A token of :meth:`snapshot`, or its text: read the table as it was then. Instead of
            ``consistency``.

        Returns
        -------
        Scan
            Runs on ``.to_table()``, ``.to_batches()``, ``.to_pandas()``, ``.count()``;
            ``.explain()`` shows what it would read.

        Raises
        ------
        SchemaError, FilterError, OptionError
            If a column, the filter or an option cannot be used.
        InputError
            If the token is of another table.
        SnapshotExpiredError
            When the scan runs, if garbage collection has passed the token; it says what is gone.
        """
        return self._reader.scan(columns, filter, limit, consistency=consistency, at=at)

    def get(
        self,
        keys: RowInput,
        columns: Sequence[str] | None = None,
        *,
        consistency: str | Consistency = STRONG,
        at: SnapshotToken | str | None = None,
    ) -> pa.Table:
        """Look rows up by primary key.

        Parameters
        ----------
        keys : list, Array or table-like
            Keys: a list of values, of tuples for a composite key, or anything that holds the key
            columns.
        columns : sequence of str, optional
            Columns of the result, in order. Default: all.
        consistency, at
            As for :meth:`scan`.

        Returns
        -------
        Table
            One row per distinct key that exists, in the order of ``keys``.

        Raises
        ------
        KeyValueError, SchemaError
            If a key is null, incomplete, or does not fit its column.
        InputError, SnapshotExpiredError
            If the token is of another table, or garbage collection has passed it.
        """
        return self._reader.get(keys, columns, consistency=consistency, at=at)

    def search(
        self,
        vector: Any,
        k: int = 10,
        column: str | None = None,
        filter: str | None = None,
        columns: Sequence[str] | None = None,
        *,
        metric: str | None = None,
        nprobes: int | None = None,
        refine: int | None = None,
        consistency: str | Consistency = STRONG,
        at: SnapshotToken | str | None = None,
    ) -> Search:
        """Find the rows of the merged view whose vectors are nearest to a vector.

        Rows that have a newer version or have been deleted, wherever that is written, are never among
        them. The base table is searched through its vector index if it has one for the metric, and
        else compared row by row; newer rows are compared exactly. Distances are exact in either case.

        Parameters
        ----------
        vector : list or array of numbers
            The query vector; or several, as a list of vectors or a two-dimensional array, for ``k`` rows
            each and a column ``_query_index`` that says for which.
        k : int
            Rows to find, from 1 to 10,000. Default 10.
        column : str, optional
            The vector column. Default: the only one.
        filter : str, optional
            SQL condition: the nearest among the rows that match.
        columns : sequence of str, optional
            Columns of the result, in order, before ``_distance``. Default: all.
        metric : str, optional
            ``"l2"`` (squared), ``"cosine"`` or ``"dot"`` for floats, ``"hamming"`` for uint8. Default: that
            of the base table's index; without one ``"l2"``, or ``"hamming"``.
        nprobes : int, optional
            How many partitions of the index to look into: more find more of the nearest rows, and take
            longer. Default: Lance's.
        refine : int, optional
            With an index of quantized vectors, how many times ``k`` candidates to rank by their exact
            distance. Default 1: the candidates are the ``k`` of the index.
        consistency, at
            As for :meth:`scan`.

        Returns
        -------
        Search
            Runs on ``.to_table()``, ``.to_batches()``, ``.to_pandas()``; rows come nearest first.
            ``.explain()`` shows what it would do, ``.snapshot`` is the state that it saw.

        Raises
        ------
        QueryError
            If the vector has another dimension than the column, or a value that is not finite; or ``k``,
            the column, the metric, ``nprobes`` or ``refine`` cannot be used.
        SchemaError, FilterError, OptionError, InputError, SnapshotExpiredError
            As for :meth:`scan`.

        Examples
        --------
        >>> import tempfile, pyarrow as pa, weir
        >>> schema = pa.schema([("id", pa.int64()), ("at", pa.list_(pa.float32(), 2))])
        >>> table = weir.create(tempfile.mkdtemp() + "/places", schema, primary_key="id")
        >>> with table.writer() as writer:
        ...     _ = writer.upsert([{"id": 1, "at": [0.0, 1.0]}, {"id": 2, "at": [3.0, 4.0]}])
        >>> table.search([0.0, 0.0], k=1, columns=["id"]).to_table().to_pylist()
        [{'id': 1, '_distance': 1.0}]
        """
        request = VectorRequest(vector, k, column, filter, columns, metric, nprobes, refine)
        return self._reader.search(request, consistency=consistency, at=at)

    def search_text(
        self,
        query: str | TextQuery,
        k: int = 10,
        column: str | None = None,
        filter: str | None = None,
        columns: Sequence[str] | None = None,
        *,
        consistency: str | Consistency = STRONG,
        at: SnapshotToken | str | None = None,
    ) -> Search:
        """Find the rows of the merged view that answer a text query best.

        Scores are BM25 by what is common among the rows that count, wherever they are: what they would
        be if everything were merged and indexed. The base table needs a full-text index on the column.

        Parameters
        ----------
        query : str or query
            Words, of which some are to occur; or a :class:`weir.MatchQuery`, :class:`weir.PhraseQuery`,
            :class:`weir.MultiMatchQuery`, :class:`weir.BooleanQuery` or :class:`weir.BoostQuery`.
        k : int
            Rows to find, from 1 to 10,000. Default 10.
        column : str, optional
            The text column, for all parts of the query that name none. Default: the only one.
        filter : str, optional
            SQL condition: the best among the rows that match. What is common is not affected.
        columns : sequence of str, optional
            Columns of the result, in order, before ``_score``. Default: all.
        consistency, at
            As for :meth:`scan`.

        Returns
        -------
        Search
            Runs on ``.to_table()``, ``.to_batches()``, ``.to_pandas()``; rows come best first.
            ``.explain()`` shows what it would do, ``.snapshot`` is the state that it saw.

        Raises
        ------
        QueryError
            If the query cannot be used, has no word but stop words, or ``k`` or a column cannot be used.
            When the search runs, if the column has no full-text index, or one without positions for a
            phrase; it says how to create one.
        SchemaError, FilterError, OptionError, InputError, SnapshotExpiredError
            As for :meth:`scan`.
        """
        request = TextRequest(query, k, column, filter, columns)
        return self._reader.search(request, consistency=consistency, at=at)

    def search_hybrid(
        self,
        vector: Any,
        text: str | TextQuery,
        k: int = 10,
        filter: str | None = None,
        columns: Sequence[str] | None = None,
        *,
        vector_column: str | None = None,
        text_column: str | None = None,
        fusion: str = "rrf",
        weights: Sequence[float] | None = None,
        rrf_k: int = 60,
        candidates: int | None = None,
        metric: str | None = None,
        nprobes: int | None = None,
        refine: int | None = None,
        consistency: str | Consistency = STRONG,
        at: SnapshotToken | str | None = None,
    ) -> Search:
        """Find the rows of the merged view that are best by vector and by text together.

        Both rankings are of one snapshot.

        Parameters
        ----------
        vector : list or array of numbers
            One query vector, as for :meth:`search`.
        text : str or query
            As for :meth:`search_text`.
        k : int
            Rows to find, from 1 to 10,000. Default 10.
        filter, columns
            As for :meth:`search`.
        vector_column, text_column : str, optional
            The columns. Default: the only one of its kind.
        fusion : str
            ``"rrf"`` (default): by reciprocal rank, each ranking adding its weight divided by ``rrf_k``
            plus the place in it. ``"weighted"``: by the weighted sum of distances and scores, each brought
            to the range from 0 for the last candidate to 1 for the best.
        weights : (float, float), optional
            Of the ranking by vector and of that by text. Default: the same.
        rrf_k : int
            Default 60.
        candidates : int, optional
            Rows of each ranking that are looked at. Default: five times ``k``, at least 50.
        metric, nprobes, refine
            As for :meth:`search`.
        consistency, at
            As for :meth:`scan`.

        Returns
        -------
        Search
            Its rows have ``_distance`` and ``_score``, null in a row that only the other ranking found,
            and ``_relevance``, by which they are ordered.

        Raises
        ------
        QueryError
            As for :meth:`search` and :meth:`search_text`, or if an option of the fusion cannot be used.
        SchemaError, FilterError, OptionError, InputError, SnapshotExpiredError
            As for :meth:`scan`.
        """
        request = HybridRequest(
            vector,
            text,
            k,
            filter,
            columns,
            vector_column=vector_column,
            text_column=text_column,
            fusion=fusion,
            weights=weights,
            rrf_k=rrf_k,
            candidates=candidates,
            metric=metric,
            nprobes=nprobes,
            refine=refine,
        )
        return self._reader.search(request, consistency=consistency, at=at)

    def snapshot(self, *, retain: timedelta | None = timedelta(hours=1)) -> SnapshotToken:
        """Return a token of the table as it is now, by which it can be read again later.

        It has every write acknowledged before the call. Of each shard it has everything up to one
        write, in commit order. And it is consistent across shards: if a client saw a write
        acknowledged before it made another one, in whatever shards, a token that has the later one
        has the earlier one.

        Parameters
        ----------
        retain : timedelta, optional
            How long garbage collection keeps what the token needs, unless it is released before.
            Default one hour. None or 0: not at all; the token is good until collection passes it.

        Raises
        ------
        OptionError
            If ``retain`` is not a length of time.
        ConflictError
            If several shards were written to without any pause for 30 seconds.

        Examples
        --------
        >>> import tempfile, pyarrow as pa, weir
        >>> schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
        >>> table = weir.create(tempfile.mkdtemp() + "/people", schema, primary_key="id")
        >>> with table.writer() as writer:
        ...     _ = writer.upsert([{"id": 1, "name": "Ada"}])
        ...     token = table.snapshot()
        ...     _ = writer.delete([1])
        >>> table.scan().count(), table.scan(at=token).count(), table.scan(at=str(token)).count()
        (0, 1, 1)
        """
        return self._reader.take_token(retain)

    def release(self, token: SnapshotToken | str) -> None:
        """Let garbage collection have what a snapshot token needs. Idempotent.

        Parameters
        ----------
        token : SnapshotToken or str
            A token of :meth:`snapshot`, or its text. Others that need the same keep it.

        Raises
        ------
        InputError
            If the token is of another table.
        """
        self._reader.release(token)

    def changes(
        self,
        since: SnapshotToken | str | None = None,
        *,
        until: SnapshotToken | str | None = None,
        before: bool = False,
        consumer: str | None = None,
        follow: bool = False,
        poll: timedelta = timedelta(seconds=1),
        timeout: timedelta | None = None,
        max_rows: int | None = None,
        batch_rows: int = 65_536,
        max_age: timedelta | None = None,
        max_wal_entries: int | None = None,
    ) -> ChangeFeed:
        """Read the upserts and deletes that were committed, per shard in commit order.

        Parameters
        ----------
        since : SnapshotToken or str, optional
            Where to begin: a token of :meth:`snapshot`, of a feed or of a batch, or its text, for
            the changes after it; ``"earliest"`` for the oldest changes that are still stored. Default:
            where the consumer has come to or, without one, every change since the table was
            created, and an error if some are not stored any more.
        until : SnapshotToken or str, optional
            Where to end. Default: at what is committed when an iteration starts.
        before : bool
            Whether each change comes with the row before it, in a struct column ``_before``. The
            table is then also read as it was at ``since``. Default False.
        consumer : str, optional
            A name under which storage keeps how far the feed has been acknowledged with
            :meth:`~weir.changes.feed.ChangeFeed.commit`, and keeps what comes after it from being
            collected. It is made when it does not exist; :meth:`drop_consumer` forgets it.
        follow : bool
            Whether an iteration that has caught up waits for more, instead of ending. Default False.
        poll : timedelta
            How long a feed that follows waits before it looks again: one listing, and a probe per
            shard. Default 1 second.
        timeout : timedelta, optional
            How long a feed that follows waits for a change before its iteration ends. Default: for ever.
        max_rows : int, optional
            The most rows of an iteration; the next one goes on. The shards take turns, and a log entry
            is never split, so that a single entry may have more. A feed that follows takes so many at a
            time, and no shard waits behind a busy one. Default: no limit, shard after shard.
        batch_rows : int
            Rows after which a batch ends, as it does after 64 MiB. The rows of one log entry are never
            split, so a batch may have more. Default 65,536.
        max_age : timedelta, optional
            How long the consumer may go without acknowledging what it was given before nothing is
            kept for it any more. Default: as before, at first 7 days.
        max_wal_entries : int, optional
            How many log entries may be kept for the consumer before nothing is. Default: as before,
            at first 1,000,000.

        Returns
        -------
        ChangeFeed
            Iterate over it for batches of changes, and again for those that have come in since.
            ``feed.token`` is the place it has come to.

        Raises
        ------
        InputError
            If a token is of another table.
        OptionError
            If an option is out of range, or contradicts another.
        SchemaError
            If the table has a column named like one that the feed adds.
        SnapshotExpiredError
            If garbage collection has removed changes that are to be read, or the consumer was
            dropped because it fell too far behind.
        ConflictError
            If another process has just made a consumer of that name.

        Examples
        --------
        >>> import tempfile, pyarrow as pa, weir
        >>> schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
        >>> table = weir.create(tempfile.mkdtemp() + "/people", schema, primary_key="id")
        >>> with table.writer() as writer:
        ...     _ = writer.upsert([{"id": 1, "name": "Ada"}])
        ...     _ = writer.delete([1])
        >>> for change in table.changes(before=True):
        ...     change.rows.select(["id", "name", "_op", "_position", "_before"]).to_pylist()
        [{'id': 1, 'name': 'Ada', '_op': 'upsert', '_position': 2, '_before': None},
         {'id': 1, 'name': None, '_op': 'delete', '_position': 3, '_before': {'id': 1, 'name': 'Ada'}}]
        """
        return open_feed(
            self._reader.feed_source,
            since,
            until,
            FeedOptions(before, batch_rows, max_rows, follow, poll, timeout),
            consumer=consumer,
            terms=ConsumerTerms(max_age, max_wal_entries),
        )

    def drop_consumer(self, name: str) -> None:
        """Forget a consumer of the change feed: nothing is kept for it any more. Idempotent.

        Parameters
        ----------
        name : str
            Its name.

        Raises
        ------
        OptionError
            If it cannot be the name of a consumer.
        """
        drop_consumer(self._store, name)

    def merge(
        self,
        *,
        runner: Runner | None = None,
        on_progress: Callable[[int, int], None] | None = None,
        policy: MergePolicy | None = None,
    ) -> MergeReport:
        """Merge every flushed generation into the base table, exactly once.

        Rows that are only in a MemTable and the WAL wait for their flush. Safe to run beside
        writers, readers and other merges. Shards that hold versions of the same keys, so that nobody knows
        which are the newest, are left alone and named in the report; :meth:`repair` joins them.

        Parameters
        ----------
        runner : Runner, optional
            Executes the tasks. Default: threads of this process.
        on_progress : callable, optional
            Called with (shards done, shards in all).
        policy : MergePolicy, optional
            Says whether there is enough to merge. Default: whatever there is, is.

        Raises
        ------
        ConflictError
            If concurrent commits did not settle.
        """
        snapshot = self._reader.take_newest()
        manifests = [view.manifest for view in snapshot.shards]
        return merge_generations(
            snapshot.base,
            manifests,
            runner or ThreadRunner(),
            policy=policy or ALWAYS,
            in_conflict=self._shards_in_conflict(snapshot),
            on_progress=on_progress,
        )

    def _shards_in_conflict(self, snapshot: ReadSnapshot) -> frozenset[UUID]:
        """Return the shards that hold versions of keys of which another shard holds versions too."""
        values = self._sharding.catalog.values_of(view.manifest for view in snapshot.shards)
        shared = find_shared_keys(snapshot, self._sharding.router, values)
        return frozenset(shard for one in shared for shard in one.shards)

    def collect_garbage(
        self,
        horizon: timedelta = DEFAULT_HORIZON,
        dry_run: bool = False,
        runner: Runner | None = None,
        on_progress: Callable[[int, int], None] | None = None,
        *,
        version_retention: timedelta | None = None,
    ) -> GarbageReport:
        """Delete what nobody needs any more: merged generations, covered log entries, old manifests.

        Lance MemWAL spec, "Garbage Collector". A call marks what is garbage, and deletes what an earlier
        call has marked at least a horizon before and is garbage still (invariant I9). So it takes two
        calls to delete something; run it from a timer. Safe to run beside everything else, twice at once,
        and again after it was killed.

        Parameters
        ----------
        horizon : timedelta
            How long something stays after it was marked. Reads, flushes and snapshots that take longer
            may fail, with an error that says so. Default 15 minutes.
        dry_run : bool
            Whether to write nothing, and only report what would be deleted, what would be marked, and
            what is kept, and why.
        runner : Runner, optional
            Executes the tasks. Default: threads of this process.
        on_progress : callable, optional
            Called with (steps done, steps in all).
        version_retention : timedelta, optional
            How long a version of the base table is retained after it was superseded, at least the
            horizon, together with every generation it lacks. Older versions are removed, unless they
            have a tag or a snapshot pins them. Default: no version is removed, and each keeps the
            generations that its own index of shards lists.

        Returns
        -------
        GarbageReport
            What was deleted, what was marked, and what is kept, each with the reason.

        Raises
        ------
        OptionError
            If a length of time is negative or too short.
        ConflictError
            If other collections or flushes got in the way of every attempt.
        CorruptionError
            If something that says what is needed cannot be read. Nothing was deleted.
        StorageError
            If the store failed. What has been deleted was garbage; call it again.

        Examples
        --------
        >>> import tempfile, pyarrow as pa, weir
        >>> from datetime import timedelta
        >>> schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
        >>> table = weir.create(tempfile.mkdtemp() + "/t", schema, primary_key="id")
        >>> with table.writer() as writer:
        ...     for n in range(3):
        ...         _ = writer.upsert([{"id": n}])
        >>> _ = table.merge()
        >>> for item in table.collect_garbage(dry_run=True).items:
        ...     print(item.objects, item.kind, "-", item.reason)
        8 generation - merged, and no manifest lists it
        3 log entries - covered by generations that are merged, up to position 4
        >>> marked = table.collect_garbage(timedelta(0))
        >>> table.collect_garbage(timedelta(0)).deleted_objects >= marked.waiting_objects
        True
        """
        return collect_garbage(
            self._base,
            runner or ThreadRunner(),
            horizon=horizon,
            version_retention=version_retention,
            dry_run=dry_run,
            on_progress=on_progress,
            fields_to_record=self._sharding.catalog.fields_to_record,
        )

    def sql(
        self,
        query: str,
        *,
        name: str = "t",
        consistency: str | Consistency = STRONG,
        at: SnapshotToken | str | None = None,
    ) -> SqlQuery:
        """Query the merged view with SQL, by DataFusion.

        Only the columns that the query needs are read, and only rows that meet its conditions: they
        use the indexes and catalogs that :meth:`scan` uses. Of ``ORDER BY ... LIMIT`` the columns that
        decide are read first, and the others of the rows that come first. What is read is held in memory.

        Parameters
        ----------
        query : str
            One query, such as ``"SELECT carrier, avg(delay) FROM t GROUP BY carrier"``. Names of columns
            are taken as they are written, capitals included.
        name : str
            What the query calls the table. Default ``"t"``.
        consistency, at
            As for :meth:`scan`. A query sees one snapshot, however often it names the table.

        Returns
        -------
        SqlQuery
            Runs on ``.to_table()``, ``.to_batches()`` and ``.to_pandas()``; ``.explain()`` shows what it
            would read.

        Raises
        ------
        QueryError
            If the query does not parse, is no query, or names what there is not.

        Examples
        --------
        >>> import tempfile, pyarrow as pa, weir
        >>> schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("carrier", pa.string())])
        >>> table = weir.create(tempfile.mkdtemp() + "/flights", schema, primary_key="id")
        >>> with table.writer() as writer:
        ...     _ = writer.upsert([{"id": 1, "carrier": "AA"}, {"id": 2, "carrier": "AA"}])
        >>> table.sql("SELECT carrier, count(*) AS flights FROM t GROUP BY carrier").to_table().to_pylist()
        [{'carrier': 'AA', 'flights': 2}]
        """
        return self._reader.sql(query, name, consistency=consistency, at=at)

    def create_index(
        self,
        column: str,
        kind: str | IndexKind | None = None,
        *,
        name: str | None = None,
        replace: bool = False,
        **parameters: Any,
    ) -> IndexDefinition:
        """Build an index on a column, and maintain it from then on.

        It covers the base table when the call returns. Generations get the same index when they are
        flushed, if they have rows enough to gain from it, and :meth:`catch_up_indexes` brings the base
        table's up to what has been merged. On a table without rows it is empty until then.

        Parameters
        ----------
        column : str
            The column.
        kind : str, optional
            ``"BTREE"``, ``"BITMAP"``, ``"ZONEMAP"``, ``"BLOOMFILTER"``, ``"NGRAM"``,
            ``"LABEL_LIST"``, ``"INVERTED"`` (full text), ``"IVF_FLAT"``, ``"IVF_PQ"`` or
            ``"IVF_HNSW_SQ"``. Default: what :class:`weir.IndexPolicy` says for the column.
        name : str, optional
            Its name. Default: the column's name and ``_idx``.
        replace : bool, default False
            Whether an index of that name is built anew.
        **parameters
            Lance's, by kind: ``num_partitions``, ``num_sub_vectors``, ``num_bits``, ``metric``, ``m``,
            ``ef_construction``, ``rows_per_zone``, ``number_of_items``, ``probability``, and the
            tokenizer's, such as ``with_position`` and ``language``.

        Returns
        -------
        IndexDefinition
            The index as it was built.

        Raises
        ------
        IndexDefinitionError
            If the column cannot have it, or a parameter is not one of the kind's.
        IndexExistsError
            If there is an index of that name, or of that kind on the column and no name was given.

        Examples
        --------
        >>> import tempfile, pyarrow as pa, weir
        >>> schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("carrier", pa.string())])
        >>> table = weir.create(tempfile.mkdtemp() + "/flights", schema, primary_key="id")
        >>> table.create_index("carrier", "BITMAP").name
        'carrier_idx'
        >>> [index.name for index in table.indexes()]
        ['carrier_idx', 'id_idx']
        """
        return create_index(
            self._base, self._sample, column, kind, name=name, replace=replace, parameters=parameters
        )

    def create_indexes(self, policy: IndexPolicy | None = None) -> tuple[IndexDefinition, ...]:
        """Build every index that a policy says and the table does not have.

        Parameters
        ----------
        policy : IndexPolicy, optional
            Decides which columns get which kinds. Default: by type and a sample of the rows.

        Returns
        -------
        tuple of IndexDefinition
            The indexes that were built.

        Raises
        ------
        IndexDefinitionError
            If a column that the policy declares does not exist, or cannot have the kind.
        """
        return create_indexes(self._base, self._sample, policy or IndexPolicy())

    def _sample(self, rows: int) -> pa.Table:
        return self._reader.scan(limit=rows, consistency=STRONG, at=None).to_table()

    def drop_index(self, name: str) -> None:
        """Drop an index. Generations that have it keep it until they are merged.

        Raises
        ------
        IndexNotFoundError
            If there is none of that name.
        IndexDefinitionError
            If it is the index of the primary key.
        """
        drop_index(self._base, name)

    def indexes(self) -> tuple[ExistingIndex, ...]:
        """Return the indexes of the base table, by name."""
        return base_indexes(self._base.latest())

    def catch_up_indexes(
        self,
        *,
        names: Sequence[str] | None = None,
        runner: Runner | None = None,
        retrain_imbalance_threshold: float = RETRAIN_IMBALANCE_THRESHOLD,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> CatchUpReport:
        """Bring the base table's indexes up to the rows that were merged into it.

        Until then searches read what an index lacks, which is right and slower. May run beside
        everything else, and twice at once.

        Parameters
        ----------
        names : sequence of str, optional
            The indexes. Default: all that are maintained.
        runner : Runner, optional
            Builds the pieces. Default: threads of this process.
        retrain_imbalance_threshold : float
            A vector index is trained again when its largest partition is more than so many times
            larger than its smallest that is not empty. Default 5.0.
        on_progress : callable, optional
            Called with (steps done, steps in all).

        Raises
        ------
        IndexNotFoundError
            If there is no index of that name.
        ConflictError
            If concurrent commits got in the way of every attempt.
        """
        return catch_up_indexes(
            self._base,
            runner or ThreadRunner(),
            names=names,
            retrain_imbalance_threshold=retrain_imbalance_threshold,
            on_progress=on_progress,
        )

    def compact(
        self,
        *,
        rows_per_fragment: int = DEFAULT_ROWS_PER_FRAGMENT,
        max_deleted: float = 0.1,
        runner: Runner | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> CompactReport:
        """Rewrite the base table's small fragments, and those with many deleted rows, into large ones.

        May run beside everything else. What a merge changes meanwhile is left for the next time.

        Parameters
        ----------
        rows_per_fragment : int
            Rows to make fragments of. Default 1,048,576.
        max_deleted : float
            Share of a fragment's rows that may be deleted before it is rewritten. Default 0.1.
        runner : Runner, optional
            Writes the new fragments. Default: threads of this process.
        on_progress : callable, optional
            Called with (rewrites done, rewrites in all).

        Raises
        ------
        OptionError
            If an option is out of range.
        """
        return compact(
            self._base,
            runner or ThreadRunner(),
            rows_per_fragment=rows_per_fragment,
            max_deleted=max_deleted,
            on_progress=on_progress,
        )

    def maintain(
        self,
        *,
        horizon: timedelta = DEFAULT_HORIZON,
        runner: Runner | None = None,
        on_progress: Callable[[str, int, int], None] | None = None,
        merge_policy: MergePolicy | None = None,
    ) -> MaintenanceReport:
        """Merge, compact, let the indexes catch up, and collect garbage: one round of each.

        Parameters
        ----------
        horizon : timedelta
            How long what is not needed any more stays after it was marked. Default 15 minutes.
        runner : Runner, optional
            Executes the tasks. Default: threads of this process.
        on_progress : callable, optional
            Called with (what is going on, steps of it done, steps of it in all): ``"merge"``,
            ``"compact"``, ``"catch up"``, ``"collect"``, one after the other.
        merge_policy : MergePolicy, optional
            Says whether there is enough to merge. Default: whatever there is, is.

        Returns
        -------
        MaintenanceReport
            What each of them did.
        """
        runner = runner or ThreadRunner()

        def reporting(what: str) -> Callable[[int, int], None] | None:
            return None if on_progress is None else partial(on_progress, what)

        return MaintenanceReport(
            merge=self.merge(runner=runner, on_progress=reporting("merge"), policy=merge_policy),
            compact=self.compact(runner=runner, on_progress=reporting("compact")),
            indexes=self.catch_up_indexes(runner=runner, on_progress=reporting("catch up")),
            garbage=self.collect_garbage(horizon=horizon, runner=runner, on_progress=reporting("collect")),
        )

    def verify(
        self,
        *,
        base_rows: bool = True,
        runner: Runner | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> VerifyReport:
        """Check every invariant of the table that storage can show. Writes nothing.

        It reads every shard manifest, log entry and generation, what tokens, consumers and garbage
        collections have stored, and the base table. Safe to run beside everything else: what looks
        wrong is looked at again, and reported only if it stays so.

        Parameters
        ----------
        base_rows : bool
            Whether to read the rows of the base table too, whose keys are held in memory for it.
            Default True.
        runner : Runner, optional
            Executes the tasks. Default: threads of this process.
        on_progress : callable, optional
            Called with (tasks done, tasks in all), as far as these are known.

        Returns
        -------
        VerifyReport
            What is not as it should be; ``report.passed`` says whether there is no error.

        Examples
        --------
        >>> import tempfile, pyarrow as pa, weir
        >>> schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
        >>> table = weir.create(tempfile.mkdtemp() + "/people", schema, primary_key="id")
        >>> with table.writer() as writer:
        ...     _ = writer.upsert([{"id": 1, "name": "Ada"}])
        >>> report = table.verify()
        >>> report.passed, report.generations, report.entries
        (True, 1, 2)
        """
        return verify_table(
            self._base, runner or ThreadRunner(), base_rows=base_rows, on_progress=on_progress
        )

    def recover(
        self,
        *,
        unleased: bool = False,
        runner: Runner | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> RecoverReport:
        """Flush what writers that are gone have left in the logs of shards, so that it can be merged.

        Claims every shard that has rows in its log and no live writer: one whose lease was released, has
        run out, or was held by a process of this machine that is gone. Shards whose lease somebody holds
        are left alone. Safe to run beside everything else, and twice at once.

        Parameters
        ----------
        unleased : bool
            Whether to claim shards on which no writer has ever taken a lease, as writers of the released
            library take none. That fences their writers, if they live. Default False.
        runner : Runner, optional
            Executes the tasks. Default: threads of this process.
        on_progress : callable, optional
            Called with (shards done, shards in all).

        Returns
        -------
        RecoverReport
            What was flushed, and what was left alone and why.

        Raises
        ------
        CorruptionError, StorageError
            If a shard could not be recovered, after every other one was.
        """
        return recover_shards(
            self._store,
            self._reader.take_newest().shards,
            runner or ThreadRunner(),
            unleased=unleased,
            on_progress=on_progress,
        )

    def repair(
        self, *, dry_run: bool = False, prefer: UUID | str | None = None, as_clone: bool = False
    ) -> RepairReport:
        """Put right what can be put right without a row lost.

        Shards that hold versions of the same keys are joined: of every key the version counts that was
        written last, by the time at which the store has its log entry. One of several shards with the same
        values is kept, and the others are sealed. What has been merged stays as it is.

        Merge progress of another table is forgotten, in a clone that something else than Weir has written.

        The newest versions of the base table that a loss of power has torn, so that their manifests or files
        are empty, short or gone, are set aside, where they can be looked at; what they had merged is merged
        again by the next merge. Every commit of Weir does this by itself, and no reader does.

        Parameters
        ----------
        dry_run : bool
            Whether only to say what would be done. Default False.
        prefer : UUID or str, optional
            The shard whose version of a key counts where several were written at the same moment.
        as_clone : bool
            Whether the table is known to be a clone, for one that does not record its place. Default False.

        Returns
        -------
        RepairReport
            What was done, or would be.

        Raises
        ------
        LeaseHeldError
            If a writer of shards that are to be joined is at work.
        ShardConflictError
            If nobody can tell which of two versions is newer, or whose progress it is.
        CorruptionError
            If the base table is damaged in a way that no repair is for. Nothing was changed.
        """
        return repair_table(
            TableShards(self._base, self._sharding.router, self._sharding.catalog.values_of),
            dry_run=dry_run,
            prefer=None if prefer is None else UUID(str(prefer)),
            as_clone=as_clone,
        )

    def status(self) -> TableStatus:
        """Return shards, epochs, lag in rows, bytes and seconds, and the progress of merges and indexes."""
        snapshot = self._reader.take_newest()
        values = self._sharding.catalog.values_of(view.manifest for view in snapshot.shards)
        return table_status(
            self._store,
            snapshot,
            values_of={shard: held.to_text() for shard, held in values.items() if held is not None},
            sharded_by=self.sharded_by,
            library_note=library_note(self._sharding.spec) or unreadable_by_library(self.schema),
            twins=find_twins(snapshot, self._sharding.router, values),
        )

    def __repr__(self) -> str:
        """Return location, key and sharding."""
        return f"Table({self.uri!r}, primary_key={self.primary_key}, sharded_by={self.sharded_by!r})"


def _opened(store: ObjectStore) -> Table:
    return Table(store, BaseTable.open(store))

"""The front door: a table, and what each call means."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from types import EllipsisType
from typing import Any, Literal

import pyarrow as pa

from weir.base.alter import alter_base_table
from weir.base.alteration import Alteration
from weir.base.property_changes import PropertyChanges
from weir.base.stored_types import unreadable_by_library
from weir.base.table import BaseTable
from weir.changes.feed import ChangeFeed, ConsumerTerms, open_feed
from weir.changes.options import FeedOptions
from weir.changes.start import EARLIEST
from weir.engine.context import EngineContext
from weir.engine.durations import Duration, as_duration, as_seconds
from weir.engine.forked import refuse_forked
from weir.engine.runner import Runner
from weir.errors import InputError, OptionError
from weir.format.merge_engine import MergeEngine
from weir.format.snapshot_token import SnapshotToken
from weir.format.source import Source
from weir.maintenance.reshard import followed_resharding, reshard
from weir.maintenance.status import TableStatus, table_status
from weir.notebook import facts_html, rows_html
from weir.read.scan import Scan
from weir.read.shared_keys import find_twins
from weir.read.sql import SqlQuery
from weir.rows import RowInput, pieces, repeatable
from weir.search.requests import HybridRequest, TextRequest, VectorRequest
from weir.search.search import Search
from weir.search.text.columns import only_indexed_column
from weir.search.text.query import TextQuery
from weir.sharding.shard_by import ShardBy
from weir.sharding.spec import describe_spec, library_note
from weir.snapshots.asked_state import At
from weir.snapshots.consumers import drop_consumer
from weir.snapshots.snapshot import STRONG, Consistency
from weir.storage.interface import ObjectStore
from weir.table.delete_appended import delete_appended
from weir.table.indexes import TableIndexes
from weir.table.inspection import TableInspection
from weir.table.internals import TableInternals
from weir.table.kept_writer import KeptWriter, release_kept
from weir.table.load import LoadResult, load_rows
from weir.table.maintenance import TableMaintenance
from weir.table.open_table import OpenTable
from weir.table.opening import shard_fields
from weir.table.tags import TableTags
from weir.table.upkeep import announce_writer
from weir.write.open_writer import open_writer
from weir.write.table_writer import TableWriter, upsert_piece
from weir.write.write_result import WriteResult, in_pieces

__all__ = ["Table"]


class Table:
    """A Weir table. Made by :func:`weir.create` and :func:`weir.open`; safe to use from many threads.

    Parameters
    ----------
    store : ObjectStore
        Where the table is.
    base : BaseTable
        Its base table at any version.
    is_tended : bool
        Whether its writers tell the upkeep of the engine of it. Default True.
    """

    def __init__(self, store: ObjectStore, base: BaseTable, *, is_tended: bool = True) -> None:
        self._opened = OpenTable(store, base)
        self._is_tended = is_tended
        self._kept = KeptWriter(self._open_writer, store.uri)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle where the table is; whoever gets it opens it as it is then."""
        return _opened, (self._table.store, self._is_tended)

    @property
    def _table(self) -> OpenTable:
        return self._opened

    @property
    def engine(self) -> EngineContext:
        """What the table shares with others of this process: its limits, threads and metrics."""
        return self._table.store.engine

    @property
    def uri(self) -> str:
        """Where the table is."""
        return self._table.store.uri

    @property
    def identity(self) -> str:
        """What tells the table from all others, also from one at the same place before or after it."""
        return self._table.base.identity

    @property
    def schema(self) -> pa.Schema:
        """The columns, as they were when the table was opened, last read or altered here."""
        return self._table.base.schema

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The columns that identify a row; none where rows are only added."""
        return self._table.base.primary_key

    @property
    def merge_engine(self) -> MergeEngine | None:
        """What the versions of a key come to; None where the last row wins."""
        return self._table.base.merge_engine

    @property
    def is_append_only(self) -> bool:
        """Whether rows are only added: no row replaces another."""
        return self._table.base.append_only is not None

    @property
    def sort_by(self) -> tuple[str, ...]:
        """The columns by which the rows of generations and fragments are sorted; most tables have none."""
        return self._table.base.sort_by

    @property
    def expiry(self) -> str | None:
        """When rows expire, for people; None if they do not."""
        expiry = self._table.base.expiry
        return None if expiry is None else str(expiry)

    @property
    def sharded_by(self) -> str:
        """How rows are split into shards, for people."""
        spec = self._table.sharding.spec
        return describe_spec(spec, self._table.base.columns_of(spec))

    @property
    def maintenance(self) -> TableMaintenance:
        """The jobs beside writers and readers: merge, compact, catch_up_indexes, collect_garbage, ..."""
        return TableMaintenance(self._table)

    @property
    def indexes(self) -> TableIndexes:
        """The table's indexes: create, drop, list, policy."""
        return TableIndexes(self._table)

    @property
    def tags(self) -> TableTags:
        """Names for states of the table, which are kept until they are dropped: create, list, drop."""
        return TableTags(self._table)

    @property
    def inspect(self) -> TableInspection:
        """What the table has stored, object by object."""
        return TableInspection(self._table)

    @property
    def internals(self) -> TableInternals:
        """What other parts of Weir need of a table, and its users do not. Not a public interface."""
        return TableInternals(self._table)

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
        release_kept(self._table.store.uri)
        return self._open_writer(**options)

    def _open_writer(self, **options: Any) -> TableWriter:
        self._table.make_own()
        sharding = self._table.sharding
        if self._is_tended:
            announce_writer(self._table.store)
        return open_writer(
            self._table.store,
            self._table.base.latest_to_change() if self._table.base.torn else self._table.base,
            sharding,
            lambda columns, where: self.scan(columns, filter=where).to_table(),
            partial(delete_appended, self._table.reader),
            followed_resharding,
            options=options,
        )

    def upsert(
        self,
        rows: RowInput,
        *,
        condition: str | None = None,
        lease_wait: Duration = 30.0,
        progress: Callable[[int], object] | None = None,
    ) -> WriteResult:
        """Insert rows, replacing those with the same primary key.

        With a writer that the table keeps for the next calls, and lets go of when nothing was written for
        five seconds. Who writes all the time, or wants other options, holds a :meth:`writer`.

        Parameters
        ----------
        rows, condition, progress
            As for :meth:`TableWriter.upsert`: a reader or an iterator is written piece by piece.
        lease_wait : timedelta or number of seconds
            How long to wait for a shard that another writer holds. Default 30 seconds.

        Returns
        -------
        WriteResult
            Where the rows are in the log.

        Raises
        ------
        SchemaError, KeyValueError, FilterError
            If the rows do not fit the table. Nothing is written.
        LeaseHeldError
            If another writer held a shard for longer than ``lease_wait``. Of a reader or an iterator, what
            came before is written.

        Examples
        --------
        >>> import tempfile, weir
        >>> table = weir.create(tempfile.mkdtemp() + "/people", [{"id": 1, "name": "Ada"}], primary_key="id")
        >>> table.upsert([{"id": 2, "name": "Grace"}]).rows
        1
        >>> _ = table.delete([1])
        >>> table.scan().to_pylist()
        [{'id': 2, 'name': 'Grace'}]
        """
        stream = pieces(rows) if condition is None else None
        if stream is not None:

            def written(piece: RowInput, first_row: int) -> WriteResult:
                return self._written(lambda writer: upsert_piece(writer, piece, first_row), lease_wait)

            return in_pieces(stream, written, progress or (lambda _: None))
        rows = repeatable(rows)
        return self._written(
            lambda writer: writer.upsert(rows, condition=condition, progress=progress), lease_wait
        )

    def load(
        self,
        rows: RowInput,
        *,
        source: Source | None = None,
        runner: Runner | None = None,
        lease_wait: Duration = 30.0,
    ) -> LoadResult:
        """Write many rows at once, straight into the base table.

        What it comes to is what :meth:`upsert` comes to, also for readers, the change feed and consumers, at
        about the speed at which Lance writes: rows go to files once, which the base table takes over where
        every row of them counts. Use it for the first rows of a table, and for some hundred thousand rows or
        more; what is unmerged is merged with it. Rows of one shard become visible together, when all of them
        are written; after that they are in the base table by one commit, or, from 16 million rows on, by
        several.

        Parameters
        ----------
        rows
            As for :meth:`TableWriter.upsert`. A reader or an iterator is held in memory for some 128 MiB.
        source : Source, optional
            As for :meth:`TableWriter.upsert`: makes the load one that may be repeated.
        runner : Runner, optional
            Executes the tasks of the merge. Default: threads of this process.
        lease_wait : timedelta or number of seconds
            As for :meth:`upsert`.

        Raises
        ------
        SchemaError, KeyValueError
            If the rows do not fit the table. Nothing is written.
        LeaseHeldError
            If another writer held a shard for longer than ``lease_wait``. Nothing is written.

        Examples
        --------
        >>> import tempfile, pyarrow as pa, weir
        >>> schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
        >>> table = weir.create(tempfile.mkdtemp() + "/people", schema, primary_key="id")
        >>> table.load([{"id": 1, "name": "Ada"}, {"id": 2, "name": "Grace"}]).rows
        2
        >>> table.scan().count()
        2
        """
        refuse_forked()
        wait = as_seconds(lease_wait, "lease_wait")
        write = partial(self._kept.write, lease_wait=wait)
        self._table.make_own()
        return load_rows(self.internals, self.maintenance, write, rows, source=source, runner=runner)

    def delete(
        self,
        keys: RowInput | None = None,
        *,
        where: str | None = None,
        condition: str | None = None,
        lease_wait: Duration = 30.0,
    ) -> WriteResult:
        """Delete rows by primary key, or those that a filter matches.

        Parameters
        ----------
        keys, where, condition
            As for :meth:`TableWriter.delete`.
        lease_wait
            As for :meth:`upsert`.

        Raises
        ------
        SchemaError, KeyValueError, FilterError, LeaseHeldError
            As for :meth:`upsert`.
        """
        if where is not None:
            if keys is not None:
                raise InputError("keys and where exclude each other", where="where")
            return self._written(lambda writer: writer.delete(where=where), lease_wait)
        keys = repeatable(keys)
        return self._written(lambda writer: writer.delete(keys, condition=condition), lease_wait)

    def update(
        self, where: str, set: Mapping[str, str], *, limit: int | None = None, lease_wait: Duration = 30.0
    ) -> WriteResult:
        """Change columns of the rows that a filter matches. See :meth:`TableWriter.update`."""
        return self._written(lambda writer: writer.update(where, set, limit=limit), lease_wait)

    def insert(self, rows: RowInput, *, lease_wait: Duration = 30.0) -> WriteResult:
        """Insert the rows whose keys do not exist yet. See :meth:`TableWriter.insert`."""
        rows = repeatable(rows)
        return self._written(lambda writer: writer.insert(rows), lease_wait)

    def patch(
        self,
        rows: RowInput,
        *,
        condition: str | None = None,
        missing: Literal["skip", "insert"] = "skip",
        lease_wait: Duration = 30.0,
    ) -> WriteResult:
        """Change some columns of rows. See :meth:`TableWriter.patch`."""
        rows = repeatable(rows)
        return self._written(
            lambda writer: writer.patch(rows, condition=condition, missing=missing), lease_wait
        )

    def _written(self, write: Callable[[TableWriter], WriteResult], lease_wait: Duration) -> WriteResult:
        refuse_forked()
        return self._kept.write(write, as_seconds(lease_wait, "lease_wait"))

    def alter(
        self,
        *,
        add: Sequence[pa.Field] | None = None,
        drop: Sequence[str] | None = None,
        rename: Mapping[str, str] | None = None,
        widen: Mapping[str, pa.DataType] | None = None,
        expire_by: str | EllipsisType | None = ...,
        expire_after: timedelta | EllipsisType = ...,
        sort_by: str | Sequence[str] | EllipsisType = ...,
        shard_by: ShardBy | Sequence[ShardBy] | None = None,
    ) -> None:
        """Add, drop, rename and widen columns, all at once, while others read and write.

        When rows expire and how they are sorted can be changed too, in the same step and by the names that
        the columns have afterwards.

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
            after the point, finer units of times of day, ``large_string`` and ``large_binary``,
            and lists of such. The column is written anew in the base table.
        expire_by : str or None, optional
            The column of times by which rows expire from now on, as in :func:`weir.create`; None: they do
            not. Rows that had expired and have not been removed yet are there again where they expire later
            or not at all.
        expire_after : timedelta, optional
            How long after that time. Default: as it is; 0 where rows did not expire.
        sort_by : str or sequence of str, optional
            Of an append-only table, the columns by which what is flushed, merged and compacted from now on
            is sorted. Open writers sort what they flush as before.
        shard_by : ShardBy or sequence of ShardBy, optional
            The rule by which rows are split into shards from now on, for more shards, fewer, or others:
            ``weir.bucket("id", 16)``. It stands alone in a call. What is flushed is merged first. Then every
            shard is flushed, sealed and merged, and writes wait for that; afterwards open writers go on in
            the new shards, by themselves. Reads, tokens and consumers of the change feed are not affected.
            From then on only Weir writes the table's shards.

        Raises
        ------
        SchemaError
            If a column is unknown, mentioned twice, or needed as it is by the primary key, the shard rule
            or an index; a name exists, is reserved or cannot be stored; a type is no wider one; a new
            column is not nullable; or something is of the wrong kind. Nothing was changed.
        OptionError
            If rows of the table cannot expire or be sorted, or ``shard_by`` does not stand alone. Nothing was
            changed.
        ShardingError
            If the table cannot be sharded so. Nothing was changed.
        ShardConflictError
            If it is to be sharded by another rule, and shards hold versions of the same keys. Nothing was
            changed.
        ConflictError
            If others committed during every attempt. Nothing was changed, or what has begun of the resharding
            goes on with the next call, or the next writer.

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
        if shard_by is not None:
            others = (add, drop, rename, widen)
            if any(others) or PropertyChanges(expire_by, expire_after, sort_by):
                raise OptionError(
                    "shard_by stands alone", where="shard_by", hint="Alter the rest in a call of its own"
                )
            fields = shard_fields(shard_by)
            self._table.make_own()
            self._table.refuse_shared_keys()
            self._table.reader.follow(reshard(self._table.base, fields))
            return
        properties = PropertyChanges(expire_by, expire_after, sort_by)
        asked = Alteration.of(add, drop, rename, widen, besides=bool(properties))
        self._table.make_own()
        self._table.reader.follow(alter_base_table(self._table.base, asked, properties))

    def scan(
        self,
        columns: Sequence[str] | None = None,
        *,
        filter: str | None = None,
        limit: int | None = None,
        consistency: str | Consistency = STRONG,
        at: At | None = None,
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
        at : SnapshotToken, str or datetime, optional
            Read the table as it was: at a token of :meth:`snapshot`, or its text; at the name of a
            :attr:`tag <tags>`; or at an instant with a time zone, or its text, by the clock of the storage,
            as far back as nothing has been collected. Instead of ``consistency``.

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
        columns = columns if columns is None or isinstance(columns, str) else list(columns)

        def remade(token: SnapshotToken | None) -> tuple[object, ...]:
            return _scan_again, (self, columns, filter, limit, str(token or self.snapshot()))

        return self._table.reader.scan(columns, filter, limit, consistency=consistency, at=at, remade=remade)

    def get(
        self,
        keys: RowInput,
        columns: Sequence[str] | None = None,
        *,
        consistency: str | Consistency = STRONG,
        at: At | None = None,
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
        return self._table.reader.get(keys, columns, consistency=consistency, at=at)

    def search(
        self,
        vector: Any,
        k: int = 10,
        *,
        column: str | None = None,
        columns: Sequence[str] | None = None,
        filter: str | None = None,
        metric: str | None = None,
        nprobes: int | None = None,
        refine: int | None = None,
        consistency: str | Consistency = STRONG,
        at: At | None = None,
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
        columns : sequence of str, optional
            Columns of the result, in order, before ``_distance``. Default: all.
        filter : str, optional
            SQL condition: the nearest among the rows that match.
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
        return self._table.reader.search(request, consistency=consistency, at=at)

    def search_text(
        self,
        query: str | TextQuery,
        k: int = 10,
        *,
        column: str | None = None,
        columns: Sequence[str] | None = None,
        filter: str | None = None,
        bm25: Mapping[str, tuple[float, float]] | None = None,
        consistency: str | Consistency = STRONG,
        at: At | None = None,
    ) -> Search:
        """Find the rows of the merged view that answer a text query best.

        Scores are BM25 by what is common among the live rows, wherever they are: what they would
        be if everything were merged and indexed. The base table needs a full-text index on the column,
        which holds texts or lists of texts: the elements of a list are as the lines of one text.

        Parameters
        ----------
        query : str or query
            Words, of which some are to occur; or a :class:`weir.MatchQuery`, :class:`weir.PhraseQuery`,
            :class:`weir.MultiMatchQuery`, :class:`weir.BooleanQuery` or :class:`weir.BoostQuery`.
        k : int
            Rows to find, from 1 to 10,000. Default 10.
        column : str, optional
            The text column, for all parts of the query that name none. Default: the only one, or the
            only one that has a full-text index.
        columns : sequence of str, optional
            Columns of the result, in order, before ``_score``. Default: all.
        filter : str, optional
            SQL condition: the best among the rows that match. What is common is not affected.
        bm25 : mapping of str to (float, float), optional
            By column ``k1``, at least 0, and ``b``, from 0 to 1. Default: 1.2 and 0.75, as in Lance.
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
        if column is None:
            column = only_indexed_column(self._table.base, query)
        request = TextRequest(query, k, column, filter, columns, bm25)
        return self._table.reader.search(request, consistency=consistency, at=at)

    def search_hybrid(
        self,
        vector: Any,
        text: str | TextQuery,
        k: int = 10,
        *,
        vector_column: str | None = None,
        text_column: str | None = None,
        columns: Sequence[str] | None = None,
        filter: str | None = None,
        fusion: str = "rrf",
        weights: Sequence[float] | None = None,
        rrf_k: int = 60,
        candidates: int | None = None,
        metric: str | None = None,
        nprobes: int | None = None,
        refine: int | None = None,
        consistency: str | Consistency = STRONG,
        at: At | None = None,
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
        vector_column, text_column : str, optional
            The columns. Default: the only one of its kind, or the only text with a full-text index.
        columns, filter
            As for :meth:`search`.
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
        if text_column is None:
            text_column = only_indexed_column(self._table.base, text)
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
        return self._table.reader.search(request, consistency=consistency, at=at)

    def sql(
        self,
        query: str,
        *,
        name: str = "t",
        consistency: str | Consistency = STRONG,
        at: At | None = None,
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
        return self._table.reader.sql(query, name, consistency=consistency, at=at)

    def snapshot(self, *, retain: Duration | None = timedelta(hours=1)) -> SnapshotToken:
        """Return a token of the table as it is now, by which it can be read again later.

        It has every write acknowledged before the call. Of each shard it has everything up to one
        write, in commit order. And it is consistent across shards: if a client saw a write
        acknowledged before it made another one, in whatever shards, a token that has the later one
        has the earlier one.

        Parameters
        ----------
        retain : timedelta or number of seconds, optional
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
        return self._table.reader.take_token(None if retain is None else as_duration(retain, "retain"))

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
        self._table.reader.release(token)

    def changes(
        self,
        since: At | None = None,
        *,
        until: At | None = None,
        before: bool = False,
        consumer: str | None = None,
        follow: bool = False,
        poll: Duration = timedelta(seconds=1),
        timeout: Duration | None = None,
        max_rows: int | None = None,
        batch_rows: int = 65_536,
        max_age: Duration | None = None,
        max_wal_entries: int | None = None,
    ) -> ChangeFeed:
        """Read the upserts and deletes that were committed, per shard in commit order.

        Parameters
        ----------
        since : SnapshotToken, str or datetime, optional
            Where to begin: a token of :meth:`snapshot`, of a feed or of a batch, or its text, a tag or an
            instant, for the changes after it; ``"earliest"`` for the oldest changes that are still stored.
            Default:
            where the consumer has come to or, without one, every change since the table was
            created, and an error if some are not stored any more. A consumer that exists goes on from
            its own place, whatever ``since`` says: it tells where a new one begins.
        until : SnapshotToken, str or datetime, optional
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
        poll : timedelta or number of seconds
            How long a feed that follows waits before it looks again: one listing, and a probe per
            shard. Default 1 second.
        timeout : timedelta or number of seconds, optional
            How long a feed that follows waits for a change before its iteration ends. Default: for ever.
        max_rows : int, optional
            The most rows of an iteration; the next one goes on. The shards take turns, and a log entry
            is never split, so that a single entry may have more. A feed that follows takes so many at a
            time, and no shard waits behind a busy one. Default: no limit, shard after shard.
        batch_rows : int
            Rows after which a batch ends, as it does after 64 MiB. The rows of one log entry are never
            split, so a batch may have more. Default 65,536.
        max_age : timedelta or number of seconds, optional
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
        reader = self._table.reader
        start = EARLIEST if isinstance(since, str) and since == EARLIEST else None
        return open_feed(
            reader.feed_source,
            start if start or since is None else reader.token_of(since, "since"),
            None if until is None else reader.token_of(until, "until"),
            FeedOptions(
                before,
                batch_rows,
                max_rows,
                follow,
                as_duration(poll, "poll"),
                None if timeout is None else as_duration(timeout, "timeout"),
            ),
            consumer=consumer,
            terms=ConsumerTerms(
                None if max_age is None else as_duration(max_age, "max_age"), max_wal_entries
            ),
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
        drop_consumer(self._table.store, name)

    def status(self) -> TableStatus:
        """Return shards, epochs, lag in rows, bytes and seconds, and the progress of merges and indexes."""
        snapshot = self._table.reader.take_newest()
        values = self._table.shard_values(snapshot)
        return table_status(
            self._table.store,
            snapshot,
            values_of={shard: held.to_text() for shard, held in values.items() if held is not None},
            sharded_by=self.sharded_by,
            library_note=library_note(self._table.sharding.spec)
            or unreadable_by_library(self.schema, self.primary_key),
            twins=find_twins(snapshot, self._table.sharding.router, values),
        )

    def __repr__(self) -> str:
        """Return location, key and sharding."""
        return f"Table({self.uri!r}, primary_key={self.primary_key}, sharded_by={self.sharded_by!r})"

    def _repr_html_(self) -> str:
        """Return location, key, sharding and columns for a notebook. Reads nothing."""
        facts = [
            ("where", self.uri),
            ("primary key", ", ".join(self.primary_key)),
            ("sharded by", self.sharded_by),
        ]
        columns = [(field.name, str(field.type), "yes" if field.nullable else "no") for field in self.schema]
        return facts_html("Weir table", facts) + rows_html(["column", "type", "nullable"], columns)


def _scan_again(
    table: Table, columns: Sequence[str] | None, filter: str | None, limit: int | None, token: str
) -> Scan:
    return table.scan(columns, filter=filter, limit=limit, at=token)


def _opened(store: ObjectStore, is_tended: bool) -> Table:
    return Table(store, BaseTable.open(store), is_tended=is_tended)

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
        Whether its writers announce it to the upkeep of the engine. Default True.
    """

    def __init__(self, store: ObjectStore, base: BaseTable, *, is_tended: bool = True) -> None:
        self._opened = OpenTable(store, base)
        self._is_tended = is_tended
        self._kept = KeptWriter(self._open_writer, store.uri)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the location of the table; the receiver opens its state of that time."""
        return _opened, (self._table.store, self._is_tended)

    @property
    def _table(self) -> OpenTable:
        return self._opened

    @property
    def engine(self) -> EngineContext:
        """What the table shares with other tables of this process: limits, threads and metrics."""
        return self._table.store.engine

    @property
    def uri(self) -> str:
        """Where the table is."""
        return self._table.store.uri

    @property
    def identity(self) -> str:
        """Unique identity of the table, different from any earlier or later table at the same location."""
        return self._table.base.identity

    @property
    def schema(self) -> pa.Schema:
        """The columns, as of the last time the table was opened, read or altered here."""
        return self._table.base.schema

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The columns that identify a row; empty if rows are only added."""
        return self._table.base.primary_key

    @property
    def merge_engine(self) -> MergeEngine | None:
        """How the versions of a key combine; None if the last row wins."""
        return self._table.base.merge_engine

    @property
    def is_append_only(self) -> bool:
        """Whether rows are only added: no row replaces another."""
        return self._table.base.append_only is not None

    @property
    def sort_by(self) -> tuple[str, ...]:
        """The columns by which the rows of generations and fragments are sorted; empty for most tables."""
        return self._table.base.sort_by

    @property
    def expiry(self) -> str | None:
        """When rows expire, as text; None if they do not."""
        expiry = self._table.base.expiry
        return None if expiry is None else str(expiry)

    @property
    def sharded_by(self) -> str:
        """How rows are split into shards, as text."""
        spec = self._table.sharding.spec
        return describe_spec(spec, self._table.base.columns_of(spec))

    @property
    def maintenance(self) -> TableMaintenance:
        """The maintenance jobs: merge, compact, catch_up_indexes, collect_garbage, ..."""
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
        """What other parts of Weir need from a table. Not a public interface."""
        return TableInternals(self._table)

    def writer(self, **options: Any) -> TableWriter:
        """Return a writer of this table, to be used as a context manager.

        It claims a shard when the first row for it arrives, and holds a lease on it from then on. A shard
        leased by another writer is left to that writer, unless ``takeover`` is set.

        Parameters
        ----------
        **options
            The fields of :class:`weir.config.WriterOptions`: ``takeover=True`` fences whoever holds the
            lease; ``lease_ttl`` says for how many seconds the shards of a vanished writer stay closed to
            others (default 300, and not at all if it was a process of this machine); ``max_memtable_rows``,
            ``max_unflushed_bytes``, ``max_wal_delay``, ... Defaults that the library recorded with the table
            for its own writers apply to the same options here.

        Raises
        ------
        OptionError
            If an option is unknown or out of range.
        ShardingError
            If the table is sharded by a column outside its key, without the promise that it is immutable.
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

        Uses a writer that the table keeps for the next calls, and releases when nothing was written for five
        seconds. To write continuously, or with other options, use a :meth:`writer`.

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
            If another writer held a shard for longer than ``lease_wait``. With a reader or an iterator,
            earlier pieces are written.

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

        The result is that of :meth:`upsert`, also for readers, the change feed and consumers, at about the
        speed at which Lance writes: rows are written to files once, and the base table takes over each file
        whose rows are all live. Use it for the first rows of a table, and for a few hundred thousand rows or
        more; unmerged rows are merged along with it. The rows of one shard become visible together, when all
        of them are written; after that one commit brings them into the base table, or several from 16 million
        rows on.

        Parameters
        ----------
        rows
            As for :meth:`TableWriter.upsert`. About 128 MiB of a reader or an iterator are held in memory.
        source : Source, optional
            As for :meth:`TableWriter.upsert`: makes the load repeatable.
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

        Expiry and sort order can be changed in the same step; they use the names that the columns have
        afterwards.

        Nothing has to be merged or flushed first: columns are identified by their field ids everywhere. A
        renamed column keeps its values; one that is dropped and added again under the same name does not get
        its old values back. Earlier snapshots are read with the columns of their time. Open writers adopt the
        new columns.

        A column in a struct is named by its path, with dots: ``"arrival.gate"``.

        Parameters
        ----------
        add : sequence of Field, optional
            New columns, null in every existing row.
        drop : sequence of str, optional
            Columns to drop.
        rename : mapping of str to str, optional
            New names by current name. All change at once: ``{"a": "b", "b": "a"}`` swaps two.
        widen : mapping of str to DataType, optional
            Wider types: integers and floats of more bits, decimals with more digits before and no fewer after
            the point, finer units of times of day, ``large_string`` and ``large_binary``, and lists of these.
            The column is rewritten in the base table.
        expire_by : str or None, optional
            The column of times by which rows expire from now on, as in :func:`weir.create`; None: they do
            not. Rows that had expired but are not removed yet become visible again if they now expire later
            or not at all.
        expire_after : timedelta, optional
            How long after that time. Default: unchanged; 0 if rows did not expire before.
        sort_by : str or sequence of str, optional
            For an append-only table, the columns by which flushes, merges and compactions sort rows from now
            on. Open writers keep the sort order they had.
        shard_by : ShardBy or sequence of ShardBy, optional
            The rule by which rows are split into shards from now on, such as ``weir.bucket("id", 16)``. It
            must be the only argument. Flushed rows are merged first. Then every shard is flushed, sealed and
            merged while writes wait; afterwards open writers continue in the new shards by themselves. Reads,
            tokens and consumers of the change feed are not affected. From then on only Weir can write the
            table's shards.

        Raises
        ------
        SchemaError
            If a column is unknown, mentioned twice, or needed unchanged by the primary key, the shard rule or
            an index; a name exists, is reserved or cannot be stored; a type is not wider; a new column is not
            nullable; or an argument is of the wrong kind. Nothing was changed.
        OptionError
            If rows of the table cannot expire or be sorted, or ``shard_by`` is not the only argument. Nothing
            was changed.
        ShardingError
            If the table cannot be sharded by this rule. Nothing was changed.
        ShardConflictError
            If the table is to be resharded while several shards hold versions of the same keys. Nothing was
            changed.
        ConflictError
            If others committed during every attempt. Nothing was changed, or a resharding that has begun
            continues with the next call or the next writer.

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
                    "shard_by cannot be combined with other changes",
                    where="shard_by",
                    hint="Alter the rest in a separate call",
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
        """Scan the merged view: base table, flushed generations and rows only in the WAL.

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
            Read the table as it was: at a token of :meth:`snapshot`, or its text; at the name of a :attr:`tag
            <tags>`; or at an instant with a time zone, or its text, by the clock of the storage, as far back
            as garbage collection has left everything. Excludes ``consistency``.

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
            If the token belongs to another table.
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
            If the token belongs to another table, or garbage collection has passed it.
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

        Only live rows are found: never a replaced version or a deleted row, wherever the newer version or the
        tombstone is stored. The base table is searched through its vector index if it has one for the metric,
        and otherwise row by row; newer rows are compared exactly, and so is a small base table that is
        searched often. Distances are always exact.

        Parameters
        ----------
        vector : list or array of numbers
            The query vector; or several, as a list of vectors or a two-dimensional array: the result then has
            ``k`` rows for each, and a column ``_query_index`` with the number of the query.
        k : int
            Rows to find, from 1 to 10,000. Default 10.
        column : str, optional
            The vector column. Default: the only one.
        columns : sequence of str, optional
            Columns of the result, in order, before ``_distance``. Default: all.
        filter : str, optional
            SQL condition: finds the nearest among the rows that match.
        metric : str, optional
            ``"l2"`` (squared), ``"cosine"`` or ``"dot"`` for floats, ``"hamming"`` for uint8. Default: that
            of the base table's index; without one ``"l2"``, or ``"hamming"``.
        nprobes : int, optional
            How many partitions of the index to search: more partitions find more of the nearest rows, and
            take longer. Default: Lance's.
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
            If the vector's dimension is not the column's, a value is not finite, or ``k``, the column, the
            metric, ``nprobes`` or ``refine`` cannot be used.
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
        """Find the rows of the merged view that best match a text query.

        Scores are BM25 with the statistics of all live rows: what they would be if everything were merged and
        indexed. The base table needs a full-text index on the column, which holds texts or lists of texts;
        the elements of a list count as lines of one text.

        Parameters
        ----------
        query : str or query
            Words, any of which may match; or a :class:`weir.MatchQuery`, :class:`weir.PhraseQuery`,
            :class:`weir.MultiMatchQuery`, :class:`weir.BooleanQuery` or :class:`weir.BoostQuery`.
        k : int
            Rows to find, from 1 to 10,000. Default 10.
        column : str, optional
            The text column for all parts of the query that name none. Default: the only text column, or the
            only one with a full-text index.
        columns : sequence of str, optional
            Columns of the result, in order, before ``_score``. Default: all.
        filter : str, optional
            SQL condition: finds the best among the rows that match. It does not affect the statistics.
        bm25 : mapping of str to (float, float), optional
            For each column ``k1``, at least 0, and ``b``, from 0 to 1. Default: 1.2 and 0.75, as in Lance.
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
            If the query cannot be used or has only stop words, or ``k`` or a column cannot be used. When the
            search runs: if the column has no full-text index, or a phrase needs one with positions; the
            message says how to create it.
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
        """Find the rows of the merged view that best match a vector and a text together.

        Both rankings use one snapshot.

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
            ``"rrf"`` (default): reciprocal rank fusion; each ranking adds its weight divided by ``rrf_k``
            plus the row's rank. ``"weighted"``: the weighted sum of distances and scores, each scaled from 0
            for the last candidate to 1 for the best.
        weights : (float, float), optional
            The weights of the vector ranking and the text ranking. Default: equal.
        rrf_k : int
            Default 60.
        candidates : int, optional
            Rows considered of each ranking. Default: five times ``k``, at least 50.
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
        """Query the merged view with SQL, through DataFusion.

        Only the columns that the query needs and the rows that meet its conditions are read, with the same
        indexes and catalogs as :meth:`scan`. For ``ORDER BY ... LIMIT`` the sort columns are read first, and
        the other columns only for the rows of the result. What is read is held in memory.

        Parameters
        ----------
        query : str
            One query, such as ``"SELECT carrier, avg(delay) FROM t GROUP BY carrier"``. Column names are
            case-sensitive.
        name : str
            What the query calls the table. Default ``"t"``.
        consistency, at
            As for :meth:`scan`. A query reads one snapshot, however often it names the table.

        Returns
        -------
        SqlQuery
            Runs on ``.to_table()``, ``.to_batches()`` and ``.to_pandas()``; ``.explain()`` shows what it
            would read.

        Raises
        ------
        QueryError
            If the query does not parse, is not a query, or names something that does not exist.

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
        """Return a token of the current state of the table, for reading it again later.

        It contains every write acknowledged before the call, and of each shard a prefix of its commit order.
        It is consistent across shards: if one write was acknowledged before a client made another, in
        whatever shards, a token that contains the later one contains the earlier one.

        Parameters
        ----------
        retain : timedelta or number of seconds, optional
            How long garbage collection keeps what the token needs, unless it is released earlier. Default one
            hour. None or 0: not at all; the token is valid until collection passes it.

        Raises
        ------
        OptionError
            If ``retain`` is not a duration.
        ConflictError
            If several shards were written without a pause for 30 seconds.

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
        """Allow garbage collection to remove what a snapshot token needs. Idempotent.

        Parameters
        ----------
        token : SnapshotToken or str
            A token of :meth:`snapshot`, or its text. What other tokens need is kept.

        Raises
        ------
        InputError
            If the token belongs to another table.
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
        """Read committed upserts and deletes, per shard in commit order.

        Parameters
        ----------
        since : SnapshotToken, str or datetime, optional
            Where to begin: a token of :meth:`snapshot`, of a feed or of a batch, or its text, a tag or an
            instant, for the changes after it; ``"earliest"`` for the oldest changes that are still stored.
            Default: the consumer's position or, without a consumer, every change since the table was created,
            with an error if some are no longer stored. An existing consumer continues from its own position;
            for it ``since`` has no effect.
        until : SnapshotToken, str or datetime, optional
            Where to end. Default: at what was committed when the iteration started.
        before : bool
            Whether each change comes with the row before it, in a struct column ``_before``. This also reads
            the table as it was at ``since``. Default False.
        consumer : str, optional
            A name under which storage records how far the feed was acknowledged with
            :meth:`~weir.changes.feed.ChangeFeed.commit`, and protects later changes from garbage collection.
            Created if it does not exist; :meth:`drop_consumer` forgets it.
        follow : bool
            Whether an iteration that has caught up waits for more instead of ending. Default False.
        poll : timedelta or number of seconds
            How long a feed that follows waits before it checks again, with one listing and a probe per shard.
            Default 1 second.
        timeout : timedelta or number of seconds, optional
            How long a feed that follows waits for a change before its iteration ends. Default: for ever.
        max_rows : int, optional
            Most rows of one iteration; the next one continues. The shards take turns. A log entry is never
            split, so a single entry may exceed the limit. A feed that follows takes this many rows at a time,
            so that no shard waits behind a busy one. Default: no limit, shard after shard.
        batch_rows : int
            Rows after which a batch ends, as it does after 64 MiB. The rows of one log entry are never
            split, so a batch may have more. Default 65,536.
        max_age : timedelta or number of seconds, optional
            How long the consumer may leave changes unacknowledged before they are no longer kept for it.
            Default: unchanged; 7 days for a new consumer.
        max_wal_entries : int, optional
            How many log entries are kept for the consumer at most; beyond that none are. Default: unchanged;
            1,000,000 for a new consumer.

        Returns
        -------
        ChangeFeed
            Iterate over it for batches of changes, and again for those that have come in since.
            ``feed.token`` is the position it has reached.

        Raises
        ------
        InputError
            If a token is of another table.
        OptionError
            If an option is out of range or contradicts another.
        SchemaError
            If the table has a column named like one that the feed adds.
        SnapshotExpiredError
            If garbage collection has removed changes that would be read, or the consumer was dropped because
            it fell too far behind.
        ConflictError
            If another process has just created a consumer of that name.

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
        """Drop a consumer of the change feed: nothing more is kept for it. Idempotent.

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

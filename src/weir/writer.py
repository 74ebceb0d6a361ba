"""The writer of a table: checks rows, routes them to shards, and waits until they are durable."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, NoReturn, TypeVar, overload
from uuid import UUID

import pyarrow as pa

from weir.config import WriterOptions
from weir.errors import WriterClosedError, WriterError
from weir.format.wal_entry import wal_schema
from weir.rows import (
    RowInput,
    as_key_table,
    as_row_tables,
    check_deletable,
    tombstone_batches,
    upsert_batches,
)
from weir.shard.backpressure import MergeBacklog, UnflushedBytes
from weir.shard.group_commit import PendingWrite
from weir.shard.heartbeat import Heartbeat
from weir.shard.lease import LeaseTerms
from weir.shard.writer import ShardWriter
from weir.sharding.router import Router
from weir.sharding.shard_values import ShardValues
from weir.throttle import background

__all__ = ["SharedByShards", "TableWriter", "WriteReceipt"]


_MAX_BACKGROUND_FLUSHES = 2
_MAX_PARALLEL_WRITES = 16
_MAX_PARALLEL_CLAIMS = 16

_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class WriteReceipt:
    """What a durable write left in the WAL.

    Parameters
    ----------
    rows : int
        Rows written, tombstones included.
    positions : mapping of UUID to int
        For every shard the rows went to, the WAL position that made the last of them durable.
    """

    rows: int
    positions: Mapping[UUID, int]


@dataclass(frozen=True, slots=True)
class SharedByShards:
    """What the shards of one table writer have in common.

    Parameters
    ----------
    flusher : Executor
        Runs their flushes in the background.
    lease_terms : LeaseTerms
        How their leases are taken.
    heartbeat : Heartbeat
        Renews them.
    unflushed : UnflushedBytes
        Bounds the memory of their rows.
    backlog : MergeBacklog
        Bounds the generations that wait for a merge.
    """

    flusher: Executor
    lease_terms: LeaseTerms
    heartbeat: Heartbeat
    unflushed: UnflushedBytes
    backlog: MergeBacklog


class TableWriter:
    """Writes upserts and deletes into the shards of a table.

    Made by :meth:`weir.table.Table.writer`; use it as a context manager. It claims a shard when the
    first row reaches it and then owns it until closed or fenced; a lease on it is renewed all the
    while. Safe to use from many threads.

    Parameters
    ----------
    schema : Schema
        The table's columns.
    primary_key : tuple of str
        Primary-key columns.
    router : Router
        Splits rows by shard.
    find_shards : callable
        Returns which shards hold, or will hold, the rows with some shard values.
    open_shard : callable
        Claims a shard; takes its id, its shard values, and what it shares with the others.
    options : WriterOptions
        Limits.
    where : str
        The table, for errors.
    merge_progress : callable
        Reads from the base table how far merges have got; returns what gives the newest merged
        generation of a shard.
    """

    def __init__(
        self,
        schema: pa.Schema,
        primary_key: tuple[str, ...],
        router: Router,
        find_shards: Callable[[Collection[ShardValues]], Mapping[ShardValues, UUID]],
        open_shard: Callable[[UUID, ShardValues, SharedByShards], ShardWriter],
        options: WriterOptions,
        *,
        where: str,
        merge_progress: Callable[[], Callable[[UUID], int]],
    ) -> None:
        self._schema = schema
        self._wal_schema = wal_schema(schema)
        self._primary_key = primary_key
        self._router = router
        self._find_shards = find_shards
        self._open_shard = open_shard
        self._shards: dict[ShardValues, ShardWriter] = {}
        self._opening = threading.Lock()
        self._closed = False
        self._process_id = os.getpid()
        self._flusher = ThreadPoolExecutor(
            min(_MAX_BACKGROUND_FLUSHES, os.cpu_count() or 1), thread_name_prefix="weir-flush"
        )
        self._appender = ThreadPoolExecutor(_MAX_PARALLEL_WRITES, thread_name_prefix="weir-write")
        timeout = options.backpressure_timeout
        self._unflushed = UnflushedBytes(options.max_unflushed_bytes, timeout=timeout, where=where)
        self._heartbeat = Heartbeat()
        self._shared = SharedByShards(
            flusher=self._flusher,
            lease_terms=LeaseTerms(ttl=options.lease_ttl, takeover=options.takeover),
            heartbeat=self._heartbeat,
            unflushed=self._unflushed,
            backlog=MergeBacklog(
                options.max_unmerged_generations,
                timeout=timeout,
                where=where,
                merge_progress=merge_progress,
            ),
        )
        # A writer that is dropped without being closed lets its leases run out.
        self._on_collection = weakref.finalize(self, self._heartbeat.abandon)
        self._on_collection.atexit = False

    @overload
    def upsert(self, data: RowInput, *, wait: Literal[True] = True) -> WriteReceipt: ...
    @overload
    def upsert(self, data: RowInput, *, wait: Literal[False]) -> Future[WriteReceipt]: ...
    @overload
    def upsert(self, data: RowInput, *, wait: bool) -> WriteReceipt | Future[WriteReceipt]: ...
    def upsert(self, data: RowInput, *, wait: bool = True) -> WriteReceipt | Future[WriteReceipt]:
        """Insert rows, replacing those with the same primary key.

        Parameters
        ----------
        data : table-like
            Arrow table, batch or reader, pandas or polars data frame, list of dicts, dict of
            columns. Columns are matched by name; a nullable column that is missing becomes null.
        wait : bool
            Whether to return only when every row is durable (invariant I1). Otherwise a future is
            returned as soon as the rows are queued, which takes no longer than there is room.

        Returns
        -------
        WriteReceipt or Future of WriteReceipt
            Where the rows are in the WAL. Rows of one shard become durable and visible together
            and in order; shards are independent of each other.

        Raises
        ------
        SchemaError, KeyValueError
            If the data does not fit the table. Nothing is written; of a record batch reader,
            nothing from the bad batch on.
        LeaseHeldError
            If another writer holds the lease of a shard that this one would have to claim. Nothing
            was written.
        FencedError
            If another writer has claimed a shard, or this one has lost its lease.
        BackpressureError
            If flushes or merges did not make room in time. Nothing was written; of a record batch
            reader, nothing from the batch on that had to wait.
        StorageError
            If the store failed; writing the same rows again is safe.
        """
        self._refuse_if_closed()
        background.foreground()
        tables = as_row_tables(data, self._schema, self._primary_key)
        if not wait:
            # Copied out of the stream first: after returning, the caller may change what it holds.
            batches = [batch for table in tables for batch in upsert_batches(table, self._wal_schema)]
            return self._write_later(batches)
        receipt = WriteReceipt(0, {})
        for table in tables:
            receipt = _joined(receipt, self._write(upsert_batches(table, self._wal_schema)))
        return receipt

    @overload
    def delete(self, keys: RowInput, *, wait: Literal[True] = True) -> WriteReceipt: ...
    @overload
    def delete(self, keys: RowInput, *, wait: Literal[False]) -> Future[WriteReceipt]: ...
    @overload
    def delete(self, keys: RowInput, *, wait: bool) -> WriteReceipt | Future[WriteReceipt]: ...
    def delete(self, keys: RowInput, *, wait: bool = True) -> WriteReceipt | Future[WriteReceipt]:
        """Delete rows by primary key. Keys that do not exist are no error.

        Parameters
        ----------
        keys : list, Array or table-like
            Keys alone (a list of values, or of tuples for a composite key) or rows that hold them.
        wait : bool
            As for :meth:`upsert`.

        Raises
        ------
        SchemaError
            If a column outside the key cannot be null, since a tombstone could not be stored, or if
            a value does not fit its key column.
        KeyValueError
            If a key is missing or null.
        LeaseHeldError, FencedError, BackpressureError, StorageError
            As for :meth:`upsert`.
        """
        self._refuse_if_closed()
        background.foreground()
        check_deletable(self._schema, self._primary_key)
        also = self._router.source_columns
        table = as_key_table(keys, self._schema, self._primary_key, also=also)
        batches = tombstone_batches(table, self._wal_schema)
        return self._write(batches) if wait else self._write_later(batches)

    def flush(self) -> None:
        """Flush every shard's MemTable to a generation, and wait for it.

        Raises
        ------
        WriterClosedError
            If the writer is closed, or is being closed without a flush by another thread.
        FencedError
            If another writer has claimed a shard.
        StorageError
            If the store failed; the rows stay durable in the WAL.
        """
        self._refuse_if_closed()
        self._for_each_shard(ShardWriter.flush)

    def close(self) -> None:
        """Write what is queued, flush unless the options say otherwise, and let go. Idempotent.

        In a forked process it does nothing: the writer is its parent's.

        Raises
        ------
        WeirError
            The first failure, after every shard has been closed.
        """
        if self._is_of_another_process():
            self._closed = True
            return
        self._refuse_more()
        try:
            self._for_each_shard(ShardWriter.close)
        finally:
            self._shut_down()

    @property
    def epochs(self) -> dict[UUID, int]:
        """Writer epoch of every shard this writer has claimed."""
        return {writer.shard_id: writer.epoch for writer in list(self._shards.values())}

    def __enter__(self) -> TableWriter:
        """Return the writer itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the writer; after an error, let go of the shards without flushing."""
        if error is None:
            self.close()
            return
        # What failed is the news; that closing fails after it, fenced for example, is not.
        if self._is_of_another_process():
            self._closed = True
            return
        self._refuse_more()
        for writer in self._shards.values():
            writer.abandon()
        self._shut_down()

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled."""
        raise WriterError(
            "a writer cannot be pickled: it owns its shards in this process",
            hint="Open the table in the other process and make a writer there",
        )

    def _write(self, batches: list[pa.RecordBatch]) -> WriteReceipt:
        queued = self._enqueued(batches)
        if len(queued) == 1:
            shard, pending = queued[0]
            return WriteReceipt(pending.batch.num_rows, {shard.shard_id: shard.settle(pending)})
        # Each shard gets its rows in order; shards wait for their storage side by side.
        return self._settled(queued).result()

    def _write_later(self, batches: list[pa.RecordBatch]) -> Future[WriteReceipt]:
        return self._settled(self._enqueued(batches))

    def _enqueued(self, batches: list[pa.RecordBatch]) -> list[tuple[ShardWriter, PendingWrite]]:
        """Queue rows at their shards: all of them, or on an error none."""
        routed = [item for batch in batches for item in self._router.route(batch)]
        self._open([values for values, _ in routed if values not in self._shards])
        prepared = [(shard := self._shards[values], shard.prepare(rows)) for values, rows in routed]
        if prepared:
            self._unflushed.admit(sum(pending.held_bytes for _, pending in prepared))
        for shard, pending in prepared:
            shard.enqueue(pending)
        return prepared

    def _settled(self, queued: list[tuple[ShardWriter, PendingWrite]]) -> Future[WriteReceipt]:
        waiting = [(shard.shard_id, _run(self._appender, shard.settle, pending)) for shard, pending in queued]
        return _when_all(sum(pending.batch.num_rows for _, pending in queued), waiting)

    def _open(self, wanted: Collection[ShardValues]) -> None:
        """Claim shards: all of them, or raise what the first that failed died of."""
        if not wanted:
            return
        with self._opening:
            # Whoever closes the writer closes the shards that are open by then.
            self._refuse_if_closed()
            missing = [values for values in dict.fromkeys(wanted) if values not in self._shards]
            shard_ids = self._find_shards(missing)

            def claim(values: ShardValues) -> None:
                self._shards[values] = self._open_shard(shard_ids[values], values, self._shared)

            if len(missing) == 1:
                claim(missing[0])
                return
            # A claim is a score of round trips, one after the other.
            pool = ThreadPoolExecutor(_MAX_PARALLEL_CLAIMS, thread_name_prefix="weir-claim")
            try:
                for claimed in [_run(pool, claim, values) for values in missing]:
                    claimed.result()
            finally:
                pool.shutdown(cancel_futures=True)

    def _for_each_shard(self, action: Callable[[ShardWriter], None]) -> None:
        futures = [_run(self._appender, action, shard) for shard in list(self._shards.values())]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]

    def _refuse_more(self) -> None:
        """Take no more rows, and claim no more shards."""
        with self._opening:
            self._closed = True

    def _shut_down(self) -> None:
        self._on_collection.detach()
        self._heartbeat.stop()
        self._appender.shutdown()
        self._flusher.shutdown()

    def _refuse_if_closed(self) -> None:
        if self._is_of_another_process():
            raise WriterError(
                f"the writer belongs to process {self._process_id}, which this one was forked from",
                hint="Open the table in this process and make a writer there, for other shards",
            )
        if self._closed:
            raise WriterClosedError("the writer is closed", hint="Open a new one with table.writer()")

    def _is_of_another_process(self) -> bool:
        # After a fork there are two copies of the writer and one lease: both would append at the same
        # position, with the same epoch. The copy has none of the threads either.
        return os.getpid() != self._process_id


def _run(pool: Executor, action: Callable[[_Argument], _Result], argument: _Argument) -> Future[_Result]:
    """Run ``action`` on a thread; here, if none is to be had since writer or process are ending."""
    try:
        return pool.submit(action, argument)
    except RuntimeError:
        done: Future[_Result] = Future()
        try:
            done.set_result(action(argument))
        except Exception as error:
            done.set_exception(error)
        return done


def _joined(one: WriteReceipt, other: WriteReceipt) -> WriteReceipt:
    return WriteReceipt(one.rows + other.rows, {**one.positions, **other.positions})


def _when_all(rows: int, pending: list[tuple[UUID, Future[int]]]) -> Future[WriteReceipt]:
    """Return a future of the receipt, done when the last of ``pending`` is."""
    whole: Future[WriteReceipt] = Future()
    whole.set_running_or_notify_cancel()
    left = len(pending)
    lock = threading.Lock()

    def settle(_: object) -> None:
        nonlocal left
        with lock:
            left -= 1
            if left > 0:
                return
        errors = [error for _, future in pending if (error := future.exception()) is not None]
        if errors:
            whole.set_exception(errors[0])
        else:
            positions: dict[UUID, int] = {}
            for shard_id, future in pending:
                positions[shard_id] = max(positions.get(shard_id, 0), future.result())
            whole.set_result(WriteReceipt(rows, positions))

    if not pending:
        settle(None)
    for _, future in pending:
        future.add_done_callback(settle)
    return whole

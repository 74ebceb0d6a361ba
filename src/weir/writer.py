"""The writer of a table: checks rows, routes them to shards, and waits until they are durable."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, NoReturn, ParamSpec, TypeVar, overload
from uuid import UUID

import pyarrow as pa

from weir.config import WriterOptions
from weir.errors import InputError, WriterClosedError, WriterError
from weir.format.source import Source
from weir.format.wal_entry import wal_schema
from weir.rows import (
    RowInput,
    as_key_table,
    as_row_tables,
    change_table,
    check_deletable,
    tombstone_batches,
    upsert_batches,
)
from weir.shard.backpressure import MergeBacklog, UnflushedBytes
from weir.shard.group_commit import PendingWrite
from weir.shard.heartbeat import Heartbeat
from weir.shard.holder import new_holder
from weir.shard.lease import LeaseTerms
from weir.shard.publish import StagedGeneration
from weir.shard.writer import ShardWriter
from weir.sharding.router import Router
from weir.sharding.shard_values import ShardValues
from weir.throttle import background

__all__ = ["SharedByShards", "TableWriter", "WriteReceipt"]


_MAX_BACKGROUND_FLUSHES = 2
_MAX_PARALLEL_WRITES = 16
_MAX_PARALLEL_CLAIMS = 16

_Routed = tuple[ShardValues, pa.RecordBatch]

_Arguments = ParamSpec("_Arguments")
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
    passed_over : tuple of UUID, default ()
        Shards to which nothing was written, because they have the rows already: those of a write with
        the same source and this number, or a higher one.
    """

    rows: int
    positions: Mapping[UUID, int]
    passed_over: tuple[UUID, ...] = ()


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
            lease_terms=LeaseTerms(options.lease_ttl, options.takeover, new_holder(options.holder)),
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
    def upsert(
        self, data: RowInput, *, wait: Literal[True] = True, source: Source | None = None
    ) -> WriteReceipt: ...
    @overload
    def upsert(
        self, data: RowInput, *, wait: Literal[False], source: Source | None = None
    ) -> Future[WriteReceipt]: ...
    @overload
    def upsert(
        self, data: RowInput, *, wait: bool, source: Source | None = None
    ) -> WriteReceipt | Future[WriteReceipt]: ...
    def upsert(
        self, data: RowInput, *, wait: bool = True, source: Source | None = None
    ) -> WriteReceipt | Future[WriteReceipt]:
        """Insert rows, replacing those with the same primary key.

        Parameters
        ----------
        data : table-like
            Arrow table, batch or reader, pandas or polars data frame, list of dicts, dict of
            columns. Columns are matched by name; a nullable column that is missing becomes null.
        wait : bool
            Whether to return only when every row is durable (invariant I1). Otherwise a future is
            returned as soon as the rows are queued, which takes no longer than there is room.
        source : Source, optional
            Makes the write one that may be repeated: a shard that has rows of the same source with this
            number, or a higher one, passes them over. Each shard takes its rows and the mark together or
            not at all, so after an error, or a crash, the same call does what is missing. A record batch
            reader is read to its end first.

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
        if source is not None:
            batches = [batch for table in tables for batch in upsert_batches(table, self._wal_schema)]
            return self._write_once(pa.Table.from_batches(batches, self._wal_schema), source, wait)
        if not wait:
            # Copied out of the stream first: after returning, the caller may change what it holds.
            batches = [batch for table in tables for batch in upsert_batches(table, self._wal_schema)]
            return self._write_later(batches)
        receipt = WriteReceipt(0, {})
        for table in tables:
            receipt = _joined(receipt, self._write(upsert_batches(table, self._wal_schema)))
        return receipt

    @overload
    def delete(
        self, keys: RowInput, *, wait: Literal[True] = True, source: Source | None = None
    ) -> WriteReceipt: ...
    @overload
    def delete(
        self, keys: RowInput, *, wait: Literal[False], source: Source | None = None
    ) -> Future[WriteReceipt]: ...
    @overload
    def delete(
        self, keys: RowInput, *, wait: bool, source: Source | None = None
    ) -> WriteReceipt | Future[WriteReceipt]: ...
    def delete(
        self, keys: RowInput, *, wait: bool = True, source: Source | None = None
    ) -> WriteReceipt | Future[WriteReceipt]:
        """Delete rows by primary key. Keys that do not exist are no error.

        Parameters
        ----------
        keys : list, Array or table-like
            Keys alone (a list of values, or of tuples for a composite key) or rows that hold them.
        wait, source
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
        if source is not None:
            return self._write_once(pa.Table.from_batches(batches, self._wal_schema), source, wait)
        return self._write(batches) if wait else self._write_later(batches)

    def apply(self, changes: RowInput, *, source: Source | None = None) -> WriteReceipt:
        """Upsert and delete in one go: every row does to its key what its column ``_op`` says.

        Rows count in their order, so of several with one key the last. What goes to one shard becomes
        durable and visible together.

        Parameters
        ----------
        changes : table-like
            As for :meth:`upsert`, with an optional column ``_op`` of ``"upsert"``, as where it is null,
            and ``"delete"``. Of a row that deletes only its key counts, and what decides its shard. A
            record batch reader is read to its end first.
        source : Source, optional
            As for :meth:`upsert`.

        Returns
        -------
        WriteReceipt
            As for :meth:`upsert`.

        Raises
        ------
        InputError
            If an operation is unknown; and as for :meth:`upsert` and :meth:`delete`. Nothing is written.
        LeaseHeldError, FencedError, BackpressureError, StorageError
            As for :meth:`upsert`.
        """
        self._refuse_if_closed()
        background.foreground()
        also = self._router.source_columns
        table = change_table(changes, self._schema, self._wal_schema, self._primary_key, also=also)
        return self._settled(self._enqueued(self._whole(table), source)).result()

    def apply_routed(
        self, changes: Sequence[tuple[ShardValues, pa.Table]], *, source: Source | None = None
    ) -> WriteReceipt:
        """Write rows that somebody else has checked and routed, each shard's as one log entry.

        Parameters
        ----------
        changes : sequence of (ShardValues, Table)
            Every shard once, with its rows in the schema of WAL entries.
        source : Source, optional
            As for :meth:`upsert`.
        """
        self._refuse_if_closed()
        background.foreground()
        return self._settled(self._enqueued([_one_batch(item) for item in changes], source)).result()

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

    def pause(self) -> None:
        """Let others have the shards until something is written here again.

        For a writer that writes now and then, and is not to keep others away meanwhile. What is known of
        a shard is kept: its next write takes the lease back with one round trip, where a new writer would
        claim the shard with a score of them. If another writer has held a shard meanwhile, a write to it
        fails with :class:`~weir.errors.FencedError`; a new writer then finds what the other has left.

        Waits until what is queued is written, and for flushes that run.

        Raises
        ------
        WriterClosedError
            If the writer is closed.
        """
        self._refuse_if_closed()
        self._for_each_shard(ShardWriter.pause)

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

    def publish_routed(
        self,
        staged: Sequence[tuple[ShardValues, Sequence[StagedGeneration]]],
        *,
        source: Source | None = None,
    ) -> WriteReceipt:
        """Publish generations that were staged, each shard's in one step.

        Parameters
        ----------
        staged : sequence of (ShardValues, sequence of StagedGeneration)
            Every shard once, with what was staged for it, in the order in which it counts.
        source : Source, optional
            As for :meth:`upsert`.

        Raises
        ------
        StorageError
            If something was staged too long ago, or if the store failed.
        LeaseHeldError, FencedError, BackpressureError
            As for :meth:`upsert`.
        """
        self._refuse_if_closed()
        background.foreground()
        shards = self._open([values for values, _ in staged])
        work = [
            (shard, _run(self._appender, shard.publish, generations, source))
            for shard, (_, generations) in zip(shards, staged, strict=True)
        ]
        errors = [error for _, future in work if (error := future.exception()) is not None]
        if errors:
            raise errors[0]
        rows, positions, passed_over = 0, {}, []
        for (shard, future), (_, generations) in zip(work, staged, strict=True):
            position = future.result()
            if position is None:
                passed_over.append(shard.shard_id)
            else:
                positions[shard.shard_id] = position
                rows += sum(one.flushed.physical_rows for one in generations)
        return WriteReceipt(rows, positions, tuple(passed_over))

    def _write_once(self, rows: pa.Table, source: Source, wait: bool) -> WriteReceipt | Future[WriteReceipt]:
        settled = self._settled(self._enqueued(self._whole(rows), source))
        return settled.result() if wait else settled

    def _whole(self, rows: pa.Table) -> list[_Routed]:
        """Split rows by shard, each shard's as one batch: what is in one batch is in one log entry."""
        return [_one_batch(item) for item in self._router.route(rows)]

    def _routed(self, batches: list[pa.RecordBatch]) -> list[_Routed]:
        return [item for batch in batches for item in self._router.route(batch)]

    def _write(self, batches: list[pa.RecordBatch]) -> WriteReceipt:
        queued = self._enqueued(self._routed(batches))
        if len(queued) == 1:
            shard, pending = queued[0]  # which has no mark
            return WriteReceipt(pending.batch.num_rows, {shard.shard_id: shard.settle(pending)})
        # Each shard gets its rows in order; shards wait for their storage side by side.
        return self._settled(queued).result()

    def _write_later(self, batches: list[pa.RecordBatch]) -> Future[WriteReceipt]:
        return self._settled(self._enqueued(self._routed(batches)))

    def _enqueued(
        self, routed: list[_Routed], source: Source | None = None
    ) -> list[tuple[ShardWriter, PendingWrite]]:
        """Queue rows at their shards: all of them, or on an error none."""
        shards = self._open([values for values, _ in routed])
        prepared = [
            (shard, shard.prepare(rows, source)) for shard, (_, rows) in zip(shards, routed, strict=True)
        ]
        if prepared:
            self._unflushed.admit(sum(pending.held_bytes for _, pending in prepared))
        for shard, pending in prepared:
            shard.enqueue(pending)
        return prepared

    def _settled(self, queued: list[tuple[ShardWriter, PendingWrite]]) -> Future[WriteReceipt]:
        return _when_all(
            [
                (shard.shard_id, pending, _run(self._appender, shard.settle, pending))
                for shard, pending in queued
            ]
        )

    def _open(self, wanted: Collection[ShardValues]) -> list[ShardWriter]:
        """Return the writers of shards; those that are not ours yet are claimed first."""
        if any(values not in self._shards for values in wanted):
            with self._opening:
                # Whoever closes the writer closes the shards that are open by then.
                self._refuse_if_closed()
                self._claim([values for values in dict.fromkeys(wanted) if values not in self._shards])
        return [self._shards[values] for values in wanted]

    def _claim(self, missing: list[ShardValues]) -> None:
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


def _run(
    pool: Executor,
    action: Callable[_Arguments, _Result],
    *arguments: _Arguments.args,
    **named: _Arguments.kwargs,
) -> Future[_Result]:
    """Run ``action`` on a thread; here, if none is to be had since writer or process are ending."""
    try:
        return pool.submit(action, *arguments, **named)
    except RuntimeError:
        done: Future[_Result] = Future()
        try:
            done.set_result(action(*arguments, **named))
        except Exception as error:
            done.set_exception(error)
        return done


def _joined(one: WriteReceipt, other: WriteReceipt) -> WriteReceipt:
    return WriteReceipt(one.rows + other.rows, {**one.positions, **other.positions})


def _one_batch(item: tuple[ShardValues, pa.Table]) -> _Routed:
    values, rows = item
    batches = rows.combine_chunks().to_batches()
    if len(batches) > 1:
        raise InputError(
            f"the {rows.num_rows} rows for one shard are more than one log entry holds: a text or binary "
            "column has more than 2 GiB",
            where=str(values) or None,
            hint="Write them in parts, each with a number of its own",
        )
    return values, batches[0]


def _when_all(queued: list[tuple[UUID, PendingWrite, Future[int]]]) -> Future[WriteReceipt]:
    """Return a future of the receipt, done when the last of ``queued`` is."""
    whole: Future[WriteReceipt] = Future()
    whole.set_running_or_notify_cancel()
    left = len(queued)
    lock = threading.Lock()

    def settle(_: object) -> None:
        nonlocal left
        with lock:
            left -= 1
            if left > 0:
                return
        errors = [error for _, _, future in queued if (error := future.exception()) is not None]
        if errors:
            whole.set_exception(errors[0])
            return
        positions: dict[UUID, int] = {}
        written = [item for item in queued if not item[1].passed_over]
        for shard_id, _, future in written:
            positions[shard_id] = max(positions.get(shard_id, 0), future.result())
        rows = sum(pending.batch.num_rows for _, pending, _ in written)
        passed_over = tuple(shard_id for shard_id, pending, _ in queued if pending.passed_over)
        whole.set_result(WriteReceipt(rows, positions, passed_over))

    if not queued:
        settle(None)
    for _, _, future in queued:
        future.add_done_callback(settle)
    return whole

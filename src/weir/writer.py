"""The writer of a table: checks rows, routes them to shards, and waits until they are durable."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, NoReturn, overload
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
from weir.shard.writer import ShardWriter
from weir.sharding.router import Router
from weir.sharding.shard_values import ShardValues

__all__ = ["TableWriter", "WriteReceipt"]

_MAX_BACKGROUND_FLUSHES = 2
_MAX_PARALLEL_WRITES = 16


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


class TableWriter:
    """Writes upserts and deletes into the shards of a table.

    Made by :meth:`weir.table.Table.writer`; use it as a context manager. It claims a shard when the
    first row reaches it and then owns it until closed or fenced. Safe to use from many threads.

    Parameters
    ----------
    schema : Schema
        The table's columns.
    primary_key : tuple of str
        Primary-key columns.
    router : Router
        Splits rows by shard.
    open_shard : callable
        Claims the shard of some shard values; takes the executor for its background flushes.
    options : WriterOptions
        Limits.
    """

    def __init__(
        self,
        schema: pa.Schema,
        primary_key: tuple[str, ...],
        router: Router,
        open_shard: Callable[[ShardValues, ThreadPoolExecutor], ShardWriter],
        options: WriterOptions,
    ) -> None:
        self._schema = schema
        self._wal_schema = wal_schema(schema)
        self._primary_key = primary_key
        self._router = router
        self._open_shard = open_shard
        self._options = options
        self._shards: dict[ShardValues, ShardWriter] = {}
        self._opening = threading.Lock()
        self._closed = False
        self._flusher = ThreadPoolExecutor(
            min(_MAX_BACKGROUND_FLUSHES, os.cpu_count() or 1), thread_name_prefix="weir-flush"
        )
        self._appender = ThreadPoolExecutor(_MAX_PARALLEL_WRITES, thread_name_prefix="weir-write")

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
            returned at once.

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
        FencedError
            If another writer has claimed a shard.
        BackpressureError
            If flushes did not make room in time.
        StorageError
            If the store failed; writing the same rows again is safe.
        """
        self._refuse_if_closed()
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
        FencedError, BackpressureError, StorageError
            As for :meth:`upsert`.
        """
        self._refuse_if_closed()
        check_deletable(self._schema, self._primary_key)
        also = self._router.source_columns
        table = as_key_table(keys, self._schema, self._primary_key, also=also)
        batches = tombstone_batches(table, self._wal_schema)
        return self._write(batches) if wait else self._write_later(batches)

    def flush(self) -> None:
        """Flush every shard's MemTable to a generation, and wait for it.

        Raises
        ------
        FencedError
            If another writer has claimed a shard.
        StorageError
            If the store failed; the rows stay durable in the WAL.
        """
        self._refuse_if_closed()
        self._for_each_shard(ShardWriter.flush)

    def close(self) -> None:
        """Write what is queued, flush unless the options say otherwise, and let go. Idempotent.

        Raises
        ------
        WeirError
            The first failure, after every shard has been closed.
        """
        self._closed = True
        try:
            self._for_each_shard(ShardWriter.close)
        finally:
            self._appender.shutdown()
            self._flusher.shutdown()

    @property
    def epochs(self) -> dict[UUID, int]:
        """Writer epoch of every shard this writer has claimed."""
        return {writer.shard_id: writer.epoch for writer in self._shards.values()}

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
        self._closed = True
        for writer in self._shards.values():
            writer.abandon()
        self._appender.shutdown()
        self._flusher.shutdown()

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled."""
        raise WriterError(
            "a writer cannot be pickled: it owns its shards in this process",
            hint="Open the table in the other process and make a writer there",
        )

    def _write(self, batches: list[pa.RecordBatch]) -> WriteReceipt:
        routed = [item for batch in batches for item in self._router.route(batch)]
        if len(routed) == 1:
            values, rows = routed[0]
            shard = self._shard(values)
            return WriteReceipt(rows.num_rows, {shard.shard_id: shard.write(rows)})
        # Each shard gets its rows in order; shards wait for their storage side by side.
        return self._write_routed(routed).result() if routed else WriteReceipt(0, {})

    def _write_later(self, batches: list[pa.RecordBatch]) -> Future[WriteReceipt]:
        return self._write_routed([item for batch in batches for item in self._router.route(batch)])

    def _write_routed(self, routed: list[tuple[ShardValues, pa.RecordBatch]]) -> Future[WriteReceipt]:
        pending = []
        for values, rows in routed:
            shard = self._shard(values)
            pending.append((shard.shard_id, shard.write_later(rows, self._appender)))
        total = sum(rows.num_rows for _, rows in routed)
        return _when_all(total, pending)

    def _shard(self, values: ShardValues) -> ShardWriter:
        shard = self._shards.get(values)
        if shard is None:
            with self._opening:
                shard = self._shards.get(values)
                if shard is None:
                    shard = self._shards[values] = self._open_shard(values, self._flusher)
        return shard

    def _for_each_shard(self, action: Callable[[ShardWriter], None]) -> None:
        futures = [self._appender.submit(action, shard) for shard in list(self._shards.values())]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise WriterClosedError("the writer is closed", hint="Open a new one with table.writer()")


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

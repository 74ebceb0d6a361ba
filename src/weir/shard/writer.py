"""The writer of one shard: group commit into the WAL, a MemTable, and flushes in the background."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from uuid import UUID

import pyarrow as pa

from weir.config import WriterOptions
from weir.errors import BackpressureError, FencedError, StorageError, WeirError, WriterClosedError
from weir.format import wal_entry
from weir.format.shard_manifest import ShardFieldValue
from weir.format.wal_entry import WalEntry, WalEntryHeader
from weir.logs import get_logger
from weir.shard.claim import Claim, claim_shard
from weir.shard.flush import flush_memtable
from weir.shard.group_commit import GroupCommit, PendingWrite
from weir.shard.memtable import MemTable
from weir.shard.wal import PositionedEntry, Wal
from weir.storage.interface import ObjectStore

__all__ = ["ShardWriter"]

_log = get_logger(__name__)
_FLUSH_RETRY_SECONDS = 0.1


class ShardWriter:
    """Writes one shard until it is closed or fenced.

    Opening one claims the shard: whoever wrote it before is fenced, and what it left in the WAL is
    replayed. Safe to use from many threads.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    shard_id : UUID
        The shard; created if it does not exist.
    schema : Schema
        Schema of WAL entries: the table's columns and ``_tombstone``.
    key_columns : tuple of str
        Primary-key columns.
    namespace : str
        Identity of the table, under which WAL entries are cached for readers in this process.
    options : WriterOptions
        Limits.
    flusher : Executor
        Runs flushes in the background. Flushes of one shard never overlap.
    shard_spec_id, shard_fields
        What a new shard's manifest records about which rows it holds.

    Raises
    ------
    ShardSealedError
        If the shard accepts no writes.
    FencedError
        If another writer claims the shard at the same time and wins.
    """

    def __init__(
        self,
        store: ObjectStore,
        shard_id: UUID,
        schema: pa.Schema,
        key_columns: tuple[str, ...],
        *,
        namespace: str,
        options: WriterOptions,
        flusher: Executor,
        shard_spec_id: int = 0,
        shard_fields: tuple[ShardFieldValue, ...] = (),
    ) -> None:
        self.shard_id = shard_id
        self._store = store
        self._schema = schema
        self._key_columns = key_columns
        self._options = options
        self._flusher = flusher
        self._wal = Wal(store, shard_id, namespace=namespace)
        self._claim: Claim = claim_shard(
            store, self._wal, shard_id, schema, shard_spec_id=shard_spec_id, shard_fields=shard_fields
        )
        self._next_position = self._claim.next_position
        self._active = MemTable.replayed(self._claim.manifest.current_generation, schema, self._claim.tail)
        # Our fence entry stands after the replayed tail and is covered by the same flush.
        self._active.last_position = self._next_position - 1
        self._frozen: deque[MemTable] = deque()
        self._changed = threading.Condition()
        self._flushing = False
        self._flush_error: BaseException | None = None
        self._retry_flush_at = 0.0
        self._stopped: WeirError | None = None
        self._closed = False
        self._in_doubt: dict[str, WalEntry] = {}
        self._commits = GroupCommit(
            self._write_group, max_bytes=options.max_wal_bytes, max_delay=options.max_wal_delay
        )

    @property
    def epoch(self) -> int:
        """The writer epoch of this writer's claim."""
        return self._claim.epoch

    def write(self, batch: pa.RecordBatch) -> int:
        """Write rows and return their position once they are durable (invariant I1).

        Parameters
        ----------
        batch : RecordBatch
            Rows in the schema of WAL entries.

        Raises
        ------
        FencedError
            If another writer has claimed the shard. Nothing of this call was written.
        BackpressureError
            If flushes did not make room in time. Nothing of this call was written.
        StorageError
            If the store failed. The rows may or may not be durable; writing them again is safe.
        """
        self._refuse_new_writes()
        return self._commits.settle(self._commits.submit(batch))

    def write_later(self, batch: pa.RecordBatch, executor: Executor) -> Future[int]:
        """Queue rows and return a future of their position, which is done when they are durable."""
        self._refuse_new_writes()
        pending = self._commits.submit(batch)
        return executor.submit(self._commits.settle, pending)

    def flush(self) -> None:
        """Flush what has been written so far to a generation, and wait for it.

        Raises
        ------
        FencedError
            If another writer has claimed the shard; it replays what this one had not flushed.
        StorageError
            If the store failed; the rows stay in the WAL and in the MemTable, and can be flushed
            again.
        """
        self._commits.drain()
        with self._changed:
            if self._active.num_rows:
                self._freeze()
            while self._frozen:
                self._flush_error = None
                self._start_flush()
                while self._flushing:
                    self._changed.wait()
                if self._flush_error is not None:
                    raise self._flush_error

    def close(self) -> None:
        """Write what is queued, flush if the options say so, and stop. Idempotent.

        Raises
        ------
        WeirError
            If the flush failed. The rows are durable in the WAL all the same.
        """
        self._closed = True
        try:
            if self._stopped is None:
                self._commits.drain()
                if self._options.flush_on_close:
                    self.flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Stop without flushing. What was acknowledged is in the WAL for the next writer."""
        self._closed = True
        with self._changed:
            self._stopped = self._stopped or self._closed_error()
            while self._flushing:
                self._changed.wait()

    @property
    def unflushed_rows(self) -> int:
        """Rows in MemTables: durable in the WAL, not yet in a generation."""
        with self._changed:
            return self._active.num_rows + sum(memtable.num_rows for memtable in self._frozen)

    # The leader of a commit group runs what follows; the group commit lets only one lead at a time.

    def _write_group(self, group: Sequence[PendingWrite]) -> int:
        self._refuse_if_stopped()
        self._wait_for_room()
        batches = [pending.batch for pending in group]
        header = WalEntryHeader(
            writer_epoch=self.epoch, generation=self._active.generation, write_id=wal_entry.new_write_id()
        )
        entry = WalEntry(header, self._schema, tuple(batches))
        data = wal_entry.encode(header, self._schema, batches)
        while True:
            position = self._next_position
            try:
                holder = self._wal.append_or_read(position, data)
            except StorageError:
                # The answer was lost, perhaps not the write: the next append at this position tells.
                assert header.write_id is not None
                self._in_doubt[header.write_id] = entry
                raise
            if holder is None or holder.header.write_id == header.write_id:
                self._apply(position, entry)
                return position
            adopted = self._in_doubt.pop(holder.header.write_id or "", None)
            if adopted is None:
                raise self._stop(
                    FencedError(
                        f"shard {self.shard_id} is claimed with epoch {holder.header.writer_epoch}; "
                        f"this writer has epoch {self.epoch}",
                        where=self._wal.where(position),
                        hint="This write was not accepted; open a new writer to go on",
                    )
                )
            self._apply(position, adopted)

    def _apply(self, position: int, entry: WalEntry) -> None:
        self._wal.remember(position, entry)
        self._in_doubt.clear()
        with self._changed:
            self._next_position = position + 1
            self._active.append(PositionedEntry(position, entry))
            if (
                self._active.num_rows >= self._options.max_memtable_rows
                or self._active.nbytes >= self._options.max_memtable_bytes
            ):
                self._freeze()
                self._start_flush()

    def _refuse_if_stopped(self) -> None:
        if self._stopped is not None:
            raise self._stopped

    def _refuse_new_writes(self) -> None:
        self._refuse_if_stopped()
        if self._closed:
            raise self._closed_error()

    def _closed_error(self) -> WriterClosedError:
        return WriterClosedError(
            f"the writer of shard {self.shard_id} is closed",
            where=self._store.uri,
            hint="Open a new writer with table.writer()",
        )

    def _wait_for_room(self) -> None:
        with self._changed:
            if len(self._frozen) < self._options.max_frozen_memtables:
                return
            deadline = time.monotonic() + self._options.backpressure_timeout
            while len(self._frozen) >= self._options.max_frozen_memtables:
                if not self._flushing and time.monotonic() >= self._retry_flush_at:
                    # The last attempt failed, and nothing else will start another.
                    self._start_flush()
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise BackpressureError(
                        f"{len(self._frozen)} MemTables of shard {self.shard_id} waited for their flush "
                        f"for {self._options.backpressure_timeout:g} s",
                        where=self._store.uri,
                        hint=f"Write again later; the last flush said: {self._flush_error or 'nothing'}",
                    ) from self._flush_error
                self._changed.wait(min(remaining, _FLUSH_RETRY_SECONDS))
                if self._stopped is not None:
                    raise self._stopped

    # What follows runs with `self._changed` held, but for `_flush_frozen`, which the flusher runs.

    def _freeze(self) -> None:
        frozen = self._active
        self._frozen.append(frozen)
        self._active = MemTable(frozen.generation + 1, self._schema, last_position=frozen.last_position)

    def _start_flush(self) -> None:
        if self._flushing or not self._frozen:
            return
        self._flushing = True
        self._flusher.submit(self._flush_frozen)

    def _flush_frozen(self) -> None:
        error: BaseException | None = None
        try:
            while True:
                with self._changed:
                    if not self._frozen:
                        break
                    memtable = self._frozen[0]
                flush_memtable(self._store, self._claim, memtable, self._key_columns)
                with self._changed:
                    self._frozen.popleft()
                    self._changed.notify_all()
        except Exception as failure:
            error = failure
            _log.warning("shard.flush_failed", shard=str(self.shard_id), error=str(failure))
        finally:
            with self._changed:
                self._flushing = False
                self._flush_error = error
                self._retry_flush_at = time.monotonic() + _FLUSH_RETRY_SECONDS
                if isinstance(error, FencedError):
                    self._stopped = self._stopped or error
                self._changed.notify_all()

    def _stop(self, error: WeirError) -> WeirError:
        with self._changed:
            self._stopped = self._stopped or error
            self._changed.notify_all()
        return error

"""The MemTables of one shard: the active one, those waiting for a flush, and the flushes.

Flushes run in the background, one after the other. A failed one is retried by the next write that needs room;
until it succeeds, the rows stay in the WAL and in memory.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import pyarrow as pa

from weir.engine.logs import get_logger
from weir.errors import BackpressureError, FencedError, WeirError, WriterClosedError
from weir.format.shard_manifest import ShardManifest, ShardStatus
from weir.format.source import SourceMarks
from weir.format.wal_entry import WalEntry
from weir.log.wal import PositionedEntry, Wal
from weir.write.claim import Claim
from weir.write.flush.flush import flush_memtable
from weir.write.lease.lease import ShardLease
from weir.write.memtable.memtable import MemTable
from weir.write.shard_context import ShardContext

__all__ = ["MemTables"]

_log = get_logger(__name__)
_FLUSH_RETRY_SECONDS = 0.1
_GIVE_BACK_FROM_BYTES = 1024 * 1024


class MemTables:
    """What one shard's writer has in memory. Safe to use from many threads.

    Parameters
    ----------
    context : ShardContext
        The table, its limits, and what its shards share.
    wal : Wal
        The shard's write-ahead log.
    claim : Claim
        The claim that flushes are made under.
    lease : ShardLease
        The lease; without it nothing is flushed.
    replayed : sequence of MemTable
        What the claim has replayed, oldest first, at least one: all but the last are flushed at once.
    on_fenced : callable
        Called when a flush finds that another writer has the shard.
    on_first_write : callable
        Called with its position when a MemTable gets the first entry that is worth a flush.
    settle : callable
        Finds out what became of an append that is in doubt, unless a write that is under way does.

    Attributes
    ----------
    stopped : WeirError or None
        Why no more rows are taken. Once set it stays.
    flush_error : BaseException or None
        What the last flush died of, if it did.
    """

    def __init__(
        self,
        context: ShardContext,
        wal: Wal,
        claim: Claim,
        lease: ShardLease,
        replayed: Sequence[MemTable],
        *,
        on_fenced: Callable[[], None],
        settle: Callable[[], None],
        on_first_write: Callable[[int], None],
    ) -> None:
        self._store = context.store
        self._wal = wal
        self._claim = claim
        self._newest_manifest = self._listing = claim.manifest
        self._lease = lease
        self._active = replayed[-1]
        self._key_columns = context.key_columns
        self._merge_engine = context.merge_engine
        self._sort_by = context.sort_by
        self._options = context.options
        self._flusher = context.flusher
        self._unflushed = context.unflushed
        self._backlog = context.backlog
        self._indexes = context.indexes
        self._on_fenced = on_fenced
        self._settle = settle
        self._on_first_write = on_first_write
        self._settling = False
        self._frozen: deque[MemTable] = deque(replayed[:-1])
        # An entry says which MemTable its rows belong to. So the active one stays while an append is running,
        # and while the outcome of a failed append is unknown.
        self._appending = False
        self._in_doubt = False
        self._freeze_wanted = False
        # Entered by itself: see GroupCommit.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._flushing: object | None = None
        self._flushes_awaited = 0
        self._dropped = False
        self._retry_flush_at = 0.0
        self.flush_error: BaseException | None = None
        self.stopped: WeirError | None = None
        self.sealed = False
        """Whether the shard took no more writes when its manifest was last changed here."""
        self._unflushed.add(self, sum(memtable.held_bytes for memtable in replayed))
        if self._backlog is not None:
            self._backlog.listed(claim.manifest)
        for memtable in replayed[:-1]:
            self._unflushed.frozen(memtable.held_bytes)
        with self._lock:
            self._start_flush()

    @property
    def generation(self) -> int:
        """The generation that rows written now will be flushed as."""
        return self._active.generation

    @property
    def sources(self) -> SourceMarks:
        """How far each source has got, with everything that the shard holds."""
        return self._active.sources

    @property
    def num_rows(self) -> int:
        """Rows in memory: durable in the WAL, not yet in a generation."""
        with self._lock:
            return self._active.num_rows + sum(memtable.num_rows for memtable in self._frozen)

    def in_memory(self) -> tuple[list[MemTable], ShardManifest]:
        """Return the MemTables, oldest first, and a manifest that lists everything not in them.

        Raises
        ------
        FencedError
            If another writer is known to have the shard: rows that are in no generation have been dropped.
        """
        with self._lock:
            if isinstance(self.stopped, FencedError):
                raise self.stopped.again()
            return [*self._frozen, self._active], self._listing

    def append(self, position: int, entry: WalEntry, queued: int) -> None:
        """Add the rows of a WAL entry, which is durable, and start a flush if the MemTable is full.

        Parameters
        ----------
        position : int
            Where the entry stands.
        entry : WalEntry
            The entry; readers in this process find it in the cache from now on.
        queued : int
            Bytes that were counted for it while it was queued.
        """
        with self._lock:
            was_worthless = not self._active.is_worth_flushing
            held_bytes = self._active.append(PositionedEntry(position, entry))
            if was_worthless and self._active.is_worth_flushing:
                self._on_first_write(position)
            self._unflushed.written(queued, held_bytes)
            self._wal.remember(position, entry, held_bytes)
            if self._active.is_worth_flushing and (
                self._active.num_rows >= self._options.max_memtable_rows
                or self._active.nbytes >= self._options.max_memtable_bytes
                or self._active.num_entries >= self._options.max_memtable_entries
            ):
                self._freeze()
                self._start_flush()

    def begin_append(self) -> None:
        """Keep the active MemTable: rows being appended to the log belong to it."""
        with self._lock:
            self._appending = True

    def end_append(self, *, in_doubt: bool) -> None:
        """Note that no append is under way any more, and whether it is known what became of it."""
        with self._lock:
            self._appending = False
            self._in_doubt = in_doubt
            if self._freeze_wanted and not in_doubt:
                self._freeze_wanted = False
                if self._active.is_worth_flushing and self.stopped is None:
                    self._freeze()
                    self._start_flush()

    def has_room(self, rows: int, batches: int) -> bool:
        """Whether the active MemTable can take some rows; an empty one takes any number."""
        with self._lock:
            active = self._active
            return not active.num_rows or (
                active.num_rows + rows <= self._options.max_memtable_rows
                and active.num_batches + batches <= self._options.max_memtable_entries
            )

    def freeze_if_full(self, rows: int, batches: int) -> None:
        """Freeze the active MemTable, and flush it in the background, if it cannot take some rows."""
        with self._lock:
            if not self.has_room(rows, batches):
                self._freeze()
                self._start_flush()

    def freeze(self) -> None:
        """Freeze the active MemTable if that is worth a flush. Between two appends, with none in doubt."""
        with self._lock:
            if self._active.is_worth_flushing:
                self._freeze()

    def wait_for_room(self) -> None:
        """Wait while as many MemTables as may wait for their flush do.

        Raises
        ------
        BackpressureError
            If no flush made room within the timeout.
        WeirError
            If the shard was stopped meanwhile.
        """
        with self._lock:
            if len(self._frozen) < self._options.max_frozen_memtables:
                return
            deadline = time.monotonic() + self._options.backpressure_timeout
            while len(self._frozen) >= self._options.max_frozen_memtables:
                if self._flushing is None and time.monotonic() >= self._retry_flush_at:
                    # The last attempt failed, and nothing else will start another.
                    self._start_flush()
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise BackpressureError(
                        f"{len(self._frozen)} MemTables of shard {self._claim.manifest.shard_id} waited to "
                        f"be flushed for {self._options.backpressure_timeout:g} s",
                        where=self._store.uri,
                        hint=f"Write again later; the last flush said: {self.flush_error or 'nothing'}",
                    ) from self.flush_error
                self._changed.wait(min(remaining, _FLUSH_RETRY_SECONDS))
                if self.stopped is not None:
                    raise self.stopped.again()

    def flush(self) -> None:
        """Flush frozen MemTables and wait for it.

        Raises
        ------
        FencedError
            If another writer has claimed the shard; it replays what this one had not flushed.
        WriterClosedError
            If the writer was closed before; the next writer of the shard replays the rows.
        StorageError
            If the store failed; the rows stay in memory, and can be flushed again.
        """
        with self._lock:
            if self.stopped is not None:
                # What it had is dropped, and for the next owner to flush.
                raise self.stopped.again()
            self._flushes_awaited += 1
            try:
                while self._frozen:
                    self.flush_error = None
                    self._start_flush()
                    while self._flushing is not None:
                        self._changed.wait()
                    if self.flush_error is not None:
                        raise self.flush_error
                if self._dropped and self.stopped is not None:
                    raise self.stopped.again()
            finally:
                self._flushes_awaited -= 1

    def take_over(self, schema: pa.Schema) -> None:
        """Begin a MemTable with other columns; rows there are go into a generation with theirs."""
        with self._lock:
            if self._active.is_worth_flushing:
                self._freeze()
                self._start_flush()
            before = self._active
            self._active = MemTable(
                before.generation,
                schema,
                before.last_position,
                has_published=before.has_published,
                sources=before.sources,
            )

    def published(self, manifest: ShardManifest) -> None:
        """Go on after generations that were published beside the MemTables, which hold no rows."""
        with self._lock:
            before = self._active
            self._listing = manifest
            self._active = MemTable(
                manifest.current_generation,
                before.schema,
                before.last_position,
                sources=manifest.sources or before.sources,
            )
        if self._backlog is not None:
            self._backlog.listed(manifest)

    def stop(self, error: WeirError) -> None:
        """Accept no more rows. If another writer has the shard, drop the existing ones."""
        with self._lock:
            self.stopped = self.stopped or error.again()
            if isinstance(error, FencedError) and self._flushing is None:
                self._drop()
            self._changed.notify_all()

    def wait_for_flush(self) -> None:
        """Wait for a flush that runs, however it ends."""
        with self._lock:
            while self._flushing is not None:
                self._changed.wait()

    def let_go(self) -> None:
        """Wait for a flush that runs, then drop the rows; they are in the WAL."""
        with self._lock:
            self.wait_for_flush()
            self._drop()
        self._unflushed.remove(self)

    # What the count of unflushed bytes asks of a shard (weir.write.memtable.backpressure.WithMemTables).

    @property
    def active_bytes(self) -> int:
        """Bytes that the active MemTable takes in memory."""
        return self._active.held_bytes

    def flush_early(self) -> None:
        """Flush the active MemTable in the background, unless as many as may wait already do."""
        with self._lock:
            if (
                self.stopped is not None
                or not self._active.is_worth_flushing
                or len(self._frozen) >= self._options.max_frozen_memtables
            ):
                return
            if not self._appending and not self._in_doubt:
                self._freeze()
                self._start_flush()
                return
            self._freeze_wanted = True
            if self._appending or self._settling:
                return
            self._settling = True
        try:
            self._flusher.submit(self._settle_early)
        except RuntimeError:
            # The process is about to end; the rows are in the log.
            self._settling = False

    def _settle_early(self) -> None:
        try:
            self._settle()
        except WeirError as error:
            _log.info("shard.in_doubt", shard=str(self._claim.manifest.shard_id), error=str(error))
        finally:
            self._settling = False

    def is_unflushed(self, position: int) -> bool:
        """Whether rows at or before a position still wait for a flush."""
        with self._lock:
            oldest = self._frozen[0] if self._frozen else self._active
            return oldest.is_worth_flushing and oldest.first_position <= position

    def retry_flush(self) -> None:
        """Retry a failed flush, if it is time."""
        with self._lock:
            if time.monotonic() >= self._retry_flush_at and self.stopped is None:
                self._start_flush()

    def _urgency(self) -> float:
        """How urgent a flush is that runs: whether anybody waits for it, or soon will."""
        if (
            self.stopped is not None
            or self._flushes_awaited
            or len(self._frozen) >= self._options.max_frozen_memtables
        ):
            return 1.0
        return self._unflushed.urgency

    # What follows runs with `self._lock` held, except `_flush_frozen`, which the flusher runs.

    def _freeze(self) -> None:
        frozen = self._active
        self._frozen.append(frozen)
        self._unflushed.frozen(frozen.held_bytes)
        self._active = frozen.successor()
        self._freeze_wanted = False

    def _start_flush(self) -> None:
        if self._flushing is not None or not self._frozen:
            return
        flushing = object()
        try:
            self._flushing = flushing
            self._flusher.submit(self._flush_frozen, flushing)
        except RuntimeError:
            # The process is about to end, and starts no threads any more.
            self._flushing = None
            self.flush_error = WriterClosedError(
                f"rows of shard {self._claim.manifest.shard_id} were not flushed, because the process ends",
                where=self._store.uri,
                hint="They are durable in the log; close the writer before the program ends",
            )
        except BaseException:
            # Interrupted, perhaps with the flush on its way: it then finds that it is not wanted.
            self._flushing = None
            raise

    def _flush_frozen(self, flushing: object) -> None:
        with self._lock:
            if self._flushing is not flushing:
                return
        error: BaseException | None = None
        try:
            while True:
                with self._lock:
                    if not self._frozen:
                        break
                    memtable = self._frozen[0]
                self._lease.check_stored()
                published = flush_memtable(
                    self._store,
                    self._claim,
                    memtable,
                    self._key_columns,
                    merge_engine=self._merge_engine,
                    sort_by=self._sort_by,
                    known=self._newest_manifest,
                    indexes=self._indexes,
                    urgency=self._urgency,
                )
                with self._lock:
                    self._newest_manifest = self._listing = published
                    # A written generation can still be published: no other writer can claim the shard for it.
                    self.sealed = published.status is ShardStatus.SEALED
                    self._frozen.popleft()
                    self._changed.notify_all()
                # Readers look in the generation from now on.
                self._wal.forget(range(memtable.first_position, memtable.last_position + 1))
                self._unflushed.flushed(memtable.held_bytes)
                if self._backlog is not None:
                    self._backlog.listed(published)
                large = memtable.held_bytes >= _GIVE_BACK_FROM_BYTES
                del memtable
                if large:
                    # Memory freed here would otherwise stay with the allocator of this thread.
                    pa.default_memory_pool().release_unused()
        except BaseException as failure:
            # Whatever it was: who waits must hear of it, or would start the same flush again at once.
            error = failure
            _log.warning("shard.flush_failed", shard=str(self._claim.manifest.shard_id), error=str(failure))
        finally:
            with self._lock:
                self._flushing = None
                self.flush_error = error
                self._retry_flush_at = time.monotonic() + _FLUSH_RETRY_SECONDS
                if isinstance(error, FencedError):
                    self.stopped = self.stopped or error.again()
                if isinstance(self.stopped, FencedError):
                    self._drop()
                self._changed.notify_all()
            if isinstance(error, FencedError):
                self._on_fenced()

    def _drop(self) -> None:
        """Let go of the rows: they are in the WAL, for the next writer to replay."""
        self._dropped = self._dropped or bool(self._frozen)
        for memtable in self._frozen:
            self._unflushed.flushed(memtable.held_bytes)
        self._frozen.clear()
        self._unflushed.dropped(self._active.held_bytes)
        self._active = self._active.emptied()

"""The writer of one shard: group commit into the WAL, a MemTable, and flushes in the background.

Before every write it looks at its lease, without asking the store; every append finds the fence entry of
whoever has claimed the shard since. Neither does alone: clocks can be wrong, and a lease tells a writer
to stop before it has gone through another append.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import replace
from uuid import UUID

import pyarrow as pa

from weir.config import WriterOptions
from weir.errors import FencedError, InputError, StorageError, WeirError, WriterClosedError
from weir.format import wal_entry
from weir.format.batch_memory import batch_overhead, joined, owned
from weir.format.shard_manifest import FlushedGeneration, ShardFieldValue, ShardManifest
from weir.format.source import MAX_SOURCES, Source, SourceMarks
from weir.format.wal_entry import WalEntry
from weir.format.wal_header import WalEntryHeader
from weir.indexing.generation import GenerationIndex
from weir.log.replay import is_in_order
from weir.log.wal import PositionedEntry, Wal
from weir.storage.interface import ObjectStore
from weir.write.claim import Claim, claim_shard, sealed_error
from weir.write.flush.staged_generations import StagedGeneration, publish_staged, settle_publication
from weir.write.lease.heartbeat import Heartbeat
from weir.write.lease.lease import ShardLease, release_quietly
from weir.write.lease.lease_owner import new_holder
from weir.write.lease.lease_terms import LeaseTerms
from weir.write.log.collected_position import AppendCheck
from weir.write.log.group_commit import GroupCommit, PendingWrite
from weir.write.memtable.backpressure import MergeBacklog, UnflushedBytes
from weir.write.memtable.memtable_set import MemTables
from weir.write.replay import replayed_memtables

__all__ = ["ShardWriter"]


class ShardWriter:
    """Writes one shard until it is closed or fenced.

    Opening one takes the shard's lease and claims the shard: whoever wrote it before is fenced, and
    what it left in the WAL is replayed. Safe to use from many threads.

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
    lease_terms : LeaseTerms, optional
        How the lease is taken. Default: as the options say, by a new holder.
    heartbeat : Heartbeat, optional
        Renews the lease. Without it the caller does (:attr:`lease`).
    unflushed : UnflushedBytes, optional
        Bounds the memory of several shards together. Default: one for this shard alone.
    backlog : MergeBacklog, optional
        Bounds the generations that wait for a merge. Default: unbounded.
    indexes : callable, optional
        Returns the indexes that generations are to have. Default: none.
    newest_schema : callable, optional
        Returns the schema as the base table has it now: asked where the log has entries with another one.
    shard_spec_id, shard_fields
        What a new shard's manifest records about which rows it holds.

    Raises
    ------
    LeaseHeldError
        If another writer holds the lease, and the terms are not to take it over.
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
        lease_terms: LeaseTerms | None = None,
        heartbeat: Heartbeat | None = None,
        unflushed: UnflushedBytes | None = None,
        backlog: MergeBacklog | None = None,
        indexes: Callable[[], Sequence[GenerationIndex]] = tuple,
        newest_schema: Callable[[], pa.Schema] | None = None,
        shard_spec_id: int = 0,
        shard_fields: tuple[ShardFieldValue, ...] = (),
    ) -> None:
        self.shard_id = shard_id
        self._store = store
        self._options = options
        self._heartbeat = heartbeat
        self._unflushed = unflushed or UnflushedBytes(
            options.max_unflushed_bytes, timeout=options.backpressure_timeout, where=store.uri
        )
        self._backlog = backlog
        self._overhead = batch_overhead(schema)
        self._wal = Wal(store, shard_id, namespace=namespace)
        lease_terms = lease_terms or LeaseTerms(
            options.lease_ttl, options.takeover, new_holder(options.holder)
        )
        self._appends = AppendCheck(store, shard_id, self._wal, lease_terms.clock)
        claim = claim_shard(
            store,
            self._wal,
            shard_id,
            schema,
            shard_spec_id=shard_spec_id,
            shard_fields=shard_fields,
            lease_terms=lease_terms,
            heartbeat=heartbeat,
        )
        assert claim.lease is not None
        self.lease: ShardLease = claim.lease
        try:
            if newest_schema is not None and _has_other_columns(claim.tail, schema):
                # Written by who had seen columns that we have not: what they hold is acknowledged.
                schema = newest_schema()
            self._first_schema = self._schema = schema
            generation = claim.manifest.current_generation
            replayed = replayed_memtables(generation, schema, claim.tail, claim.sources)
            in_order = is_in_order(generation, claim.tail)
        except BaseException:
            self._let_go_of_lease()
            raise
        self._next_position = claim.next_position
        # Our fence entry stands after the replayed tail and is covered by the same flush.
        replayed[-1].last_position = self._next_position - 1
        # The MemTable has what the tail held; holding on to both would keep it past the flush.
        self._claim: Claim = replace(claim, tail=())
        self._memtables = MemTables(
            store,
            self._wal,
            self._claim,
            self.lease,
            replayed,
            key_columns,
            options=options,
            flusher=flusher,
            unflushed=self._unflushed,
            backlog=backlog,
            indexes=indexes,
            on_fenced=self._let_go_of_lease,
            settle=self._settle_early,
        )
        if not in_order:
            # The library takes such a log over only when all of it is flushed.
            self._memtables.flush_early()
        self._closed = False
        self._in_doubt: set[str] = set()
        self._unannounced: tuple[FlushedGeneration, ...] = ()
        self._publishing: tuple[FlushedGeneration, ...] = ()
        self._commits = GroupCommit(
            self._write_group, max_bytes=options.max_wal_bytes, max_delay=options.max_wal_delay
        )

    @property
    def epoch(self) -> int:
        """The writer epoch of this writer's claim."""
        return self._claim.epoch

    @property
    def sources(self) -> SourceMarks:
        """How far each source of repeatable writes has got with what the shard holds."""
        return self._memtables.sources

    def write(self, batch: pa.RecordBatch, source: Source | None = None) -> int:
        """Write rows and return their position once they are durable (invariant I1).

        Parameters
        ----------
        batch : RecordBatch
            Rows in the schema of WAL entries.
        source : Source, optional
            The mark of the write: if the shard has it already, nothing is written, and the position is
            that of the last entry.

        Raises
        ------
        FencedError
            If another writer has claimed the shard. Nothing of this call was written.
        ShardSealedError
            If the shard has been sealed, as this writer has seen at its last flush. Nothing of this call was
            written.
        BackpressureError
            If flushes or merges did not make room in time. Nothing of this call was written.
        StorageError
            If the store failed. The rows may or may not be durable; writing them again is safe.
        """
        return self.settle(self._admitted(batch, source))

    def write_later(self, batch: pa.RecordBatch, executor: Executor) -> Future[int]:
        """Queue rows and return a future of their position, which is done when they are durable.

        Waits for room before, as :meth:`write` does.
        """
        return executor.submit(self.settle, self._admitted(batch))

    def _admitted(self, batch: pa.RecordBatch, source: Source | None = None) -> PendingWrite:
        pending = self.prepare(batch, source)
        self._unflushed.admit(pending.held_bytes)
        self.enqueue(pending)
        return pending

    # What follows is `write` in steps, for who writes to several shards at once: prepare for each,
    # admit the bytes of all of them, enqueue and settle each.

    def prepare(
        self, batch: pa.RecordBatch, source: Source | None = None, *, schema: pa.Schema | None = None
    ) -> PendingWrite:
        """Make ready to write rows; wait for a merge if too many generations wait for one.

        Parameters
        ----------
        batch : RecordBatch
            Rows.
        source : Source, optional
            The mark of the write.
        schema : Schema, optional
            The schema of log entries that the rows are in. Where it is another one than that of the rows
            before, they begin a MemTable of their own. Default: the one that the writer began with.

        Raises
        ------
        WriterError
            As for :meth:`write`.
        InputError
            If the shard remembers as many sources as it can.
        """
        self._refuse_new_writes()
        if source is not None:
            self._refuse_too_many_sources(source)
        if self._backlog is not None:
            self._backlog.admit(self.shard_id)
        return PendingWrite(*owned(batch), self._overhead, source, schema or self._first_schema)

    def enqueue(self, pending: PendingWrite) -> None:
        """Queue rows that were prepared and whose bytes were admitted."""
        self._commits.enqueue(pending)

    def settle(self, pending: PendingWrite) -> int:
        """Wait until queued rows are durable and return their position."""
        return self._commits.settle(pending)

    def publish(self, staged: Sequence[StagedGeneration], source: Source | None = None) -> int | None:
        """Make staged generations part of the shard, newer than everything before, and durable.

        What has been written so far is flushed first. The generations count in their order.

        Parameters
        ----------
        staged : sequence of StagedGeneration
            At least one; all of this shard.
        source : Source, optional
            The mark of the write.

        Returns
        -------
        int or None
            Where it stands in the log; None if the shard has the mark already.

        Raises
        ------
        FencedError
            If another writer has claimed the shard. Nothing was published.
        StorageError
            If one was staged too long ago; or if the store failed, and then nobody knows.
        """
        self._refuse_new_writes()
        if any(one.shard_id != self.shard_id for one in staged):
            raise InputError(
                f"what was staged for another shard cannot be published in shard {self.shard_id}",
                where=self._store.uri,
                hint="Another writer has made the shard meanwhile; stage the rows again",
            )
        if source is not None:
            self._refuse_too_many_sources(source)
        if self._backlog is not None:
            self._backlog.admit(self.shard_id)
        return self._commits.alone(lambda: self._publish(staged, source))

    def flush(self) -> None:
        """Flush what has been written so far to a generation, and wait for it.

        Raises
        ------
        FencedError
            If another writer has claimed the shard; it replays what this one had not flushed.
        WriterClosedError
            If the writer was closed before.
        StorageError
            If the store failed; the rows stay in the WAL and in the MemTable, and can be flushed
            again.
        """
        self._commits.drain()
        self._commits.alone(self._freeze)
        self._memtables.flush()

    def pause(self) -> None:
        """Let others have the shard until something is written here again.

        Waits until what is queued is written, and for a flush that runs. The next write, or flush, takes
        the lease back, with one round trip, if nobody has held it since. Otherwise it finds this writer
        fenced, and the shard has to be claimed anew.
        """
        self._commits.drain()
        self._commits.alone(self._pause)

    def close(self) -> None:
        """Write what is queued, flush if the options say so, and stop. Idempotent.

        Raises
        ------
        WeirError
            If the flush failed. The rows are durable in the WAL all the same.
        """
        self._closed = True
        try:
            if self._memtables.stopped is None:
                self._commits.drain()
                if self._options.flush_on_close:
                    # Another thread that closes it too may have come first; then it flushes.
                    with suppress(WriterClosedError):
                        self.flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Stop without flushing. What was acknowledged is in the WAL for the next writer.

        The lease is released when no write of ours is on its way any more.
        """
        self._closed = True
        self._memtables.stop(self._closed_error())
        self._commits.drain()
        self._memtables.let_go()
        self._let_go_of_lease()

    @property
    def unflushed_rows(self) -> int:
        """Rows in MemTables: durable in the WAL, not yet in a generation."""
        return self._memtables.num_rows

    # The leader of a commit group runs what follows; the group commit lets only one lead at a time.

    def _write_group(self, group: Sequence[PendingWrite]) -> int:
        queued = sum(pending.held_bytes for pending in group)
        try:
            self._refuse_if_stopped()
            # A write with a mark comes alone.
            source = group[0].source
            if source is None or not self.sources.covers(source):
                self._take_over(group[0].schema)
                nbytes = sum(pending.nbytes for pending in group)
                batches = joined([pending.batch for pending in group], nbytes)
                if len(batches) > self._options.max_memtable_entries:
                    batches = (pa.concat_batches(batches),)
                self._make_room(batches)
                self._memtables.wait_for_room()
                position = self._append(batches, queued, source)
                if position is not None:
                    return position
            group[0].deduplicated = True
            self._unflushed.failed(queued)
            return self._next_position - 1
        except BaseException:
            self._unflushed.failed(queued)
            raise

    def _take_over(self, schema: pa.Schema | None) -> None:
        """Go on with other columns: what there is in memory is flushed with those it was written with."""
        if schema is not None and schema is not self._schema:
            self._settle_doubt()
            self._memtables.take_over(schema)
            self._schema = schema

    def _append(
        self, batches: tuple[pa.RecordBatch, ...], queued: int, source: Source | None = None
    ) -> int | None:
        """Append rows to the WAL and apply them; return their position.

        None if an earlier append with the same mark, of which we only knew that it failed, stands there.
        """
        if batches:
            # Of a publication that failed, perhaps at its end: what comes later is to stand behind it.
            self._settle_publication()
            self._announce()
        self._memtables.begin_append()
        try:
            return self._append_until_it_stands(batches, queued, source)
        finally:
            self._memtables.end_append(in_doubt=bool(self._in_doubt))

    def _append_until_it_stands(
        self, batches: tuple[pa.RecordBatch, ...], queued: int, source: Source | None
    ) -> int | None:
        write_id = wal_entry.new_write_id()
        unannounced = self._unannounced
        header = WalEntryHeader(
            self.epoch,
            None,
            write_id,
            fence=bool(unannounced),
            source=source,
            published=tuple(one.path for one in unannounced),
            published_rows=sum(one.physical_rows for one in unannounced),
            published_from=min((one.generation for one in unannounced), default=0),
        )
        while source is None or not self.sources.covers(source):
            position = self._next_position
            # What stood here of an earlier append may have filled the MemTable.
            generation = None if unannounced else self._memtables.generation
            header = replace(header, generation=generation, place=self._wal.place(position))
            data = wal_entry.encode(header, self._schema, batches)
            self._refuse_without_lease()
            in_doubt = bool(self._in_doubt)
            self._refuse_if_overtaken(position, in_doubt=in_doubt)
            # Until it has been applied: an answer may be lost without the write, and a thread may be
            # interrupted anywhere. The next append at this position tells.
            self._in_doubt.add(write_id)
            try:
                holder = self._wal.append_or_read(position, data)
                if holder is None or holder.header.write_id == write_id:
                    self._appends.after(position, in_doubt=in_doubt)
            except FencedError as error:
                # Whoever has claimed the shard may have found these rows in time, and replayed them.
                raise self._in_doubt_forever(self._fenced(error), position) from error
            if holder is None or holder.header.write_id == write_id:
                self._apply(position, WalEntry(header, self._schema, batches), queued)
                return position
            if holder.header.write_id not in self._in_doubt:
                raise self._fenced(
                    FencedError(
                        f"shard {self.shard_id} is claimed with epoch {holder.header.writer_epoch}; "
                        f"this writer has epoch {self.epoch}",
                        where=self._wal.where(position),
                        hint="This write was not accepted; open a new writer to go on",
                    )
                )
            self._apply(position, holder, 0)
            self._make_room(batches)
            if not batches and holder.header.published == header.published != ():
                return position
        return None

    def _in_doubt_forever(self, fenced: WeirError, position: int) -> StorageError:
        return StorageError(
            f"rows were appended so late that nobody can tell whether they count: {fenced.message}",
            where=self._wal.where(position),
            hint="Open a new writer and write them again, which is safe",
        )

    def _publish(self, staged: Sequence[StagedGeneration], source: Source | None) -> int | None:
        self._refuse_if_stopped()
        asked = tuple(one.flushed for one in staged)
        if self._settle_publication() == asked:
            return self._announce()
        if source is not None and self.sources.covers(source):
            self._announce()
            return None
        self._freeze()
        self._memtables.flush()
        self.lease.check_stored()
        # Until the answer is here: it may be lost, or come about after we have been told that it failed.
        self._publishing = asked
        published = publish_staged(
            self._store,
            self._claim,
            staged,
            generation=self._memtables.generation,
            sources=self.sources.with_mark(source),
            position=self._next_position - 1,
        )
        self._take_in(published)
        return self._announce()

    def _freeze(self) -> None:
        """Have all rows there are wait for their flush."""
        self._refuse_if_stopped()
        self._settle_doubt()
        self._memtables.freeze()

    def _settle_doubt(self) -> None:
        """Find out whether an append that failed stands at the next position.

        It names the generation of the MemTable that is active, and has to be in it if it is there.
        """
        if self._in_doubt:
            self._append((), 0)

    def _settle_early(self) -> None:
        """Settle what is in doubt, unless a write that is under way does."""
        self._commits.alone_if_idle(self._settle_doubt)

    def _make_room(self, batches: tuple[pa.RecordBatch, ...]) -> None:
        """Freeze the MemTable if it would grow past its limits with some rows."""
        rows = sum(batch.num_rows for batch in batches)
        if not self._memtables.has_room(rows, len(batches)):
            self._settle_doubt()
            self._memtables.freeze_if_full(rows, len(batches))

    def _pause(self) -> None:
        self._memtables.wait_for_flush()
        self.lease.pause()

    def _settle_publication(self) -> tuple[FlushedGeneration, ...]:
        """Find out what became of a publication that failed; return what it has published after all."""
        asked = self._publishing
        if not asked:
            return ()
        try:
            newest = settle_publication(self._store, self._claim, self._memtables.generation)
        except FencedError as error:
            raise self._fenced(error) from None
        if newest.current_generation == self._memtables.generation:
            self._publishing = ()
            return ()
        self._take_in(newest)
        return asked

    def _take_in(self, published: ShardManifest) -> None:
        """Go on after what was to be published, which is on the list of a manifest."""
        first = self._memtables.generation
        self._unannounced = tuple(
            replace(one, generation=number) for number, one in enumerate(self._publishing, first)
        )
        self._memtables.published(published)
        self._publishing = ()

    def _announce(self) -> int | None:
        """Append the entry that says what was published, if there is one to be appended."""
        if not self._unannounced:
            return None
        return self._append((), 0)

    def _apply(self, position: int, entry: WalEntry, queued: int) -> None:
        """Take rows that are durable at ``position`` into the MemTable."""
        # First the rows, then the position: were this interrupted in between, the next append would
        # find the entry and apply it once more, which changes nothing.
        self._memtables.append(position, entry, queued)
        self._next_position = position + 1
        self.lease.reached(position)
        if entry.header.published:
            self._unannounced = ()
        self._in_doubt.clear()

    def _refuse_without_lease(self) -> None:
        try:
            self.lease.check()
        except FencedError as error:
            raise self._fenced(error) from None

    def _refuse_if_overtaken(self, position: int, *, in_doubt: bool) -> None:
        try:
            self._appends.before(position, epoch=self.epoch, in_doubt=in_doubt)
        except FencedError as error:
            raise self._fenced(error) from None

    def _refuse_if_stopped(self) -> None:
        if self._memtables.stopped is not None:
            raise self._memtables.stopped

    def _refuse_new_writes(self) -> None:
        self._refuse_if_stopped()
        if self._closed:
            raise self._closed_error()
        if self._memtables.sealed:
            raise sealed_error(self.shard_id, self._store)

    def _refuse_too_many_sources(self, source: Source) -> None:
        known = self.sources.sequences
        if source.name not in known and len(known) >= MAX_SOURCES:
            raise InputError(
                f"shard {self.shard_id} remembers {len(known)} sources, and {source.name!r} is a new one",
                where=self._store.uri,
                hint="Give the writes of one job one name, with a number that grows; a name is for good",
            )

    def _closed_error(self) -> WriterClosedError:
        return WriterClosedError(
            f"the writer of shard {self.shard_id} is closed",
            where=self._store.uri,
            hint="Open a new writer with table.writer()",
        )

    def _fenced(self, error: FencedError) -> FencedError:
        """Stop for good: somebody else writes the shard, or may by now."""
        self._memtables.stop(error)
        self._let_go_of_lease()
        return error

    def _let_go_of_lease(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.forget(self.lease)
        # If a writer without a lease has fenced us, ours would keep others away for nothing.
        release_quietly(self.lease)


def _has_other_columns(tail: Sequence[PositionedEntry], schema: pa.Schema) -> bool:
    """Whether rows of a log were written with other columns than those of a schema."""
    return any(
        item.entry.num_rows and not item.entry.schema.equals(schema, check_metadata=True) for item in tail
    )

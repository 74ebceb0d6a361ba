"""The writer of one shard: group commit into the WAL, a MemTable, and flushes in the background.

Before every write it checks its lease, without asking the store; every append finds the fence entry of a
later claimer (:mod:`weir.write.fencing`).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from uuid import UUID

import pyarrow as pa

from weir.engine.concurrent_map import Wave
from weir.errors import FencedError, InputError, WeirError, WriterClosedError
from weir.format.batch_memory import batch_overhead
from weir.format.shard_manifest import ShardFieldValue
from weir.format.source import Source, SourceMarks
from weir.log.replay import is_in_order
from weir.log.wal import PositionedEntry, Wal
from weir.write.claim import Claim, claim_shard, sealed_error
from weir.write.decision.decide import decide
from weir.write.decision.operation import LogPlaceBefore, Undecided, with_keys
from weir.write.decision.present_rows import PresentRows
from weir.write.fencing import AppendCheck, Fence, let_go_of
from weir.write.flush.staged_generations import StagedGeneration
from weir.write.group_commit import GroupCommit, PendingWrite, joined, owned
from weir.write.lease.lease import ShardLease
from weir.write.log_appender import LogAppender
from weir.write.memtable.memtable_set import MemTables
from weir.write.replay import replayed_memtables
from weir.write.shard_context import ShardContext

__all__ = ["ShardWriter"]


class ShardWriter:
    """Writes one shard until it is closed or fenced.

    Opening one takes the shard's lease and claims the shard: the former writer is fenced, and what it left in
    the WAL is replayed. Safe to use from many threads.

    Parameters
    ----------
    context : ShardContext
        The table, the limits, and who works for all its shards.
    shard_id : UUID
        The shard; created if it does not exist.
    shard_fields : tuple of ShardFieldValue, default ()
        What a new shard's manifest records about which rows it holds.
    absent : Wave, optional
        As for :func:`~weir.write.claim.claim_shard`.

    Attributes
    ----------
    lease : ShardLease
        The lease on the shard.
    unflushed : UnflushedBytes
        Bounds the memory of its rows, with that of other shards.

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
        context: ShardContext,
        shard_id: UUID,
        shard_fields: tuple[ShardFieldValue, ...] = (),
        *,
        absent: Wave | None = None,
    ) -> None:
        self.shard_id = shard_id
        self._context = context
        self._options = context.options
        self.unflushed = context.unflushed
        self._backlog = context.backlog
        self._group_size = context.store.engine.metrics.group_size
        schema = context.schema()
        self._overhead = batch_overhead(schema)
        wal = Wal(context.store, shard_id, namespace=context.namespace)
        # Made before the claim: from then on the next position is free or taken by another writer.
        appends = AppendCheck(context.store, shard_id, wal, context.lease_terms.clock)
        claim = claim_shard(
            context.store,
            wal,
            shard_id,
            schema,
            shard_spec_id=context.spec_id,
            shard_fields=shard_fields,
            lease_terms=context.lease_terms,
            heartbeat=context.heartbeat,
            absent=absent,
        )
        assert claim.lease is not None
        self.lease: ShardLease = claim.lease
        try:
            if _has_other_columns(claim.tail, schema):
                # Written with columns that we have not seen: their values are acknowledged.
                schema = context.newest_schema()
            self._first_schema = schema
            generation = claim.manifest.current_generation
            replayed = replayed_memtables(generation, schema, claim.tail, claim.sources)
            in_order = is_in_order(generation, claim.tail)
        except BaseException:
            let_go_of(self.lease, context.heartbeat)
            raise
        # Our fence entry stands after the replayed tail and is covered by the same flush.
        replayed[-1].last_position = claim.next_position - 1
        # The MemTable has what the tail held; holding on to both would keep it past the flush.
        self._claim: Claim = replace(claim, tail=())
        self._fence = Fence(
            shard_id,
            claim.epoch,
            self.lease,
            context.heartbeat,
            appends,
            wal,
            lambda error: self._memtables.stop(error),
        )
        self._memtables = MemTables(
            context,
            wal,
            self._claim,
            self.lease,
            replayed,
            on_fenced=self._fence.let_go,
            settle=self._settle_early,
            on_first_write=self._watch_age,
        )
        for memtable in replayed:
            if memtable.is_worth_flushing:
                self._watch_age(memtable.last_position)
        if not in_order:
            # The library takes such a log over only when all of it is flushed.
            self._memtables.flush_early()
        self._closed = False
        self._age_flush: threading.Thread | None = None
        self._present_rows: PresentRows | None = None
        self._log = LogAppender(
            context.store, wal, self._claim, self.lease, self._fence, self._memtables, schema
        )
        self._commits = GroupCommit(
            self._write_group,
            max_bytes=self._options.max_wal_bytes,
            max_delay=self._options.max_wal_delay,
        )

    @property
    def where(self) -> str:
        """The table, for errors."""
        return self._context.store.uri

    @property
    def holds_its_shard(self) -> bool:
        """Whether it is still active, as far as known without asking the store; False while paused."""
        if self._closed or self._memtables.stopped is not None or self.lease.is_paused:
            return False
        try:
            self.lease.check()
        except FencedError:
            return False
        return True

    @property
    def epoch(self) -> int:
        """The writer epoch of this writer's claim."""
        return self._claim.epoch

    @property
    def sources(self) -> SourceMarks:
        """How far each source of repeatable writes has got with what the shard holds."""
        return self._memtables.sources

    def confirm(self) -> None:
        """Find out whether anybody else has written to the shard since, and what became of what failed.

        Raises
        ------
        FencedError
            If the shard is somebody else's, so what is known of it may be out of date.
        """
        self._commits.drain()
        self._commits.alone(self._confirm)

    def submit(self, write: pa.RecordBatch | Undecided, source: Source | None = None) -> PendingWrite:
        """Queue rows, after waiting for room, and return what becomes of them.

        Parameters
        ----------
        write : RecordBatch or Undecided
            Rows in the schema of WAL entries; or what depends on the rows there are.
        source : Source, optional
            The mark of the write: if the shard has it already, nothing is written, and the position is
            that of the last entry.

        Returns
        -------
        PendingWrite
            A future: its ``result()`` is the position of the rows, once they are durable (invariant I1). The
            caller that asks for it may be the one that writes them.

        Raises
        ------
        FencedError
            If another writer has claimed the shard. Nothing of this call was written.
        ShardSealedError
            If the shard has been sealed, as this writer has seen at its last flush. Nothing of this call was
            written.
        BackpressureError
            If flushes or merges did not make room in time. Nothing of this call was written.
        """
        pending = self.prepare(write, () if source is None else (source,))
        self.unflushed.admit(pending.held_bytes)
        pending.enqueue()
        return pending

    def prepare(
        self,
        write: pa.RecordBatch | Undecided,
        sources: Sequence[Source] = (),
        *,
        schema: pa.Schema | None = None,
    ) -> PendingWrite:
        """Make ready to write; wait for a merge if too many generations wait for one.

        For who writes to several shards at once, and queues the writes when the bytes of all are admitted.

        Parameters
        ----------
        write : RecordBatch or Undecided
            Rows; or what depends on the rows there are.
        sources : sequence of Source, default ()
            The mark of the write. Several are of single writes whose rows these are together: if the shard
            has one of them already, nothing is written.
        schema : Schema, optional
            The log entry schema of the rows. If it differs from that of earlier rows, they begin a new
            MemTable. Default: the one the writer began with. Undecided operations carry their own.

        Raises
        ------
        WriterError
            As for :meth:`submit`.
        InputError
            If the shard remembers as many sources as it can.
        """
        self._refuse_new_writes()
        for source in sources:
            if not source.is_single:
                self._refuse_too_many_sources(source)
        if self._backlog is not None:
            self._backlog.admit(self.shard_id)
        if isinstance(write, Undecided):
            nbytes = sum(operation.rows.nbytes for operation in write.operations)
            return PendingWrite(self._commits, None, nbytes, self._overhead, sources, write.schema, write)
        return PendingWrite(
            self._commits, *owned(write), self._overhead, sources, schema or self._first_schema
        )

    @property
    def place(self) -> LogPlaceBefore:
        """The shard's current position: everything acknowledged by now is before it."""
        return self._commits.alone(lambda: LogPlaceBefore(self._log.position, self._memtables.generation))

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
            Its log position; None if the shard has the mark already.

        Raises
        ------
        FencedError
            If another writer has claimed the shard. Nothing was published.
        StorageError
            If one was staged too long ago; or if the store failed, in which case the outcome is unknown.
        """
        self._refuse_new_writes()
        if any(one.shard_id != self.shard_id for one in staged):
            raise InputError(
                f"rows staged for another shard cannot be published in shard {self.shard_id}",
                where=self._context.store.uri,
                hint="Another writer has created the shard meanwhile; stage the rows again",
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

    def flush_aged(self, position: int) -> bool:
        """Have what stands up to a position flushed in the background, because it has been here for long.

        Return whether it will be flushed, by this writer or by now by another one. A paused writer takes its
        lease back for the duration; if another writer has the shard, that one has flushed it.
        """
        memtables = self._memtables
        if self._closed or memtables.stopped is not None or not memtables.is_unflushed(position):
            return True
        if self.lease.is_paused:
            # One at a time: where the store does not answer, each would wait for as long.
            if self._age_flush is None or not self._age_flush.is_alive():
                flush = threading.Thread(target=self._flush_and_pause, name="weir-age-flush", daemon=True)
                flush.start()
                self._age_flush = flush
        else:
            memtables.flush_early()
            memtables.retry_flush()
        return False

    def _flush_and_pause(self) -> None:
        # One that fails is tried again, while the rows are here.
        with suppress(WeirError):
            self.flush()
            self.pause()

    def _watch_age(self, position: int) -> None:
        if self._context.aging is not None and self._options.max_memtable_age < math.inf:
            self._context.aging.watch(self, position, self._options.max_memtable_age)

    def pause(self, *, brief: bool = False) -> None:
        """Let others have the shard until something is written here again.

        Waits for queued writes and a running flush. The next write or flush takes the lease back with one
        round trip, if no other writer has held it since. Otherwise this writer is fenced, and the shard has
        to be claimed again.

        Parameters
        ----------
        brief : bool, default False
            As for :meth:`weir.write.lease.lease.ShardLease.pause`.
        """
        self._commits.drain()
        self._commits.alone(partial(self._pause, brief))

    def write_queued(self) -> None:
        """Write everything queued, and wait for it."""
        self._commits.drain()

    def close(self, *, flush: bool | None = None) -> None:
        """Write what is queued, flush, and stop. Idempotent.

        Parameters
        ----------
        flush : bool, optional
            Whether to flush. Default: if the options say so.

        Raises
        ------
        WeirError
            If the flush failed. The rows are durable in the WAL all the same.
        """
        self._closed = True
        try:
            if self._memtables.stopped is None:
                self._commits.drain()
                if self._options.flush_on_close if flush is None else flush:
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
        self._fence.let_go()

    @property
    def unflushed_rows(self) -> int:
        """Rows in MemTables: durable in the WAL, not yet in a generation."""
        return self._memtables.num_rows

    # The leader of a commit group runs what follows; the group commit lets only one lead at a time.

    def _write_group(self, group: Sequence[PendingWrite]) -> int:
        queued = sum(pending.held_bytes for pending in group)
        try:
            self._refuse_if_stopped()
            fresh, repeats = self._without_repeats(group)
            if fresh:
                self._write_fresh(fresh)
            for pending, first in repeats:
                if first is not None and first.error is not None:
                    pending.error = first.error
                else:
                    self._answer(pending)
            if repeats:
                self.unflushed.failed(sum(pending.held_bytes for pending, _ in repeats))
            return self._log.position
        except BaseException:
            self.unflushed.failed(queued)
            raise

    def _without_repeats(
        self, group: Sequence[PendingWrite]
    ) -> tuple[list[PendingWrite], list[tuple[PendingWrite, PendingWrite | None]]]:
        """Return the writes that the shard lacks, and the others, each with the write that it repeats."""
        if not any(pending.sources for pending in group):
            return list(group), []
        if self.lease.is_paused:
            # What is remembered counts only if nobody else has had the shard, and no backup took its place.
            self.lease.check_to_append()
        # The repeated write may be an append that seemed to fail.
        self._log.settle_doubt()
        fresh: list[PendingWrite] = []
        repeats: list[tuple[PendingWrite, PendingWrite | None]] = []
        newest: dict[str, tuple[Source, PendingWrite]] = {}
        for pending in group:
            is_known, first = self._repeated(pending.sources, newest)
            if is_known:
                repeats.append((pending, first))
                continue
            newest.update((source.name, (source, pending)) for source in pending.sources)
            fresh.append(pending)
        return fresh, repeats

    def _repeated(
        self, sources: Sequence[Source], newest: Mapping[str, tuple[Source, PendingWrite]]
    ) -> tuple[bool, PendingWrite | None]:
        """Return whether a write is repeated, and which of its group it repeats if it is one of that."""
        if len(sources) > 1:
            # What of it is to be told of which of its writes, they find out one by one.
            names = [source.name for source in sources]
            return bool(self.sources.window.known(names)) or not newest.keys().isdisjoint(names), None
        for source in sources:
            if self.sources.covers(source):
                return True, None
            before, first = newest.get(source.name, (None, None))
            if before is not None and SourceMarks().with_mark(before).covers(source):
                return True, first
        return False, None

    def _answer(self, repeat: PendingWrite) -> None:
        """Give the result of the first write to a repeated one."""
        repeat.deduplicated = True
        if len(repeat.sources) > 1:
            return
        (source,), undecided = repeat.sources, repeat.undecided
        done = self.sources.window.get(source.name) if source.is_single else None
        if done is None:
            return
        repeat.answered_at = done.position
        if undecided is not None and not undecided.tell_again(done.answer, self._context.key_columns):
            repeat.error = InputError(
                f"the write id {source.name!r:.80} was already used for other rows",
                where=self._context.store.uri,
                hint="Give every write its own id, and repeat it only with the same rows",
            )

    def _write_fresh(self, group: Sequence[PendingWrite]) -> None:
        """Write what the shard does not have, as one log entry."""
        queued = sum(pending.held_bytes for pending in group)
        self._log.take_over(group[0].schema)
        rows = self._rows_of(group)
        marks: list[Source] = []
        answers: list[bytes] = []
        for one in group:
            if one.error is None:
                marks += one.sources
                answer = one.undecided.answer if one.undecided is not None else b""
                answers += [answer] * len(one.sources)
        if not rows and not marks:
            # Everything was decided to be left as it is.
            self._log.confirm()
            self.unflushed.failed(queued)
            return
        batches = joined(rows, sum(pending.nbytes for pending in group))
        if len(batches) > self._options.max_memtable_entries:
            batches = (pa.concat_batches(batches),)
        self._log.make_room(batches)
        self._memtables.wait_for_room()
        self._log.append(batches, queued, tuple(marks), tuple(answers) if any(answers) else ())
        self._group_size.record(sum(len(one.sources) or 1 for one in group))

    def _rows_of(self, group: Sequence[PendingWrite]) -> list[pa.RecordBatch]:
        """Return the rows that a group comes to; what depends on the rows there are is decided now."""
        undecided = [one for one in group if one.undecided is not None]
        if undecided:
            self._log.settle()
            try:
                for pending in undecided:
                    self._look_again(pending)
                return decide(group, self._log.schema, self._context.key_columns, self._present().find)
            except WeirError as error:
                # Writes that do not depend on existing rows are not affected.
                for pending in undecided:
                    pending.error = error
        return [one.batch for one in group if one.batch is not None]

    def _look_again(self, pending: PendingWrite) -> None:
        """Add the keys that were written since the rows to be changed were looked for."""
        undecided = pending.undecided
        assert undecided is not None
        if undecided.since is None:
            return
        (operation,) = undecided.operations
        keys = self._present().written_since(undecided.since, self._log.schema)
        rows = with_keys(operation.rows, keys, undecided.seen, self._context.key_columns)
        undecided.operations = (operation.with_rows(rows),)

    def _present(self) -> PresentRows:
        if self._present_rows is None:
            context = self._context
            assert context.versions is not None
            self._present_rows = PresentRows(
                context.store, self.shard_id, context.key_columns, self._memtables, context.versions
            )
        return self._present_rows

    def _confirm(self) -> None:
        self._refuse_if_stopped()
        self._log.settle_doubt()
        self._log.confirm()

    def _publish(self, staged: Sequence[StagedGeneration], source: Source | None) -> int | None:
        self._refuse_if_stopped()
        return self._log.publish(staged, source)

    def _freeze(self) -> None:
        self._refuse_if_stopped()
        self._log.freeze()

    def _pause(self, brief: bool) -> None:
        self._memtables.wait_for_flush()
        self.lease.pause(brief=brief)

    def _settle_early(self) -> None:
        """Settle what is in doubt, unless a running write does."""
        self._commits.alone_if_idle(self._log.settle_doubt)

    def _refuse_if_stopped(self) -> None:
        if self._memtables.stopped is not None:
            raise self._memtables.stopped.again()

    def _refuse_new_writes(self) -> None:
        self._refuse_if_stopped()
        if self._closed:
            raise self._closed_error()
        if self._memtables.sealed:
            raise sealed_error(self.shard_id, self._context.store)

    def _refuse_too_many_sources(self, source: Source) -> None:
        known = self.sources.sequences
        if source.name not in known and not source.is_single and self.sources.is_full:
            raise InputError(
                f"shard {self.shard_id} remembers {len(known)} sources, and {source.name!r} would be another "
                "one",
                where=self._context.store.uri,
                hint="Give the writes of one job one name, with a number that grows; a name is never "
                "forgotten",
            )

    def _closed_error(self) -> WriterClosedError:
        return WriterClosedError(
            f"the writer of shard {self.shard_id} is closed",
            where=self._context.store.uri,
            hint="Open a new writer with table.writer()",
        )


def _has_other_columns(tail: Sequence[PositionedEntry], schema: pa.Schema) -> bool:
    """Whether rows of a log were written with other columns than those of a schema."""
    return any(
        item.entry.num_rows and not item.entry.schema.equals(schema, check_metadata=True) for item in tail
    )

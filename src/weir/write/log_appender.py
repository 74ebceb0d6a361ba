"""The end of one shard's log, as known to its writer: the next position, and the outcome of each append.

An append may fail and yet take effect. Until that is known, its rows are *in doubt*: the next append at the
same position shows what is there. The same holds for staged generations published beside the log, whose
manifest may have been written although the answer was lost.

Only the leader of a commit group uses it at a time (:mod:`weir.write.group_commit`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pyarrow as pa

from weir.errors import FencedError
from weir.format import wal_entry
from weir.format.shard_manifest import FlushedGeneration, ShardManifest
from weir.format.source import Source
from weir.format.wal_entry import WalEntry
from weir.format.wal_header import WalEntryHeader
from weir.log.wal import Wal
from weir.storage.interface import ObjectStore
from weir.write.claim import Claim
from weir.write.fencing import Fence
from weir.write.flush.staged_generations import StagedGeneration, publish_staged, settle_publication
from weir.write.lease.lease import ShardLease
from weir.write.memtable.memtable_set import MemTables

__all__ = ["LogAppender"]


class LogAppender:
    """Appends to one shard's log, and adds durable rows to the MemTables.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    wal : Wal
        The log.
    claim : Claim
        The claim under which it is written.
    lease : ShardLease
        The lease, which records the log position.
    fence : Fence
        Lets appends through while the shard is our own.
    memtables : MemTables
        The durable rows that are not flushed.
    schema : Schema
        The schema that entries begin with.
    """

    def __init__(
        self,
        store: ObjectStore,
        wal: Wal,
        claim: Claim,
        lease: ShardLease,
        fence: Fence,
        memtables: MemTables,
        schema: pa.Schema,
    ) -> None:
        self._store = store
        self._metrics = store.engine.metrics
        self._wal = wal
        self._claim = claim
        self._epoch = claim.epoch
        self._lease = lease
        self._fence = fence
        self._memtables = memtables
        self.schema = schema
        self._next_position = claim.next_position
        self._in_doubt: set[str] = set()
        self._unannounced: tuple[FlushedGeneration, ...] = ()
        self._publishing: tuple[FlushedGeneration, ...] = ()

    @property
    def shard_id(self) -> UUID:
        """The shard."""
        return self._claim.manifest.shard_id

    @property
    def position(self) -> int:
        """The last position that is known to be taken."""
        return self._next_position - 1

    def take_over(self, schema: pa.Schema | None) -> None:
        """Continue with other columns: rows in memory are flushed with the columns they were written with."""
        if schema is not None and schema is not self.schema:
            self.settle_doubt()
            self._memtables.take_over(schema)
            self.schema = schema

    def append(
        self,
        batches: tuple[pa.RecordBatch, ...],
        queued: int,
        sources: tuple[Source, ...] = (),
        answers: tuple[bytes, ...] = (),
    ) -> int:
        """Append rows to the log and take them in; return their position.

        With marks, the caller must first settle rows in doubt, which may have the same marks.

        Parameters
        ----------
        batches : tuple of RecordBatch
            The rows, in :attr:`schema`.
        queued : int
            Bytes that were counted for them while they were queued.
        sources : tuple of Source, default ()
            The marks of the writes.
        answers : tuple of bytes, default ()
            The result of each marked write; empty if each does everything.

        Raises
        ------
        FencedError
            If another writer has the shard. Nothing was appended.
        StorageError
            If the store failed. The rows may or may not be there: the next append finds out.
        """
        if batches:
            # For a publication that failed, perhaps at its end: later rows must come after it.
            self._settle_publication()
            self._announce()
        self._memtables.begin_append()
        try:
            return self._append_until_it_stands(batches, queued, sources, answers)
        finally:
            self._memtables.end_append(in_doubt=bool(self._in_doubt))

    def settle(self) -> None:
        """Find out whatever is not known of what was appended or published before.

        Raises
        ------
        FencedError
            If another writer has the shard.
        StorageError
            If the store failed.
        """
        self.settle_doubt()
        self._settle_publication()
        self._announce()

    def confirm(self) -> int:
        """Return the last position, if no other writer has appended since. Takes one round trip.

        Raises
        ------
        FencedError
            If another writer has the shard, so that the known rows may be out of date.
        """
        self._fence.before_append(self._next_position, in_doubt=False)
        standing = self._wal.read(self._next_position, remember=False)
        if standing is not None:
            raise self._fence.met(standing.header, self._next_position)
        return self.position

    def settle_doubt(self) -> None:
        """Find out whether a failed append is at the next position.

        It names the generation of the MemTable that is active, and has to be in it if it is there.
        """
        if self._in_doubt:
            self.append((), 0)

    def make_room(self, batches: tuple[pa.RecordBatch, ...]) -> None:
        """Freeze the MemTable if it would grow past its limits with some rows."""
        rows = sum(batch.num_rows for batch in batches)
        if not self._memtables.has_room(rows, len(batches)):
            self.settle_doubt()
            self._memtables.freeze_if_full(rows, len(batches))

    def freeze(self) -> None:
        """Have all rows there are wait for their flush."""
        self.settle_doubt()
        self._memtables.freeze()

    def publish(self, staged: Sequence[StagedGeneration], source: Source | None) -> int | None:
        """Publish staged generations, newer than everything before; return where the log says so.

        None if the shard has their mark already.
        """
        asked = tuple(one.flushed for one in staged)
        if self._settle_publication() == asked:
            return self._announce()
        if source is not None and self._memtables.sources.covers(source):
            self._announce()
            return None
        self.freeze()
        self._memtables.flush()
        self._lease.check_stored()
        # Until the answer arrives: it may be lost, or the append may take effect after an error.
        self._publishing = asked
        published = publish_staged(
            self._store,
            self._claim,
            staged,
            generation=self._memtables.generation,
            sources=self._memtables.sources.with_mark(source),
            position=self.position,
        )
        self._take_in(published)
        return self._announce()

    def _append_until_it_stands(
        self,
        batches: tuple[pa.RecordBatch, ...],
        queued: int,
        sources: tuple[Source, ...],
        answers: tuple[bytes, ...],
    ) -> int:
        write_id = wal_entry.new_write_id()
        unannounced = self._unannounced
        while True:
            position = self._next_position
            header = WalEntryHeader(
                self._epoch,
                # What stood here of an earlier append may have filled the MemTable.
                self._memtables.generation,
                write_id,
                source=sources[0] if sources else None,
                further_sources=sources[1:],
                answers=answers,
                place=self._wal.place(position),
                claim=self._claim.fence,
            )
            if unannounced:
                header = header.announcing(unannounced)
            data = wal_entry.encode(header, self.schema, batches)
            in_doubt = bool(self._in_doubt)
            self._fence.before_append(position, in_doubt=in_doubt)
            # Until it was applied: the answer may be lost, and the thread may be interrupted anywhere. The
            # next append at this position will show.
            self._in_doubt.add(write_id)
            standing = self._wal.append_or_read(position, data)
            if standing is None or standing.header.write_id == write_id:
                self._fence.after_append(position, in_doubt=in_doubt)
                self._apply(position, WalEntry(header, self.schema, batches), queued)
                return position
            if standing.header.write_id not in self._in_doubt:
                raise self._fence.met(standing.header, position)
            self._apply(position, standing, 0)
            self.make_room(batches)
            if not batches and standing.header.published == header.published != ():
                return position

    def _apply(self, position: int, entry: WalEntry, queued: int) -> None:
        """Take rows that are durable at ``position`` into the MemTable."""
        # First the rows, then the position: were this interrupted in between, the next append would
        # find the entry and apply it once more, which changes nothing.
        self._memtables.append(position, entry, queued)
        self._next_position = position + 1
        self._metrics.log_appends.add()
        self._metrics.log_rows.add(entry.num_rows)
        self._lease.last_position = position
        if entry.header.published:
            self._unannounced = ()
        self._in_doubt.clear()

    def _settle_publication(self) -> tuple[FlushedGeneration, ...]:
        """Find out the outcome of a failed publication; return what it has published after all."""
        asked = self._publishing
        if not asked:
            return ()
        try:
            newest = settle_publication(self._store, self._claim, self._memtables.generation)
        except FencedError as error:
            raise self._fence.fenced(error) from None
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
        return self.append((), 0)

"""A range of one shard's changes, as a value: a task for any machine that can reach the storage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weir.base.lineage import namespace_of
from weir.base.table import BaseTable
from weir.changes.before_image import ShardState
from weir.changes.rows import BEFORE, change_rows, change_schema
from weir.changes.settled import settled_changes
from weir.format.expiry import Expiry
from weir.format.field_ids import without_field_ids
from weir.format.merge_engine import MergeEngine
from weir.format.shard_manifest import ShardManifest
from weir.format.snapshot_token import ShardCut, entry_stamp
from weir.format.wal_entry import TOMBSTONE
from weir.log.recorded_position import another_log
from weir.log.wal import PositionedEntry, Wal
from weir.lsm.expired_rows import expiry_instant
from weir.lsm.log_tail import TailRun
from weir.lsm.staged_rows import with_published_rows
from weir.snapshots.expiry import changes_gone
from weir.snapshots.time_travel import view_at
from weir.storage.interface import ObjectStore

__all__ = ["ChangeRange", "ChangeSource", "ShardChanges"]

_MAX_BATCH_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ChangeSource:
    """The table that changes are read of. Can be pickled.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    table : str
        Identity of the table.
    row_schema : Schema
        The table's columns, with their field ids, and ``_tombstone``.
    primary_key : tuple of str
        The columns that identify a row.
    merge_engine : MergeEngine or None, default None
        How the versions of a key are combined. With one, a change is the new state of a row.
    expiry : Expiry or None, default None
        When rows expire: changes of expired rows are omitted.
    """

    store: ObjectStore
    table: str
    row_schema: pa.Schema
    primary_key: tuple[str, ...]
    merge_engine: MergeEngine | None = None
    expiry: Expiry | None = None

    @classmethod
    def of(cls, base: BaseTable) -> ChangeSource:
        """Return the table with the columns of a version."""
        return cls(
            base.store,
            base.identity,
            base.row_schema,
            base.primary_key,
            base.merge_engine,
            base.expiry,
        )

    @property
    def schema(self) -> pa.Schema:
        """The table's columns."""
        shown = without_field_ids(self.row_schema)
        return shown.remove(shown.get_field_index(TOMBSTONE))

    @property
    def namespace(self) -> str:
        """As :attr:`weir.base.table.BaseTable.namespace`."""
        return namespace_of(f"{self.table} {self.store.uri}")


@dataclass(frozen=True, slots=True)
class ShardChanges:
    """Consecutive changes of one shard, in commit order.

    Parameters
    ----------
    rows : Table
        One row for each change.
    position : int
        Log position of the last of them.
    epoch : int
        Epoch of the writer that wrote the last change.
    reached : ShardCut
        The position after them.
    """

    rows: pa.Table
    position: int
    epoch: int
    reached: ShardCut


@dataclass(frozen=True, slots=True)
class ChangeRange:
    """Changes of one shard between two positions of its log. Small, and can be pickled.

    Made by :meth:`~weir.changes.feed.ChangeFeed.plan`. Reading it needs nothing but the storage, so many
    machines can read the ranges of a plan at once. The ranges of one shard follow each other.

    Parameters
    ----------
    source : ChangeSource
        The table.
    begin : ShardCut
        The position to begin after.
    position : int
        The last log position that belongs to it.
    batch_rows : int
        Rows after which a batch ends.
    base : BaseTable, optional
        The base table at ``begin``, if the rows before the changes are needed.
    newest : ShardManifest, optional
        The newest manifest whose generations may be read in place of log entries.
    before : bool, default False
        Whether to include the rows before the changes.
    entry : bytes, default b""
        What a token has of the entry at ``position``, if known.
    """

    source: ChangeSource = field(repr=False)
    begin: ShardCut
    position: int
    batch_rows: int
    base: BaseTable | None
    newest: ShardManifest | None = field(repr=False)
    before: bool = False
    entry: bytes = b""

    @property
    def shard_id(self) -> UUID:
        """The shard."""
        return self.begin.shard_id

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows, that of the feed."""
        return change_schema(self.source.schema, before=self.before)

    def batches(self) -> Iterator[ShardChanges]:
        """Yield the changes in commit order; those of one log entry are never split between batches.

        Raises
        ------
        SnapshotExpiredError
            If garbage collection has removed a log entry that would be read; the message names it.
        CorruptionError
            If a log entry is damaged.
        """
        schema = self.schema
        state = self._state()
        columns, engine = self.source.row_schema, self.source.merge_engine
        for entries in _groups(self._entries(), self.batch_rows):
            run = TailRun(self.shard_id, entries, columns, self.source.primary_key)
            reached = self.begin
            if state is None:
                rows = change_rows(run, schema, None)
            elif engine is None:
                rows = change_rows(run, schema, state)
                state.move_on(run, self.newest)
                reached = state.cut
            else:
                rows = settled_changes(run, schema, state, self.newest, engine)
                reached = state.cut
            reached = reached.at(run.last_position, entry_stamp(entries[-1].entry.header.write_id))
            last = next(item for item in reversed(entries) if item.entry.num_rows)
            yield ShardChanges(self._live(rows), last.position, last.entry.header.writer_epoch, reached)

    def _live(self, rows: pa.Table) -> pa.Table:
        """Return changes without expired rows, including all deletes."""
        expiry = self.source.expiry
        if expiry is None or not rows.num_rows:
            return rows
        now = expiry_instant()
        expired = expiry.expired(rows.column(expiry.column), now)
        expired = pc.and_(expired, pc.equal(rows.column("_op"), "upsert"))
        if BEFORE in rows.schema.names:
            at = rows.schema.get_field_index(BEFORE)
            before = rows.column(at).combine_chunks()
            gone = expiry.expired(before.field(expiry.column), now)
            kept = pa.array(np.arange(len(before)), mask=gone.to_numpy(zero_copy_only=False))
            shown = before.take(kept)
            rows = rows.set_column(at, rows.schema.field(at), shown)
        return rows.filter(pc.invert(expired))

    def to_table(self) -> pa.Table:
        """Return all the changes as one table."""
        found = [changes.rows for changes in self.batches()]
        return pa.concat_tables(found) if found else self.schema.empty_table()

    def _state(self) -> ShardState | None:
        if self.base is None:
            return None
        table = self.source
        # The state at the beginning and the changes since are rows of the same columns.
        base = self.base.under(table.row_schema, table.merge_engine, table.expiry)
        return ShardState(table.store, base, view_at(table.store, base, self.begin))

    def _entries(self) -> Iterator[PositionedEntry]:
        store, begin = self.source.store, self.begin
        wal = Wal(store, begin.shard_id, namespace=self.source.namespace)
        position = begin.position
        # A feed reads an entry once. Caching it would push out what readers come back to.
        if position == 0 and begin.manifest_version == 0:
            # Some writers count from 0; there need not be an entry.
            yield from wal.read_from(0, 0, remember=False)
        schema = self.source.row_schema
        for item in wal.read_from(position + 1, self.position, remember=False):
            position = item.position
            stamp = entry_stamp(item.entry.header.write_id)
            if position == self.position and self.entry and stamp != self.entry:
                raise another_log(store, begin.shard_id, position)
            yield with_published_rows(store, begin.shard_id, schema, item, changes_gone)
        if position < self.position:
            raise changes_gone(store, begin.shard_id, position + 1)


def _groups(entries: Iterator[PositionedEntry], rows: int) -> Iterator[Sequence[PositionedEntry]]:
    """Yield runs of entries that have rows, each as short as makes at least ``rows`` of them."""
    group: list[PositionedEntry] = []
    count = nbytes = 0
    for item in entries:
        group.append(item)
        count += item.entry.num_rows
        nbytes += item.entry.nbytes
        # No place lies between an entry 0 and the beginning of the log, so a batch does not end there.
        if item.position and (count >= rows or (count and nbytes >= _MAX_BATCH_BYTES)):
            yield group
            group, count, nbytes = [], 0, 0
    if count:
        yield group

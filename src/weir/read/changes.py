"""The change feed: every upsert and delete, per shard in commit order, from the write-ahead log.

The log is what was committed, in order: entry after entry, row after row. What a failed call left behind
without its caller knowing is in it, and so in every read and in the feed. Fence entries have no rows. What
a writer tried to write after it was fenced is not in it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weir.errors import OptionError, SchemaError, SnapshotExpiredError
from weir.format.feed_consumer import FeedConsumer
from weir.format.shard_manifest import ShardManifest
from weir.format.snapshot_token import ShardCut, SnapshotToken
from weir.format.wal_entry import TOMBSTONE, wal_schema
from weir.read.as_of import TokenReader, view_at
from weir.read.consumers import StoredConsumer, drop_consumer, read_consumer, refuse_overdue
from weir.read.cut import Cut, CutTaker
from weir.read.expiry import changes_gone, check_state
from weir.read.history import earliest_position, place_token, state_token
from weir.read.row_before import ShardState, before_type
from weir.read.tail import TailRun
from weir.read.tokens import as_token
from weir.shard.wal import PositionedEntry, Wal
from weir.storage.interface import ObjectStore

__all__ = ["EARLIEST", "ChangeBatch", "ChangeFeed", "ConsumerTerms", "FeedSource", "open_feed"]

EARLIEST = "earliest"
"""What ``since`` may be instead of a token: the oldest change that is still stored."""

_ADDED = ("_op", "_shard", "_position", "_epoch", "_before")
_DEFAULT_MAX_AGE = timedelta(days=7)
_LONGEST_MAX_AGE = timedelta(days=36_500)
_DEFAULT_MAX_WAL_ENTRIES = 1_000_000


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Changes of one shard that follow each other, in commit order.

    Parameters
    ----------
    shard_id : UUID
        The shard.
    position : int
        Log position of the last of them. Those of one log entry are never in two batches.
    epoch : int
        Epoch of the writer that wrote the last of them.
    rows : Table
        One row per change: the table's columns, of a delete the key alone; ``_op``, which is
        ``"upsert"`` or ``"delete"``; ``_shard``, ``_position`` and ``_epoch``; and, if they were asked
        for, the rows before the changes as structs in ``_before``, null where there was none.
    token : SnapshotToken
        The place after these changes: ``changes(since=token)`` goes on with the next.
    """

    shard_id: UUID
    position: int
    epoch: int
    rows: pa.Table
    token: SnapshotToken


@dataclass(frozen=True, slots=True)
class FeedSource:
    """The table that a feed is of.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    cuts : CutTaker
        Says how far the logs have come.
    states : TokenReader
        Opens the states that tokens name.
    table : str
        Identity of the table.
    schema : Schema
        The table's columns.
    primary_key : tuple of str
        The columns that identify a row.
    """

    store: ObjectStore
    cuts: CutTaker
    states: TokenReader
    table: str
    schema: pa.Schema
    primary_key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConsumerTerms:
    """How far behind a consumer may fall.

    Parameters
    ----------
    max_age : timedelta, optional
        How long it may go without an acknowledgement.
    max_wal_entries : int, optional
        How many log entries may be kept for it alone.
    """

    max_age: timedelta | None = None
    max_wal_entries: int | None = None

    def __post_init__(self) -> None:
        """Check both."""
        age, entries = self.max_age, self.max_wal_entries
        if age is not None and not (isinstance(age, timedelta) and timedelta(0) < age <= _LONGEST_MAX_AGE):
            raise OptionError(
                f"max_age must be a timedelta above 0 and of at most 100 years, got {age!r}", where="max_age"
            )
        if entries is not None and (isinstance(entries, bool) or not isinstance(entries, int) or entries < 1):
            raise OptionError(
                f"max_wal_entries must be a whole number of at least 1, got {entries!r}",
                where="max_wal_entries",
            )


class ChangeFeed:
    """Changes of a table, to be iterated over. Made by :meth:`weir.Table.changes`.

    Each iteration yields what has been committed since the last batch it yielded, up to the moment it
    starts or to ``until``, and ends. Iterate again for what has come in since. One thread at a time.

    Parameters
    ----------
    source : FeedSource
        The table.
    since : SnapshotToken
        The place to begin after.
    until : SnapshotToken, optional
        The place to end at.
    before : bool
        Whether to yield the rows before the changes.
    batch_rows : int
        Rows after which a batch ends.
    consumer : StoredConsumer, optional
        The consumer whose place it is.
    """

    def __init__(
        self,
        source: FeedSource,
        since: SnapshotToken,
        until: SnapshotToken | None,
        *,
        before: bool,
        batch_rows: int,
        consumer: StoredConsumer | None,
    ) -> None:
        self._source = source
        self._token = since
        self._until = until
        self._before = before
        self._batch_rows = batch_rows
        self._consumer = consumer

    @property
    def schema(self) -> pa.Schema:
        """Schema of the rows of every batch."""
        added = [
            pa.field("_op", pa.string(), nullable=False),
            pa.field("_shard", pa.string(), nullable=False),
            pa.field("_position", pa.uint64(), nullable=False),
            pa.field("_epoch", pa.uint64(), nullable=False),
        ]
        if self._before:
            added.append(pa.field("_before", before_type(self._source.schema)))
        return pa.schema([*self._source.schema, *added])

    @property
    def token(self) -> SnapshotToken:
        """The place after the last batch yielded; after an iteration has ended, where it ended."""
        return self._token

    def __iter__(self) -> Iterator[ChangeBatch]:
        """Yield what has been committed since :attr:`token`, shard after shard.

        Raises
        ------
        SnapshotExpiredError
            If garbage collection has removed a log entry that is to be read, naming it.
        CorruptionError
            If a log entry is broken.
        """
        if self._until is None:
            cut = self._source.cuts.take(across_shards=False)
            end, newest = cut.token(), cut.manifests
        else:
            end, newest = self._until, {}
        for limit in end.shards:
            yield from self._shard(limit, newest.get(limit.shard_id))
        self._token = _arrived(self._token, end)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return one iteration as an Arrow stream, which anything that speaks Arrow reads."""
        batches = (batch for change in self for batch in change.rows.to_batches())
        return pa.RecordBatchReader.from_batches(self.schema, batches)

    def commit(self) -> None:
        """Acknowledge everything yielded so far: the consumer goes on after it, in whatever process.

        Raises
        ------
        OptionError
            If the feed was opened without a consumer.
        ConflictError
            If another feed of the same consumer has acknowledged something since this one was
            opened, or the consumer was dropped. Nothing was stored.
        StorageError
            If the store failed; call it again.
        """
        if self._consumer is None:
            raise OptionError(
                "a feed without a consumer has nowhere to store its place",
                where="consumer",
                hint="Pass consumer='name' to changes(), or keep feed.token yourself",
            )
        self._consumer.acknowledge(self._token)

    def _shard(self, limit: ShardCut, newest: ShardManifest | None) -> Iterator[ChangeBatch]:
        source = self._source
        begin = self._token.cut_of(limit.shard_id)
        if begin is None:
            begin = ShardCut(limit.shard_id, 0, 0, 0, 0)
        if begin.position >= limit.position:
            return
        state = self._state(begin) if self._before else None
        wal = Wal(source.store, limit.shard_id, namespace=source.table)
        for entries in _groups(_entries(source.store, wal, begin, limit), self._batch_rows):
            run = TailRun(limit.shard_id, entries, wal_schema(source.schema), source.primary_key)
            if state is None:
                rows = self._rows(run, None)
                reached = replace(begin, position=run.last_position)
            else:
                with source.states.reading(self._token):
                    rows = self._rows(run, state)
                state.move_on(run, newest)
                reached = state.cut
            self._token = _with_cut(self._token, reached)
            last = next(item for item in reversed(entries) if item.entry.num_rows)
            epoch = last.entry.header.writer_epoch
            yield ChangeBatch(limit.shard_id, last.position, epoch, rows, self._token)

    def _state(self, begin: ShardCut) -> ShardState:
        store, states = self._source.store, self._source.states
        base = states.base_at(self._token.base_version)
        return ShardState(store, base, view_at(store, base, begin), self._source.schema)

    def _rows(self, run: TailRun, state: ShardState | None) -> pa.Table:
        rows = run.rows
        deleted = run.tombstones
        counts = [item.entry.num_rows for item in run.entries]
        positions = np.repeat(np.array([item.position for item in run.entries], dtype=np.uint64), counts)
        epochs = np.array([item.entry.header.writer_epoch for item in run.entries], dtype=np.uint64)
        columns: list[pa.Array | pa.ChunkedArray] = [
            *rows.drop_columns([TOMBSTONE]).columns,
            pc.if_else(pa.array(deleted), "delete", "upsert"),
            pa.repeat(str(run.shard_id), rows.num_rows),
            pa.array(positions),
            pa.array(np.repeat(epochs, counts)),
        ]
        if state is not None:
            columns.append(state.rows_before(rows, deleted))
        return pa.Table.from_arrays(columns, schema=self.schema)


def open_feed(
    source: FeedSource,
    since: SnapshotToken | str | None,
    until: SnapshotToken | str | None,
    *,
    before: bool,
    consumer: str | None,
    terms: ConsumerTerms,
    batch_rows: int,
) -> ChangeFeed:
    """Open a change feed; see :meth:`weir.Table.changes`.

    Raises
    ------
    InputError
        If a token is of another table.
    OptionError
        If an option is out of range, or options contradict each other.
    SchemaError
        If the table has a column that is named like one that the feed adds.
    SnapshotExpiredError
        If garbage collection has removed the changes that come first, or dropped the consumer.
    """
    _check_options(source.schema, before, consumer, terms, batch_rows)
    end = None if until is None else as_token(until, source.table, where="until")
    cut = source.cuts.take(across_shards=False)
    stored = None if consumer is None else read_consumer(source.store, consumer)
    if stored is None:
        if since is None:
            _check_everything(source, cut)
        start = _start(source, cut, since, before)
    else:
        start = _resumed(stored, cut, since, terms, before)
    if end is not None:
        _check_order(start, end)
    if stored is not None or consumer is None:
        _check_kept(source, cut, start)
    else:
        # Stored before anything is looked for, so that what is found is kept from then on.
        stored = StoredConsumer.create(source.store, _new_consumer(consumer, start, before, terms))
        try:
            _check_kept(source, cut, start)
        except SnapshotExpiredError:
            drop_consumer(source.store, consumer)
            raise
    return ChangeFeed(source, start, end, before=before, batch_rows=batch_rows, consumer=stored)


def _check_options(
    schema: pa.Schema, before: bool, consumer: str | None, terms: ConsumerTerms, batch_rows: int
) -> None:
    if isinstance(batch_rows, bool) or not isinstance(batch_rows, int) or batch_rows < 1:
        raise OptionError(
            f"batch_rows must be a whole number of at least 1, got {batch_rows!r}", where="batch_rows"
        )
    if consumer is None and terms != ConsumerTerms():
        raise OptionError(
            "max_age and max_wal_entries are limits of a consumer, and there is none",
            where="consumer",
            hint="Pass consumer='name' as well",
        )
    for name in _ADDED if before else _ADDED[:-1]:
        if name in schema.names:
            raise SchemaError(
                f"the change feed adds a column {name!r}, and the table has one of that name",
                where=name,
                hint="Rename the column of the table",
            )


def _start(source: FeedSource, cut: Cut, since: SnapshotToken | str | None, before: bool) -> SnapshotToken:
    """Return the place to begin after."""
    if since is not None and since != EARLIEST:
        token = as_token(since, source.table, where="since").unpinned()
        if before:
            check_state(token, source.store)
        return token
    if since is None:
        positions = dict.fromkeys(cut.manifests, 0)
    else:
        positions = {
            shard_id: earliest_position(source.store, shard_id, last)
            for shard_id, last in cut.positions.items()
        }
    return state_token(source.store, cut, positions) if before else place_token(cut, positions)


def _resumed(
    stored: StoredConsumer,
    cut: Cut,
    since: SnapshotToken | str | None,
    terms: ConsumerTerms,
    before: bool,
) -> SnapshotToken:
    """Return the place of a consumer that exists, and store what is new about it."""
    consumer = stored.consumer
    if since is not None:
        raise OptionError(
            f"the consumer {consumer.name!r} has a place of its own, so that since= contradicts it",
            where="since",
            hint=f"Leave since out to go on, or call drop_consumer({consumer.name!r}) to begin anew",
        )
    refuse_overdue(stored, cut.manifests.values(), datetime.now(UTC))
    if before:
        check_state(consumer.token, stored.store)
    changed = replace(
        consumer,
        before=before,
        max_age=terms.max_age or consumer.max_age,
        max_wal_entries=terms.max_wal_entries or consumer.max_wal_entries,
    )
    if changed != consumer:
        stored.change(changed)
    return consumer.token


def _new_consumer(name: str, token: SnapshotToken, before: bool, terms: ConsumerTerms) -> FeedConsumer:
    now = datetime.now(UTC)
    return FeedConsumer(
        name=name,
        token=token,
        before=before,
        max_age=terms.max_age or _DEFAULT_MAX_AGE,
        max_wal_entries=terms.max_wal_entries or _DEFAULT_MAX_WAL_ENTRIES,
        created_at=now,
        updated_at=now,
        write_id=secrets.token_hex(16),
    )


def _check_order(start: SnapshotToken, end: SnapshotToken) -> None:
    """Refuse a place to end at that lies before the place to begin after."""
    positions = {cut.shard_id: cut.position for cut in end.shards}
    apart = [cut.position - positions.get(cut.shard_id, 0) for cut in start.shards]
    apart += [-cut.position for cut in end.shards if start.cut_of(cut.shard_id) is None]
    if any(distance > 0 for distance in apart) and not any(distance < 0 for distance in apart):
        raise OptionError(
            "the token to read until is older than the one to read since",
            where="until",
            hint="Were the two exchanged?",
        )


def _check_everything(source: FeedSource, cut: Cut) -> None:
    """Refuse to begin with the table where some log entry has been collected."""
    for shard_id, last in cut.positions.items():
        # A look at the first entries is not enough: those that are fences are kept for longer.
        earliest = earliest_position(source.store, shard_id, last)
        if earliest:
            raise changes_gone(source.store, shard_id, earliest)


def _check_kept(source: FeedSource, cut: Cut, start: SnapshotToken) -> None:
    """Refuse to begin where the next log entry has been collected."""
    for shard_id, manifest in cut.manifests.items():
        begin = start.cut_of(shard_id)
        following = 1 if begin is None else begin.position + 1
        if following > manifest.replay_after_wal_entry_position:
            continue  # what no generation covers is never collected
        if not Wal(source.store, shard_id, namespace=source.table).exists(following):
            raise changes_gone(source.store, shard_id, following)


def _entries(store: ObjectStore, wal: Wal, begin: ShardCut, limit: ShardCut) -> Iterator[PositionedEntry]:
    """Yield the log entries after one cut, up to another."""
    position = begin.position
    if position == 0 and begin.manifest_version == 0:
        # Some writers count from 0; there need not be an entry.
        yield from wal.read_from(0, 0)
    for item in wal.read_from(position + 1, limit.position):
        yield item
        position = item.position
    if position < limit.position:
        raise changes_gone(store, limit.shard_id, position + 1)


def _groups(entries: Iterator[PositionedEntry], rows: int) -> Iterator[Sequence[PositionedEntry]]:
    """Yield runs of entries that have rows, each as short as makes at least ``rows`` of them."""
    group: list[PositionedEntry] = []
    count = 0
    for item in entries:
        group.append(item)
        count += item.entry.num_rows
        # No place lies between an entry 0 and the beginning of the log, so a batch does not end there.
        if count >= rows and item.position:
            yield group
            group, count = [], 0
    if count:
        yield group


def _with_cut(token: SnapshotToken, cut: ShardCut) -> SnapshotToken:
    """Return a token in which one shard has moved on."""
    cuts = {one.shard_id: one for one in token.shards}
    cuts[cut.shard_id] = cut
    return replace(token, shards=tuple(cuts[shard_id] for shard_id in sorted(cuts)), pin=None)


def _arrived(token: SnapshotToken, end: SnapshotToken) -> SnapshotToken:
    """Return the place where an iteration to ``end`` has ended that began somewhere before or beside it."""
    limits = {cut.shard_id: cut for cut in end.shards}
    reached = all(
        cut.shard_id in limits and cut.position <= limits[cut.shard_id].position for cut in token.shards
    )
    if reached and end.base_version:
        return end.unpinned()
    for cut in end.shards:
        begin = token.cut_of(cut.shard_id) or ShardCut(cut.shard_id, 0, 0, 0, 0)
        token = _with_cut(token, replace(begin, position=max(begin.position, cut.position)))
    return token

"""The change feed: every upsert and delete, per shard in commit order, from the write-ahead log.

The log is what was committed, in order: entry by entry, row by row. Rows that a failed call left without its
caller knowing are in it, and so in every read and in the feed. Fence entries have no rows. What a writer
tried to write after it was fenced is not in it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from uuid import UUID

import pyarrow as pa
import xxhash

from weir.base.versions import details_at
from weir.changes.options import FeedOptions, check_count
from weir.changes.plan import (
    Admitted,
    ChangePlan,
    PlanLimits,
    admit,
    arrived,
    beginning,
    split,
    with_cut,
    with_entries,
)
from weir.changes.range import ChangeRange, ChangeSource
from weir.changes.rows import change_schema, check_names
from weir.changes.start import EARLIEST, ConsumerTerms, find_start
from weir.errors import InputError, OptionError, SnapshotExpiredError
from weir.format.ipc_framing import StreamSize
from weir.format.resharding import FEATURE, has_begun
from weir.format.shard_manifest import ShardManifest
from weir.format.snapshot_token import ShardCut, SnapshotToken
from weir.log.wal import Wal
from weir.snapshots.capture import Cut, SnapshotCapture
from weir.snapshots.consumers import StoredConsumer
from weir.snapshots.expiry import changes_gone, check_state
from weir.snapshots.history import state_token
from weir.snapshots.swept import read_marks
from weir.snapshots.time_travel import TokenReader
from weir.snapshots.tokens import as_token

__all__ = ["EARLIEST", "ChangeBatch", "ChangeFeed", "ConsumerTerms", "FeedSource", "open_feed"]

_FULL_LOOK_SECONDS = 60.0
"""How long a feed that follows relies on probes of the logs alone."""


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Consecutive changes of one shard, in commit order.

    Parameters
    ----------
    shard_id : UUID
        The shard.
    position : int
        Log position of the last change. The changes of one log entry are never split between batches.
    epoch : int
        Epoch of the writer that wrote the last change.
    rows : Table
        One row per change: the table's columns (only the key for a delete); ``_op``, which is ``"upsert"`` or
        ``"delete"``; ``_shard``, ``_position`` and ``_epoch``; and, if requested, the row before the change
        as a struct in ``_before``, null if there was none.
    token : SnapshotToken
        The position after these changes: ``changes(since=token)`` continues with the next.
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
    table : ChangeSource
        What its ranges need.
    cuts : SnapshotCapture
        Says how far the logs have come.
    states : TokenReader
        Opens the states that tokens name.
    """

    table: ChangeSource
    cuts: SnapshotCapture
    states: TokenReader


class ChangeFeed:
    """An iterable of a table's changes. Made by :meth:`weir.Table.changes`.

    Each iteration yields what was committed after the last batch yielded, up to its own start or ``until``,
    and ends; a feed that follows waits for more instead. Iterate again for later changes. One thread at a
    time.

    Parameters
    ----------
    source : FeedSource
        The table.
    since : SnapshotToken
        The position to begin after.
    until : SnapshotToken, optional
        The place to end at.
    options : FeedOptions
        How to read.
    consumer : StoredConsumer, optional
        The consumer whose place it is.
    cut : Cut
        The table when the feed was opened.
    """

    def __init__(
        self,
        source: FeedSource,
        since: SnapshotToken,
        until: SnapshotToken | None,
        options: FeedOptions,
        consumer: StoredConsumer | None,
        cut: Cut,
    ) -> None:
        self._opened = cut
        self._source = source
        self._token = since
        self._until = until
        self._options = options
        self._consumer = consumer
        self._is_acknowledged = True
        self._stopped = threading.Event()

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows of every batch."""
        return change_schema(self._source.table.schema, before=self._options.before)

    @property
    def _needs_state(self) -> bool:
        """Whether the rows are needed that were there before the changes."""
        return needs_state(self._source.table, self._options)

    @property
    def token(self) -> SnapshotToken:
        """The position after the last batch yielded; after an iteration, its end."""
        return self._token

    def __iter__(self) -> Iterator[ChangeBatch]:
        """Yield what has been committed since :attr:`token`, shard after shard.

        Raises
        ------
        SnapshotExpiredError
            If garbage collection has removed a log entry that would be read; the message names it.
        CorruptionError
            If a log entry is damaged.
        ConflictError
            If another feed of the same consumer has acknowledged something meanwhile.
        """
        waiting_since = time.monotonic()
        while True:
            plan = self.plan()
            for part in plan.ranges:
                for changes in part.batches():
                    self._token = with_cut(self._token, changes.reached)
                    self._is_acknowledged = False
                    yield ChangeBatch(
                        part.shard_id, changes.position, changes.epoch, changes.rows, self._token
                    )
                    waiting_since = time.monotonic()
            self._token = arrived(self._token, plan.until)
            if not plan.is_whole:
                continue
            if self._consumer is not None and self._is_acknowledged:
                self._consumer.renew(self._token)
            if not self._options.follow or not self._has_more(waiting_since):
                return

    def plan(
        self,
        *,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        range_entries: int | None = None,
    ) -> ChangePlan:
        """Return what an iteration would yield now, as ranges that any number of machines can read.

        None of it counts as yielded. To continue after a plan, open a feed at ``plan.until``; to read a plan
        again, open one at ``plan.since`` with that ``until``.

        Parameters
        ----------
        max_rows : int, optional
            Most rows, as for :meth:`weir.Table.changes`, whose limit is the default. Counting them costs a
            small read per log entry.
        max_bytes : int, optional
            Most bytes, as stored in the log or in the generations published beside it. As with rows, a single
            entry may exceed the limit. Default: no limit.
        range_entries : int, optional
            Log entries after which a range ends, so that several machines read a shard with many. Default:
            one range for each shard, as always if the rows before the changes are included.

        Raises
        ------
        OptionError
            If a number is below 1.
        SnapshotExpiredError
            If garbage collection has removed what would be read.
        """
        for value, name in (
            (range_entries, "range_entries"),
            (max_rows, "max_rows"),
            (max_bytes, "max_bytes"),
        ):
            if value is not None:
                check_count(value, name)
        limits = PlanLimits(self._options.max_rows if max_rows is None else max_rows, max_bytes)
        cut = None if self._until is not None else self._source.cuts.take(across_shards=False)
        end = self._until if cut is None else cut.token()
        assert end is not None
        if cut is not None:
            self._source.cuts.refuse_another_log(cut, self._token)
        wholes = self._wholes(end, cut)
        if self._is_of_a_former_rule(wholes, cut or self._opened):
            self._token = self._place_after((), cut or self._opened, is_state_needed=True)
            wholes = self._wholes(end, cut)
        until = arrived(self._token, end)
        first = _of_the_first_rule(wholes, (cut or self._opened).manifests)
        is_whole = len(first) == len(wholes)
        if not is_whole:
            wholes = first
            until = self._place_after(wholes.values(), cut or self._opened, is_state_needed=True)
        rows = nbytes = None
        if limits:
            admitted = _admitted(wholes, limits, self._token)
            rows = sum(one.rows for one in admitted.values())
            nbytes = sum(one.nbytes for one in admitted.values())
            limited = {
                shard_id: _shortened(whole, admitted[shard_id])
                for shard_id, whole in wholes.items()
                if shard_id in admitted
            }
            if limited != wholes:
                until = self._place_after(limited.values(), cut)
            wholes = limited
        ranges = tuple(one for whole in wholes.values() for one in split(whole, range_entries))
        # Fence entries alone would not show that there is more.
        return ChangePlan(self._token, until, ranges, rows, nbytes, is_whole or bool(limits and rows))

    def latest(self) -> SnapshotToken:
        """Return the position after everything committed now. No row is read.

        Each shard is at some position, as in a batch's token; for one consistent moment across shards use
        :meth:`weir.Table.snapshot`.
        """
        return self._source.cuts.take(across_shards=False).token()

    def to_reader(self) -> pa.RecordBatchReader:
        """Return one iteration as an Arrow stream."""
        batches = (batch for change in self for batch in change.rows.to_batches())
        return pa.RecordBatchReader.from_batches(self.schema, batches)

    def commit(self, token: SnapshotToken | str | None = None) -> None:
        """Acknowledge changes: the consumer continues after them, in whatever process.

        Parameters
        ----------
        token : SnapshotToken or str, optional
            The position up to which they are processed, from a batch or a plan. Default: everything yielded
            so far.

        Raises
        ------
        OptionError
            If the feed was opened without a consumer.
        InputError
            If the token belongs to another table, or is before an acknowledged position.
        ConflictError
            If another feed of the same consumer has acknowledged changes since this one was opened, or the
            consumer was dropped. Nothing was stored.
        StorageError
            If the store failed; call it again.
        """
        if self._consumer is None:
            raise OptionError(
                "a feed without a consumer has nowhere to store its position",
                where="consumer",
                hint="Pass consumer='name' to changes(), or keep feed.token yourself",
            )
        if token is None:
            self._consumer.acknowledge(self._token)
            self._is_acknowledged = True
            return
        place = as_token(token, self._source.table.table, where="token").unpinned()
        if self._needs_state:
            check_state(place, self._source.table.store)
        for done in self._consumer.consumer.token.shards:
            cut = place.cut_of(done.shard_id)
            if (0 if cut is None else cut.position) < done.position:
                raise InputError(
                    f"the consumer has acknowledged more than the token: shard {done.shard_id} up to "
                    f"position {done.position}",
                    where="token",
                    hint="An acknowledgement cannot be withdrawn; drop the consumer to start over",
                )
        self._consumer.acknowledge(place)
        self._is_acknowledged = _positions(place) == _positions(self._token)

    def stop(self) -> None:
        """Stop following: an iteration that waits ends, and one that reads ends when it has caught up.

        For use from another thread or a signal handler. It cannot be undone.
        """
        self._stopped.set()

    def _wholes(self, end: SnapshotToken, cut: Cut | None) -> dict[UUID, ChangeRange]:
        """Return one range for every shard that has something to read."""
        options = self._options
        base = self._source.states.base_at(self._token) if self._needs_state else None
        found = {}
        for limit in end.shards:
            begin = self._token.cut_of(limit.shard_id) or beginning(limit.shard_id)
            if begin.position < limit.position:
                newest = None if cut is None else cut.manifests.get(limit.shard_id)
                found[limit.shard_id] = ChangeRange(
                    self._source.table,
                    begin,
                    limit.position,
                    options.batch_rows,
                    base,
                    newest,
                    options.before,
                    limit.entry,
                )
        return found

    def _is_of_a_former_rule(self, wholes: Mapping[UUID, ChangeRange], cut: Cut) -> bool:
        """Whether rows before changes would be looked up in a state that lacks those of former shards.

        So it is where reading was left with the last change of a former rule: the token of that change names
        the state that its own shards began with.
        """
        if not self._needs_state or FEATURE not in cut.base.details.features:
            return False
        made_by = {shard_id: manifest.shard_spec_id for shard_id, manifest in cut.manifests.items()}
        rule = min((made_by[shard_id] for shard_id in wholes if shard_id in made_by), default=0)
        if rule <= min(made_by.values(), default=0) or not has_begun(cut.base.details, rule):
            return False
        known = details_at(cut.base, self._token.base_version)
        return known is None or not has_begun(known, rule)

    def _place_after(
        self, ranges: Iterable[ChangeRange], cut: Cut | None, *, is_state_needed: bool = False
    ) -> SnapshotToken:
        """Return the place after some ranges, which end before everything is read.

        Shards of a new rule begin with the state that shards of the former rule left, so the rows before
        changes cannot be found there without that state (``is_state_needed``).
        """
        place = self._token.unpinned()
        for one in ranges:
            place = with_cut(place, one.begin.at(one.position, one.entry))
        if self._needs_state and cut is not None:
            store = self._source.table.store
            positions = {shard_id: _position(place, shard_id) for shard_id in cut.manifests}
            try:
                # The next plan should not look rows up in a log that begins where this one has begun.
                return with_entries(state_token(store, cut, positions, read_marks(store)), place)
            except SnapshotExpiredError:
                if is_state_needed:
                    raise
        return place

    def _has_more(self, waiting_since: float) -> bool:
        """Wait until there may be more; return False if the iteration should end instead."""
        options, positions = self._options, _positions(self._token)
        looked = time.monotonic()
        while not self._stopped.is_set():
            if self._source.cuts.has_news(positions):
                return True
            now = time.monotonic()
            pause = options.poll.total_seconds()
            if options.timeout is not None:
                left = waiting_since + options.timeout.total_seconds() - now
                if left <= 0:
                    return False
                pause = min(pause, left)
            # Changes that were collected before they were read must be noticed and named.
            if now - looked > _FULL_LOOK_SECONDS:
                return True
            self._stopped.wait(pause)
        return False


def needs_state(table: ChangeSource, options: FeedOptions) -> bool:
    """Whether a feed needs the rows that were there before the changes."""
    return options.before or table.merge_engine is not None


def open_feed(
    source: FeedSource,
    since: SnapshotToken | str | None,
    until: SnapshotToken | str | None,
    options: FeedOptions,
    *,
    consumer: str | None,
    terms: ConsumerTerms,
) -> ChangeFeed:
    """Open a change feed; see :meth:`weir.Table.changes`.

    Raises
    ------
    InputError
        If a token is of another table.
    OptionError
        If options contradict each other.
    SchemaError
        If the table has a column with the name of one that the feed adds.
    SnapshotExpiredError
        If garbage collection has removed the changes that come first, or dropped the consumer.
    """
    if options.before and not source.table.primary_key:
        raise OptionError(
            "before= asks for replaced rows, and in an append-only table no row is replaced",
            where="before",
            hint="Leave it out",
        )
    if options.follow and until is not None:
        raise OptionError(
            "a feed that follows has no end, which contradicts until=",
            where="until",
            hint="Pass one of them",
        )
    end = None if until is None else as_token(until, source.table.table, where="until")
    cut = source.cuts.take(across_shards=False)
    # Another process may have altered the columns since somebody here has looked.
    source = replace(source, table=ChangeSource.of(cut.base))
    check_names(source.table.schema, before=options.before)
    start = find_start(
        source.cuts,
        cut,
        since,
        end,
        before=needs_state(source.table, options),
        consumer=consumer,
        terms=terms,
    )
    return ChangeFeed(source, start.token, end, options, start.consumer, cut)


def _of_the_first_rule(
    wholes: Mapping[UUID, ChangeRange], manifests: Mapping[UUID, ShardManifest]
) -> dict[UUID, ChangeRange]:
    """Return the ranges of the shards that were made by the oldest rule among them.

    A key is in shards of several rules, one after the other: each was merged before the next had rows.
    """
    rules = {shard_id: manifests[shard_id].shard_spec_id for shard_id in wholes if shard_id in manifests}
    oldest = min(rules.values(), default=0)
    return {shard_id: whole for shard_id, whole in wholes.items() if rules.get(shard_id, oldest) == oldest}


def _admitted(
    wholes: Mapping[UUID, ChangeRange], limits: PlanLimits, since: SnapshotToken
) -> dict[UUID, Admitted]:
    """Return how much of some ranges is within limits."""
    # Who comes first gets a large entry through. That is another shard for every place, as if by chance,
    # and the same one whenever the place is asked about again.
    by_turn = list(wholes)
    first = xxhash.xxh32_intdigest(str(since).encode()) % max(len(by_turn), 1)
    turns = by_turn[first:] + by_turn[:first]
    return admit({shard_id: _sizes(wholes[shard_id]) for shard_id in turns}, limits)


def _shortened(whole: ChangeRange, admitted: Admitted) -> ChangeRange:
    """Return as much of a range as is within limits."""
    if admitted.position == whole.position:
        return whole
    return replace(whole, position=admitted.position, entry=admitted.entry)


def _sizes(whole: ChangeRange) -> Iterator[tuple[int, StreamSize]]:
    """Yield every position of a range with its entry."""
    source = whole.source
    wal = Wal(source.store, whole.shard_id, namespace=source.namespace)
    last = whole.begin.position
    for last, size in wal.measure_from(whole.begin.position + 1, whole.position):
        yield last, size
    if last < whole.position:
        raise changes_gone(source.store, whole.shard_id, last + 1)


def _positions(token: SnapshotToken) -> dict[UUID, int]:
    return {cut.shard_id: cut.position for cut in token.shards}


def _position(token: SnapshotToken, shard_id: UUID) -> int:
    cut: ShardCut | None = token.cut_of(shard_id)
    return 0 if cut is None else cut.position

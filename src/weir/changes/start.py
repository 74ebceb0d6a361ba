"""The start of a change feed, and the check that everything after it still exists."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from weir.errors import OptionError, SnapshotExpiredError
from weir.format.feed_consumer import FeedConsumer
from weir.format.garbage_marks import Marks
from weir.format.snapshot_token import SnapshotToken
from weir.log.wal import Wal
from weir.snapshots.capture import Cut, SnapshotCapture
from weir.snapshots.consumers import StoredConsumer, drop_consumer, read_consumer, refuse_overdue
from weir.snapshots.expiry import changes_gone, check_state
from weir.snapshots.history import earliest_change, earliest_position, place_token, state_token
from weir.snapshots.roots import consumer_root
from weir.snapshots.swept import read_marks, swept_part
from weir.snapshots.tokens import as_token
from weir.storage.interface import ObjectStore

__all__ = ["EARLIEST", "ConsumerTerms", "FeedStart", "find_start"]

EARLIEST = "earliest"
"""What ``since`` may be instead of a token: the oldest change that is still stored."""

_DEFAULT_MAX_AGE = timedelta(days=7)
_LONGEST_MAX_AGE = timedelta(days=36_500)
_DEFAULT_MAX_WAL_ENTRIES = 1_000_000
_MAX_BEGINNINGS = 8
"""Collections that may be about to delete what the oldest change needs while a consumer begins there."""
_NOTHING_MARKED = Marks()


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


@dataclass(frozen=True, slots=True)
class FeedStart:
    """Where a feed begins.

    Parameters
    ----------
    token : SnapshotToken
        The position to begin after.
    consumer : StoredConsumer, optional
        The consumer whose place it is.
    """

    token: SnapshotToken
    consumer: StoredConsumer | None


def find_start(
    cuts: SnapshotCapture,
    cut: Cut,
    since: SnapshotToken | str | None,
    until: SnapshotToken | None,
    *,
    before: bool,
    consumer: str | None,
    terms: ConsumerTerms,
) -> FeedStart:
    """Return where a feed begins; create its consumer if necessary.

    Parameters
    ----------
    cuts : SnapshotCapture
        What has taken the cut.
    cut : Cut
        The table in its present state.
    since, until, before, consumer
        As for :meth:`weir.Table.changes`.
    terms : ConsumerTerms
        New limits of the consumer, if any.

    Raises
    ------
    InputError
        If a token is of another table, or with ``before`` names no state.
    OptionError
        If options contradict each other.
    SnapshotExpiredError
        If garbage collection has removed the changes that come first, or dropped the consumer.
    CorruptionError
        If a place was in another log.
    ConflictError
        If another process has just made the consumer.
    """
    if consumer is None and terms != ConsumerTerms():
        raise OptionError(
            "max_age and max_wal_entries are limits of a consumer, but no consumer is given",
            where="consumer",
            hint="Pass consumer='name' as well",
        )
    store = cut.base.store
    stored = None if consumer is None else read_consumer(store, consumer)
    if stored is not None:
        # It has its own position: ``since`` only said where it began.
        token = _resumed(stored, cut, terms, before)
        cuts.refuse_another_log(cut, token)
        _check_order(token, until)
        _check_kept(store, cut, token)
        return FeedStart(token, stored)
    if since is None:
        _check_everything(store, cut)
    token = _start(store, cut, since, before)
    cuts.refuse_another_log(cut, token)
    _check_order(token, until)
    if consumer is None:
        _check_kept(store, cut, token)
        return FeedStart(token, None)
    # Stored before the search, so that what it finds is kept from then on.
    stored = StoredConsumer.create(store, _new_consumer(consumer, token, before, terms))
    try:
        for left in reversed(range(_MAX_BEGINNINGS)):
            marks = read_marks(store)
            gone = _what_goes(stored, cut, marks)
            if gone is None:
                break
            if since != EARLIEST or not left:
                raise gone
            # A collection was about to delete it before it could see the consumer: begin after it.
            stored.acknowledge(_start(store, cut, since, before, marks))
        return FeedStart(stored.consumer.token, stored)
    except SnapshotExpiredError:
        drop_consumer(store, consumer)
        raise


def _check_order(start: SnapshotToken, end: SnapshotToken | None) -> None:
    """Refuse a place to end at that lies before the place to begin after."""
    if end is None:
        return
    positions = {cut.shard_id: cut.position for cut in end.shards}
    apart = [cut.position - positions.get(cut.shard_id, 0) for cut in start.shards]
    apart += [-cut.position for cut in end.shards if start.cut_of(cut.shard_id) is None]
    if any(distance > 0 for distance in apart) and not any(distance < 0 for distance in apart):
        raise OptionError(
            "the token to read until is older than the one to read since",
            where="until",
            hint="Were the two swapped?",
        )


def _what_goes(stored: StoredConsumer, cut: Cut, marks: Marks) -> SnapshotExpiredError | None:
    """Return the error that says what the place of a consumer needs and is gone, or about to go."""
    try:
        _check_kept(stored.store, cut, stored.consumer.token)
    except SnapshotExpiredError as error:
        return error
    return swept_part(cut.base, consumer_root(stored.consumer), marks)


def _start(
    store: ObjectStore,
    cut: Cut,
    since: SnapshotToken | str | None,
    before: bool,
    marks: Marks = _NOTHING_MARKED,
) -> SnapshotToken:
    """Return the position to begin after: the earliest one after what is about to be deleted."""
    if since is not None and since != EARLIEST:
        token = as_token(since, cut.base.identity, where="since").unpinned()
        if before:
            check_state(token, store)
        return token
    if since is None:
        positions = dict.fromkeys(cut.manifests, 0)
    else:
        positions = {
            shard_id: max(earliest_change(store, cut, shard_id), marks.of(shard_id).swept.log)
            for shard_id in cut.positions
        }
    return state_token(store, cut, positions, marks) if before else place_token(cut, positions)


def _resumed(
    stored: StoredConsumer,
    cut: Cut,
    terms: ConsumerTerms,
    before: bool,
) -> SnapshotToken:
    """Return the position of an existing consumer, and store its new settings."""
    consumer = stored.consumer
    as_token(consumer.token, cut.base.identity, where=f"the place of the consumer {consumer.name!r}")
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


def _check_everything(store: ObjectStore, cut: Cut) -> None:
    """Refuse to begin with the table where some log entry has been collected."""
    for shard_id, last in cut.positions.items():
        # Checking the first entries is not enough: fence entries are kept for longer.
        earliest = earliest_position(store, shard_id, last)
        if earliest:
            raise changes_gone(store, shard_id, earliest)


def _check_kept(store: ObjectStore, cut: Cut, start: SnapshotToken) -> None:
    """Refuse to begin where the next log entry has been collected."""
    for shard_id, manifest in cut.manifests.items():
        begin = start.cut_of(shard_id)
        following = 1 if begin is None else begin.position + 1
        if following > manifest.replay_after_wal_entry_position:
            continue  # what no generation covers is never collected
        if not Wal(store, shard_id, namespace=cut.base.namespace).exists(following):
            raise changes_gone(store, shard_id, following)

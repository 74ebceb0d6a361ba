"""Stored consumers of the change feed, and when one has fallen too far behind."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from weir.base.durability import make_durable
from weir.engine.logs import get_logger
from weir.errors import (
    ConflictError,
    ObjectExistsError,
    ObjectNotFoundError,
    OptionError,
    PreconditionError,
    SnapshotExpiredError,
)
from weir.format import feed_consumer
from weir.format.feed_consumer import CONSUMERS, FeedConsumer, consumer_path
from weir.format.shard_manifest import ShardManifest
from weir.format.snapshot_token import SnapshotToken
from weir.snapshots.roots import consumer_root
from weir.storage.interface import ObjectStore

__all__ = [
    "StoredConsumer",
    "consumer_names",
    "drop_consumer",
    "overdue",
    "read_consumer",
    "refuse_overdue",
]

_log = get_logger(__name__)


@dataclass(slots=True)
class StoredConsumer:
    """A consumer and the version of the object it was read from. Used by one feed.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    consumer : FeedConsumer
        The stored consumer.
    version : str, optional
        What compare-and-swap expects; None if it has to be asked for.
    """

    store: ObjectStore
    consumer: FeedConsumer
    version: str | None
    _written: set[str] = field(default_factory=set)

    @classmethod
    def create(cls, store: ObjectStore, consumer: FeedConsumer) -> StoredConsumer:
        """Store a new consumer.

        Raises
        ------
        ConflictError
            If there is one of that name already.
        """
        path = consumer_path(consumer.name)
        _make_place_durable(store, consumer)
        try:
            store.put_if_absent(path, feed_consumer.encode(consumer))
        except ObjectExistsError as error:
            found = read_consumer(store, consumer.name)
            if found is None or found.consumer.write_id != consumer.write_id:
                raise ConflictError(
                    f"the consumer {consumer.name!r} was created by another process at the same time",
                    where=f"{store.uri}/{path}",
                    hint="Open its feed again, or use another name",
                ) from error
            return found
        _log.info("feed.consumer_created", consumer=consumer.name, max_age=str(consumer.max_age))
        return cls(store, consumer, None, {consumer.write_id})

    def acknowledge(self, token: SnapshotToken) -> None:
        """Record that everything up to ``token`` has been dealt with.

        Raises
        ------
        ConflictError
            If another feed of the same consumer has done so meanwhile, or the consumer was dropped.
        """
        self.change(replace(self.consumer, token=token.unpinned(), updated_at=datetime.now(UTC)))

    def renew(self, token: SnapshotToken) -> None:
        """Say that the consumer is alive and waits for changes: up to ``token`` it has acknowledged all.

        Without this, a consumer of an idle table would be silent for too long. Stored at most four times
        within its limit.

        Raises
        ------
        ConflictError
            As for :meth:`acknowledge`.
        """
        consumer = self.consumer
        if datetime.now(UTC) - consumer.updated_at > consumer.max_age / 4:
            self.acknowledge(token)

    def change(self, changed: FeedConsumer) -> None:
        """Replace the stored consumer, unless another process has done so."""
        changed = replace(changed, write_id=secrets.token_hex(16))
        path = consumer_path(changed.name)
        if changed.token.base_version != self.consumer.token.base_version:
            _make_place_durable(self.store, changed)
        if self.version is None:
            self._find_own()
        assert self.version is not None
        expected, self.version = self.version, None
        self._written.add(changed.write_id)
        try:
            self.version = self.store.compare_and_swap(path, feed_consumer.encode(changed), expected)
        except PreconditionError:
            # Another process was faster; or it was this very swap, or an earlier one, whose answer was lost
            # (invariant I4).
            self._find_own()
            if self.consumer.write_id != changed.write_id:
                self.change(changed)
            return
        self.consumer = changed

    def _find_own(self) -> None:
        """Read the stored consumer, which must be what this feed has read or written."""
        name = self.consumer.name
        found = read_consumer(self.store, name)
        if found is None or found.consumer.write_id not in {*self._written, self.consumer.write_id}:
            what = "has been dropped" if found is None else "was moved on by another feed"
            raise ConflictError(
                f"the consumer {name!r} {what} since this feed read it",
                where=f"{self.store.uri}/{consumer_path(name)}",
                hint="Let only one process at a time read for a consumer, and open the feed again",
            )
        self.consumer, self.version = found.consumer, found.version


def _make_place_durable(store: ObjectStore, consumer: FeedConsumer) -> None:
    # Plain Lance may have committed the version: with the power it would go, and the place with it.
    make_durable(store, consumer.token.base_version)


def read_consumer(store: ObjectStore, name: str) -> StoredConsumer | None:
    """Return a consumer, or None if it does not exist.

    Raises
    ------
    CorruptionError
        If the stored object is damaged.
    """
    path = consumer_path(name)
    # The version is asked for before the content: if the two do not belong together it is the version
    # that is old, and a swap is refused.
    meta = store.head(path)
    if meta is None:
        return None
    try:
        data = store.get(path)
    except ObjectNotFoundError:
        return None
    with store.naming(path) as where:
        return StoredConsumer(store, feed_consumer.decode(data, where=where), meta.version)


def consumer_names(store: ObjectStore) -> list[str]:
    """Return the names of all consumers, in order."""
    names = set()
    for meta in store.list(CONSUMERS):
        name = meta.path.removeprefix(f"{CONSUMERS}/").removesuffix(".json")
        with suppress(OptionError):
            if consumer_path(name) == meta.path:
                names.add(name)
    return sorted(names)


def drop_consumer(store: ObjectStore, name: str) -> None:
    """Forget a consumer, so that nothing is kept for it. One that does not exist is no error."""
    store.delete([consumer_path(name)])
    _log.info("feed.consumer_dropped", consumer=name)


def overdue(consumer: FeedConsumer, newest: Iterable[ShardManifest], now: datetime) -> str | None:
    """Return why nothing is kept for a consumer any more, or None if it is within its limits.

    Parameters
    ----------
    newest : iterable of ShardManifest
        The newest manifest of every shard.
    now : datetime
        The time, in UTC.
    """
    age = now - consumer.updated_at
    if age > consumer.max_age:
        return f"it has acknowledged nothing for {age}, and its limit is {consumer.max_age}"
    root = consumer_root(consumer)
    # Only entries that a generation covers can ever be collected, so only those are kept for anybody.
    kept = 0
    for manifest in newest:
        first = max(root.first_position(manifest.shard_id) or 0, 1)
        kept += max(manifest.replay_after_wal_entry_position - first + 1, 0)
    if kept > consumer.max_wal_entries:
        return f"{kept} log entries were kept for it, and its limit is {consumer.max_wal_entries}"
    return None


def refuse_overdue(stored: StoredConsumer, newest: Iterable[ShardManifest], now: datetime) -> None:
    """Refuse to continue for a consumer that has fallen too far behind.

    Raises
    ------
    SnapshotExpiredError
        If it is beyond one of its limits.
    """
    reason = overdue(stored.consumer, newest, now)
    if reason is not None:
        name = stored.consumer.name
        raise SnapshotExpiredError(
            f"the consumer {name!r} has been dropped: {reason}",
            where=f"{stored.store.uri}/{consumer_path(name)}",
            hint=f"Call drop_consumer({name!r}), read the table at a new snapshot and start after it",
        )

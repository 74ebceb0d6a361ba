"""Snapshot tokens: pinning and releasing them, and what pinned ones keep alive.

A pin is written before the requesting call returns, and what it keeps is checked again afterwards. Garbage
collection rereads the pins before it sweeps what it marked a horizon ago: so either it sees the pin, or what
it sweeps was garbage long before the token was taken, and the token does not need it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial

from weir.base.durability import make_durable
from weir.engine.concurrent_map import concurrent_map
from weir.engine.logs import get_logger
from weir.errors import InputError, ObjectExistsError, ObjectNotFoundError, OptionError
from weir.format import snapshot_pin
from weir.format.shard_manifest import ShardManifest
from weir.format.snapshot_pin import SNAPSHOTS, SnapshotPin, pin_path
from weir.format.snapshot_token import SnapshotToken
from weir.log.manifest_store import list_shards, read_latest_manifest
from weir.snapshots.capture import SnapshotCapture
from weir.snapshots.consumers import consumer_names, overdue, read_consumer
from weir.snapshots.expiry import check_readable
from weir.snapshots.roots import Root, ShardRoot, consumer_root, snapshot_root, tag_root
from weir.snapshots.tags import list_tags
from weir.storage.interface import ObjectStore

__all__ = [
    "Root",
    "ShardRoot",
    "as_token",
    "expired_pins",
    "live_roots",
    "pinned_snapshots",
    "release_token",
    "take_token",
]

_log = get_logger(__name__)


def take_token(store: ObjectStore, cuts: SnapshotCapture, retain: timedelta | None) -> SnapshotToken:
    """Take a snapshot and return its token.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    cuts : SnapshotCapture
        Takes the cut.
    retain : timedelta, optional
        How long to keep what the token needs. None or 0: not at all.

    Raises
    ------
    OptionError
        If ``retain`` is not a length of time.
    ConflictError
        If the table kept changing.
    """
    if retain is not None and (not isinstance(retain, timedelta) or retain < timedelta(0)):
        raise OptionError(
            f"retain is how long to keep a snapshot, got {retain!r}",
            where="retain",
            hint="Pass a timedelta, or None for a token that keeps nothing",
        )
    if not retain:
        return cuts.take().token()
    token = cuts.take().token(pin=secrets.token_hex(16))
    now = datetime.now(UTC)
    try:
        expires_at = now + retain
    except OverflowError:
        expires_at = datetime.max.replace(tzinfo=UTC)
    assert token.pin is not None
    # Plain Lance may have committed it: with the power it would go.
    make_durable(store, token.base_version)
    pin = snapshot_pin.encode(SnapshotPin(token, now, expires_at))
    # The id is random: a pin that is there already is our own, and the first answer was lost (invariant I4).
    with suppress(ObjectExistsError):
        store.put_if_absent(pin_path(token.pin), pin)
    check_readable(store, token)
    _log.info("table.snapshot_pinned", pin=token.pin, version=token.base_version, expires_at=str(expires_at))
    return token


def as_token(value: SnapshotToken | str, table: str, *, where: str) -> SnapshotToken:
    """Return a token, or the token whose text it is, of this very table.

    Parameters
    ----------
    value : SnapshotToken or str
        What was passed.
    table : str
        Identity of the table.
    where : str
        What it was passed as, for errors.

    Raises
    ------
    InputError
        If it is not a token, or of another table.
    """
    if isinstance(value, str):
        value = SnapshotToken.parse(value)
    if not isinstance(value, SnapshotToken):
        raise InputError(
            f"a snapshot token or its text is expected, got {value!r:.60}",
            where=where,
            hint="table.snapshot() makes one",
        )
    if value.table != table:
        raise InputError(
            f"the token belongs to table {value.table!r}, but this is table {table!r}",
            where=where,
            hint="Open the table that the token came from",
        )
    return value


def release_token(store: ObjectStore, token: SnapshotToken) -> None:
    """Keep nothing for a token any more. One that is not pinned, or not any more, is no error."""
    if token.pin is not None:
        store.delete([pin_path(token.pin)])
        _log.info("table.snapshot_released", pin=token.pin)


def live_roots(store: ObjectStore, now: datetime) -> tuple[Root, ...]:
    """Return every pinned snapshot, every tag and every consumer that holds something back, for collection.

    Expired pins and consumers beyond their limits are left out.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    now : datetime
        The time, in UTC.

    Raises
    ------
    CorruptionError
        If one of them is damaged, so that what it needs is unknown.
    """
    roots = [snapshot_root(pin) for _, pin in _pins(store) if pin.expires_at > now]
    roots += [tag_root(tag) for tag in list_tags(store)]
    stored = [read_consumer(store, name) for name in consumer_names(store)]
    consumers = [one.consumer for one in stored if one is not None]
    if consumers:
        newest = _newest_manifests(store)
        for one in consumers:
            if (reason := overdue(one, newest, now)) is None:
                roots.append(consumer_root(one))
            else:
                _log.warning("feed.consumer_overdue", consumer=one.name, reason=reason)
    return tuple(roots)


def pinned_snapshots(store: ObjectStore, now: datetime) -> list[SnapshotPin]:
    """Return the pins that have not expired, the oldest first. A listing, and a round trip for each.

    Raises
    ------
    CorruptionError
        If one is not what was written.
    """
    return sorted(
        (pin for _, pin in _pins(store) if pin.expires_at > now),
        key=lambda pin: (pin.created_at, pin.token.pin),
    )


def expired_pins(store: ObjectStore, now: datetime) -> tuple[str, ...]:
    """Return the paths of the pins that have expired: collection may delete them."""
    return tuple(path for path, pin in _pins(store) if pin.expires_at <= now)


def _pins(store: ObjectStore) -> Iterator[tuple[str, SnapshotPin]]:
    paths = {meta.path for meta in store.list(SNAPSHOTS) if meta.path.endswith(".json")}
    for path in sorted(paths):
        try:
            data = store.get(path)
        except ObjectNotFoundError:
            continue  # released since it was listed
        yield path, snapshot_pin.decode(data, where=f"{store.uri}/{path}")


def _newest_manifests(store: ObjectStore) -> list[ShardManifest]:
    read = partial(read_latest_manifest, store)
    found = concurrent_map(read, list_shards(store), is_local=store.is_local, engine=store.engine)
    return [manifest for manifest in found if manifest is not None]

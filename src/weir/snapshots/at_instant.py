"""The state of a table at an instant, found by the store's write times.

A reader at that instant would have found the newest version of the base table, the newest manifest of every
shard, and the log up to its end: each the last of its kind written by then. Numbers are consecutive, so the
last one is certain if its successor is stored too, or does not exist.

The clock is that of the store, or of the file system. Where it counts whole seconds, an instant has what
was written within its second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from uuid import UUID

from weir.base.versions import list_versions
from weir.engine.concurrent_map import concurrent_map
from weir.errors import InputError, SnapshotExpiredError
from weir.format import layout
from weir.format.shard_manifest import ShardManifest
from weir.format.snapshot_token import STAMP_BYTES, ShardCut, SnapshotToken, instant_of
from weir.log.manifest_store import read_manifest_version
from weir.log.wal import Wal
from weir.snapshots.capture import Cut, SnapshotCapture, cut_at
from weir.snapshots.expiry import expired
from weir.storage.interface import ObjectMeta, ObjectStore

__all__ = ["check_instant", "token_at_instant"]


def check_instant(instant: datetime, *, where: str) -> datetime:
    """Return an instant in UTC.

    Raises
    ------
    InputError
        If it has no time zone, or is in the future.
    """
    if instant.tzinfo is None:
        raise InputError(
            f"{instant.isoformat(' ')} has no time zone and is therefore ambiguous",
            where=where,
            hint="Pass one with a time zone: datetime(2026, 1, 31, 12, tzinfo=UTC), or instant.astimezone()",
        )
    if instant > datetime.now(UTC):
        raise InputError(
            f"{instant.isoformat(' ')} is in the future",
            where=where,
            hint="Leave it out to read the table as it is now",
        )
    return instant.astimezone(UTC)


def token_at_instant(cuts: SnapshotCapture, instant: datetime) -> SnapshotToken:
    """Return the token of the state of a table at an instant. Nothing is kept for it.

    Parameters
    ----------
    cuts : SnapshotCapture
        Takes the present state.
    instant : datetime
        The instant, in UTC.

    Raises
    ------
    SnapshotExpiredError
        If the table is younger, or something of that state has been collected.
    """
    cut = cuts.take(across_shards=False)
    base, store = cut.base, cut.base.store
    versions = {one.version: one.committed_at for one in list_versions(store) if one.version <= base.version}
    version = _last_by(versions, instant, base.version)
    if version is None:
        raise expired(f"the version of the base table at {_text(instant)}", store.uri)
    at_version = base.at_version(version)
    found = concurrent_map(
        partial(_shard_at, store, instant, cut),
        sorted(cut.manifests.items()),
        is_local=store.is_local,
        engine=store.engine,
    )
    shards = tuple(one for one in found if one is not None)
    read_at = None if at_version.expiry is None else instant_of(instant)
    return SnapshotToken(
        base.identity, version, shards, None, at_version.version_identity[:STAMP_BYTES], read_at
    )


def _shard_at(
    store: ObjectStore, instant: datetime, cut: Cut, shard: tuple[UUID, ShardManifest]
) -> ShardCut | None:
    """Return where a shard is cut, or None if it had not begun."""
    shard_id, newest = shard
    manifests = _numbered(store.list(layout.manifest_directory(shard_id)), layout.parse_manifest_name)
    manifests = {number: at for number, at in manifests.items() if number <= newest.version}
    if manifests.get(1, instant) > instant:
        return None
    version = _last_by(manifests, instant, newest.version)
    manifest = None if version is None else read_manifest_version(store, shard_id, version)
    if manifest is None:
        raise _gone(store, shard_id, "manifest", instant)
    last = cut.positions[shard_id]
    entries = _numbered(store.list(layout.wal_directory(shard_id)), layout.parse_wal_name)
    entries = {number: at for number, at in entries.items() if number <= last}
    after = min((number for number, at in entries.items() if at > instant), default=last + 1)
    position = max(after - 1, 0)
    covered = manifest.replay_after_wal_entry_position
    if position > covered and position not in entries and position != last:
        # It was collected, so it is unknown whether it existed by then.
        raise _gone(store, shard_id, "log", instant)
    position = max(position, covered)
    wal = Wal(store, shard_id, namespace=cut.base.namespace)
    return cut_at(manifest, position, wal.stored_stamp(position) or b"" if position else b"")


def _last_by(written: Mapping[int, datetime], instant: datetime, newest: int) -> int | None:
    """Return the last number that was written by an instant, where that is certain."""
    last = max((number for number, at in written.items() if at <= instant), default=None)
    if last is None or (last != newest and last + 1 not in written):
        return None
    return last


def _numbered(objects: Iterable[ObjectMeta], number_of: Callable[[str], int]) -> dict[int, datetime]:
    found: dict[int, datetime] = {}
    for one in objects:
        try:
            number = number_of(one.path.rsplit("/", 1)[-1])
        except ValueError:
            continue
        found[number] = one.last_modified
    return found


def _gone(store: ObjectStore, shard_id: UUID, what: str, instant: datetime) -> SnapshotExpiredError:
    return expired(
        f"the {what} of shard {shard_id} at {_text(instant)}",
        f"{store.uri}/{layout.shard_directory(shard_id)}",
    )


def _text(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC"

"""Errors for expired snapshot tokens: which part garbage collection has passed (invariant I8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from uuid import UUID

from weir.base.manifest import manifest_path
from weir.engine.concurrent_map import concurrent_map
from weir.errors import CorruptionError, InputError, SnapshotExpiredError, StorageError, WeirError
from weir.format import layout
from weir.format.snapshot_token import ShardCut, SnapshotToken
from weir.log.manifest_store import read_manifest_version
from weir.snapshots.capture import is_cut_of
from weir.snapshots.snapshot import ReadSnapshot
from weir.storage.interface import ObjectStore

__all__ = [
    "changes_gone",
    "check_readable",
    "check_state",
    "expired",
    "explained",
    "manifest_gone",
    "naming_what_is_gone",
    "wal_entry_gone",
    "wal_entry_replaced",
]

_HINT = (
    "Take a new snapshot; table.snapshot(retain=...) keeps what a token needs for as long as you say, and "
    "table.tags.create(name) until the tag is dropped"
)
_FEED_HINT = (
    "Take a token with table.snapshot(), read the table at it, and then changes(since=token); a consumer "
    "keeps what it has not read. changes(since='earliest') begins with what is left"
)


def expired(part: str, where: str) -> SnapshotExpiredError:
    """Return the error that says which part of a snapshot is gone."""
    return SnapshotExpiredError(
        f"the snapshot can no longer be read: {part} is gone", where=where, hint=_HINT
    )


def changes_gone(store: ObjectStore, shard_id: UUID, position: int) -> SnapshotExpiredError:
    """Return the error for a missing log entry that the change feed should continue with."""
    return SnapshotExpiredError(
        f"the changes can no longer be read: WAL entry {position} of shard {shard_id} is gone",
        where=f"{store.uri}/{layout.wal_path(shard_id, position)}",
        hint=_FEED_HINT,
    )


def wal_entry_gone(store: ObjectStore, shard_id: UUID, position: int) -> SnapshotExpiredError:
    """Return the error that says that a log entry is gone."""
    path = layout.wal_path(shard_id, position)
    return expired(f"WAL entry {position} of shard {shard_id}", f"{store.uri}/{path}")


def wal_entry_replaced(store: ObjectStore, shard_id: UUID, position: int) -> SnapshotExpiredError:
    """Return the error that says that another log entry is where one was: a backup was restored."""
    path = layout.wal_path(shard_id, position)
    return SnapshotExpiredError(
        f"the snapshot can no longer be read: WAL entry {position} of shard {shard_id} was replaced",
        where=f"{store.uri}/{path}",
        hint="A backup was put in the place of the table: take a new snapshot of it",
    )


def check_state(token: SnapshotToken, store: ObjectStore) -> None:
    """Refuse a token that marks a place in the change feed and names no state of the base table.

    Raises
    ------
    InputError
        If it is such a token.
    """
    if not token.base_version:
        raise InputError(
            "the token marks a position in the change feed and names no version of the base table",
            where=store.uri,
            hint="Pass a token of table.snapshot(), or of a feed that began at one",
        )


def check_readable(store: ObjectStore, token: SnapshotToken) -> None:
    """Refuse a token with a missing part: base version, a manifest, or the log it begins with.

    Raises
    ------
    SnapshotExpiredError
        Naming what is gone.
    """
    probes: list[Callable[[], SnapshotExpiredError | None]] = [
        lambda: _without_base(store, token.base_version)
    ]
    probes += [_shard_probe(store, cut) for cut in token.shards]
    for error in concurrent_map(lambda probe: probe(), probes, is_local=store.is_local, engine=store.engine):
        if error is not None:
            raise error


@contextmanager
def naming_what_is_gone(store: ObjectStore, snapshot: ReadSnapshot) -> Iterator[None]:
    """Say what is gone if a read of an earlier state fails for that reason.

    Raises
    ------
    SnapshotExpiredError
        In place of the error that the missing part led to.
    """
    try:
        yield
    except (CorruptionError, StorageError) as error:
        named: WeirError = error
        with suppress(WeirError):
            named = explained(error, store, snapshot)
        if named is error:
            raise
        raise named from error


def explained(error: WeirError, store: ObjectStore, snapshot: ReadSnapshot) -> WeirError:
    """Return the error to raise when reading at a token failed: what is gone, or else the error itself.

    A file that is missing because its owner was collected is not corruption.
    """
    if not _lacks_file(error):
        return error
    where = (error.where or "").rstrip("/")
    for view in snapshot.shards:
        for flushed in snapshot.unmerged(view):
            # The generation itself, or a file of it.
            if f"{layout.generation_path(view.shard_id, flushed.path)}/" in f"{where}/":
                return expired(f"generation {flushed.generation} of shard {view.shard_id}", where)
    return _without_base(store, snapshot.base.version) or error


def _without_base(store: ObjectStore, version: int) -> SnapshotExpiredError | None:
    paths = [manifest_path(version, counts_down=counts_down) for counts_down in (True, False)]
    if any(store.head(path) is not None for path in paths):
        return None
    return expired(f"version {version} of the base table", f"{store.uri}/{paths[0]}")


def _shard_probe(store: ObjectStore, cut: ShardCut) -> Callable[[], SnapshotExpiredError | None]:
    def probe() -> SnapshotExpiredError | None:
        if cut.manifest_version:
            manifest = read_manifest_version(store, cut.shard_id, cut.manifest_version)
            if manifest is None or not is_cut_of(cut, manifest):
                return manifest_gone(store, cut)
        first = max(cut.first_position, 1)
        if first <= cut.position:
            paths = (layout.wal_path(cut.shard_id, first, suffix) for suffix in layout.WAL_SUFFIXES)
            if all(store.head(path) is None for path in paths):
                return wal_entry_gone(store, cut.shard_id, first)
        return None

    return probe


def manifest_gone(store: ObjectStore, cut: ShardCut) -> SnapshotExpiredError:
    """Return the error that says that a shard manifest is gone."""
    path = layout.manifest_path(cut.shard_id, cut.manifest_version)
    return expired(
        f"version {cut.manifest_version} of the manifest of shard {cut.shard_id}", f"{store.uri}/{path}"
    )


def _lacks_file(error: BaseException) -> bool:
    """Whether an error, or one of its causes, is that something does not exist."""
    at: BaseException | None = error
    while at is not None:
        # The library wraps the store's errors into its own texts.
        if "not found" in str(at).lower():
            return True
        at = at.__cause__
    return False

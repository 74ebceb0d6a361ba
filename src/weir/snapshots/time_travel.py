"""Reading a table as it was at a snapshot token.

The sources are those of the token: the base table at its version, the generations listed in the shard
manifests it names, and the log entries between those and its positions, including rows published beside the
log in between. Cached facts about sources (which of their rows are live, what they supersede) are keyed by
their contents, a run of log entries by its first and last position and by which entries have such rows. So a
read at a token and a read of the newest state never use each other's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from threading import Lock

from weir.base.table import BaseTable
from weir.engine.concurrent_map import concurrent_map
from weir.errors import CorruptionError, SnapshotExpiredError, StorageError, WeirError
from weir.format.shard_manifest import ShardManifest
from weir.format.snapshot_token import ShardCut, SnapshotToken, entry_stamp
from weir.log.manifest_store import read_latest_manifest, read_manifest_version
from weir.log.replay import unflushed
from weir.log.wal import Wal
from weir.lsm.log_tail import TailRun
from weir.lsm.staged_rows import with_published_rows
from weir.lsm.visible_generations import visible_generations
from weir.snapshots.capture import is_cut_of
from weir.snapshots.expiry import (
    check_state,
    expired,
    explained,
    manifest_gone,
    wal_entry_gone,
    wal_entry_replaced,
)
from weir.snapshots.shard_view import ShardView
from weir.snapshots.snapshot import ReadSnapshot
from weir.storage.interface import ObjectStore

__all__ = ["TokenReader", "before_the_first", "view_at"]

_MOST = 16
"""Most snapshots that a reader caches; each keeps a base table version open, with its indexes."""


class TokenReader:
    """Takes the snapshots of one table that tokens name, and remembers some of them.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    base : BaseTable
        The base table at any version.
    """

    def __init__(self, store: ObjectStore, base: BaseTable) -> None:
        self._store = store
        self._base = base
        self._lock = Lock()
        self._recent: OrderedDict[Hashable, None] = OrderedDict()

    def take(self, token: SnapshotToken) -> ReadSnapshot:
        """Return the snapshot that a token names.

        Raises
        ------
        InputError
            If the token only marks a place in the change feed.
        SnapshotExpiredError
            If garbage collection has passed it; the message says what is gone.
        CorruptionError
            If deleted rows would be read.
        """
        token = token.unpinned()
        key = self._key(token)
        found = self._store.engine.cache.get_or_load(key, lambda: self._load(token), _nbytes)
        self._is_used(key)
        return found

    def remember(self, token: SnapshotToken, snapshot: ReadSnapshot) -> None:
        """Have a token name a snapshot that was taken already."""
        key = self._key(token.unpinned())
        self._store.engine.cache.put(key, snapshot, _nbytes(snapshot))
        self._is_used(key)

    def _is_used(self, key: Hashable) -> None:
        """Drop the least recently used snapshot, if there are too many."""
        with self._lock:
            self._recent[key] = None
            self._recent.move_to_end(key)
            gone = [self._recent.popitem(last=False)[0] for _ in range(len(self._recent) - _MOST)]
        if gone:
            self._store.engine.cache.discard(gone)

    def _key(self, token: SnapshotToken) -> Hashable:
        # The cache belongs to this reader: it keeps its store and credentials.
        return "as of", self, token

    def base_at(self, token: SnapshotToken) -> BaseTable:
        """Return the base table at the version of a token.

        Raises
        ------
        SnapshotExpiredError
            If it is gone, or another version has its number.
        CorruptionError
            If deleted rows would be read in it.
        """
        version = token.base_version
        if self._base.is_former:
            self._base = self._base.latest()
        try:
            found = self._base.at_version(version)
        except SnapshotExpiredError as error:
            raise expired(f"version {version} of the base table", self._store.uri) from error
        found = found.at_version(version, token.base_stamp)
        found.refuse_damaged_deletions()
        return found

    @contextmanager
    def reading(self, token: SnapshotToken) -> Iterator[None]:
        """Name what is gone if a read at a token fails for that reason."""
        try:
            yield
        except (CorruptionError, StorageError) as error:
            named: WeirError = error
            with suppress(WeirError):
                named = explained(error, self._store, self.take(token))
            if named is error:
                raise
            raise named from error

    def _load(self, token: SnapshotToken) -> ReadSnapshot:
        check_state(token, self._store)
        base = self.base_at(token)
        at_cut = partial(view_at, self._store, base)
        views = concurrent_map(at_cut, token.shards, is_local=self._store.is_local, engine=self._store.engine)
        return ReadSnapshot(base, tuple(views), token.read_at)


def _nbytes(snapshot: ReadSnapshot) -> int:
    return 64 * 1024 + sum(run.nbytes for view in snapshot.shards for run in view.tail)


def view_at(store: ObjectStore, base: BaseTable, cut: ShardCut) -> ShardView:
    """Return a shard as it was at a cut.

    Raises
    ------
    SnapshotExpiredError
        If its manifest, one of its log entries, or what such an entry names is gone.
    """
    manifest = _manifest_at(store, cut)
    wal = Wal(store, cut.shard_id, namespace=base.namespace)
    if cut.first_position == 0:
        # Some writers count from 0; there need not be an entry.
        entries = [*wal.read_from(0, 0), *wal.read_from(1, cut.position)]
    else:
        entries = list(wal.read_from(cut.first_position, cut.position))
    read_to = entries[-1].position if entries else max(cut.first_position, 1) - 1
    if read_to < cut.position:
        raise wal_entry_gone(store, cut.shard_id, read_to + 1)
    if entries and cut.entry and entry_stamp(entries[-1].entry.header.write_id) != cut.entry:
        raise wal_entry_replaced(store, cut.shard_id, cut.position)
    schema = base.row_schema
    entries = list(unflushed(manifest, entries))
    # A feed's place may be past what was published after the manifest that it is read from.
    entries = [
        item
        if item.entry.header.published_from < manifest.current_generation
        else with_published_rows(store, cut.shard_id, schema, item, wal_entry_gone)
        for item in entries
    ]
    tail: tuple[TailRun, ...] = ()
    if entries:
        tail = (TailRun(cut.shard_id, entries, schema, base.primary_key),)
    return ShardView(visible_generations(manifest, cut.position), tail, cut.position)


def _manifest_at(store: ObjectStore, cut: ShardCut) -> ShardManifest:
    if cut.manifest_version == 0:
        newest = read_latest_manifest(store, cut.shard_id)
        if newest is None:
            raise manifest_gone(store, cut)
        return before_the_first(newest)
    manifest = read_manifest_version(store, cut.shard_id, cut.manifest_version)
    if manifest is None or not is_cut_of(cut, manifest):
        raise manifest_gone(store, cut)
    return manifest


def before_the_first(manifest: ShardManifest) -> ShardManifest:
    """Return the manifest of a shard without flushes and claims."""
    return replace(
        manifest,
        version=0,
        writer_epoch=0,
        replay_after_wal_entry_position=0,
        wal_entry_position_last_seen=0,
        current_generation=1,
        flushed_generations=(),
    )

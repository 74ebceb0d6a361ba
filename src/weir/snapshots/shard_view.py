"""A reader's view of one shard: its newest manifest and the WAL tail that no generation covers."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from uuid import UUID

import pyarrow as pa

from weir.engine.concurrent_map import Wave, concurrent_map
from weir.errors import CorruptionError
from weir.format.shard_manifest import ShardManifest
from weir.log.first_look import looked_at
from weir.log.manifest_store import is_replaced, read_latest_manifest, read_newer_manifest
from weir.log.recorded_position import entry_lost, recorded_position
from weir.log.replay import covered_position, unflushed
from weir.log.wal import PositionedEntry, Wal, first_unflushed_position
from weir.lsm.log_tail import TailRun, with_run
from weir.lsm.visible_generations import visible_generations
from weir.storage.interface import ObjectStore

__all__ = ["AnotherHistoryError", "ShardReader", "ShardView", "is_another_history"]

_MANIFEST_TRUST_SECONDS = 60.0
# A tail this large has probably been flushed, and would only be held on to.
_LARGE_TAIL_BYTES = 64 * 1024 * 1024
_LARGE_TAIL_TRUST_SECONDS = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class ShardView:
    """One shard as a snapshot shows it.

    Parameters
    ----------
    manifest : ShardManifest
        The shard's manifest.
    tail : tuple of TailRun
        The WAL entries after the manifest's flushed generations, oldest first.
    last_position : int
        The last WAL position the view includes.
    """

    manifest: ShardManifest
    tail: tuple[TailRun, ...]
    last_position: int

    @property
    def shard_id(self) -> UUID:
        """The shard."""
        return self.manifest.shard_id

    @property
    def identity(self) -> Hashable:
        """Equal for two views exactly if they show the same rows in the same sources."""
        return (self.shard_id, self.manifest.version, self.last_position)

    @property
    def last_entry(self) -> PositionedEntry | None:
        """The last entry that no generation of the manifest holds, if there is one."""
        return self.tail[-1].entries[-1] if self.tail and self.tail[-1].entries else None

    @property
    def tail_rows(self) -> int:
        """Rows in the WAL tail."""
        return sum(run.rows.num_rows for run in self.tail)


class AnotherHistoryError(Exception):
    """The stored state does not follow from the one seen before: a backup took the place of the table."""


def is_another_history(before: ShardManifest, manifest: ShardManifest) -> bool:
    """Whether the newest manifest of a shard cannot be a successor of the one seen before."""
    return manifest.version < before.version or (manifest.version == before.version and manifest != before)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The newest that this process has seen of a shard, with whatever handle."""

    manifest: ShardManifest
    last: PositionedEntry | None
    at: Wave


class ShardReader:
    """Follows one shard, caching what it has read, so that following costs only what is new.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    shard_id : UUID
        The shard.
    schema : Schema
        Schema of the rows: the table's columns and ``_tombstone``.
    key_columns : tuple of str
        Primary-key columns.
    namespace : str
        Identity of the table.
    """

    def __init__(
        self,
        store: ObjectStore,
        shard_id: UUID,
        schema: pa.Schema,
        key_columns: tuple[str, ...],
        *,
        namespace: str,
    ) -> None:
        self._store = store
        self._shard_id = shard_id
        self._schema = schema
        self._key_columns = key_columns
        self._namespace = namespace
        self._wal = Wal(store, shard_id, namespace=namespace)
        self._view: ShardView | None = None
        self._shown: ShardView | None = None
        self._trusted_seconds = _MANIFEST_TRUST_SECONDS
        self._manifest_read_at = 0.0

    def refresh(self, *, reload_manifest: bool = False) -> ShardView | None:
        """Return the shard as it is now, or None if it has no manifest.

        One round trip when nothing has been written since the last call: the probe for the next WAL entry. If
        there is none, nothing the shard shows can have changed: a flush moves rows into a generation without
        changing them. The manifest is still reread occasionally, because garbage collection may remove
        entries that a generation has long covered, and always if ``reload_manifest`` is set.
        """
        now = time.monotonic()
        view = self._view
        if view is None:
            return self._begin(now)
        stale = self._is_stale(now)
        if stale or reload_manifest:
            manifest = self._newer(view)
            if manifest is None:
                return self._begin(now)
            self._manifest_read_at = now
            if stale:
                self._check_history(manifest)
            view = self._rebased(view, manifest)
        entries = self._after(view)
        followed = self._followed(view, entries)
        if any(item.entry.header.fence for item in entries):
            # Someone claimed the shard, and may have published generations without a WAL entry.
            manifest = self._newer(view)
            if manifest is None:
                return self._begin(now)
            self._manifest_read_at = now
            followed = self._rebased(followed, manifest)
        if followed is not self._view:
            self._remember(followed)
        return self._shown

    def would_show(self, view: ShardView) -> bool:
        """Whether it shows that very view if there is no other entry in the log."""
        return view is self._shown and not self._is_stale(time.monotonic())

    def _is_stale(self, now: float) -> bool:
        return now - self._manifest_read_at > self._trusted_seconds

    def _begin(self, now: float) -> ShardView | None:
        """Read all that no generation covers, whether or not something was known of the shard."""
        before = self._view
        known = self._known_before() if before is None else None
        manifest, recorded, entries = self._asked(known)
        if manifest is None:
            return None
        self._manifest_read_at = now
        self._check_history(manifest, is_proved=False)
        if before is not None:
            if is_another_history(before.manifest, manifest):
                raise AnotherHistoryError
            # Its manifest was collected, which would have told this log from that of another history.
            self._wal.forget_another_history(manifest)
        first = max(first_unflushed_position(manifest), 1)
        remembered = entries is None and self._wal.remembers(first)
        view = self._rebased(None, manifest, recorded, entries)
        if remembered and self._store.engine.cache.get(self._seen_key) is None:
            # A writer of this process has left them there, and may have written another history.
            self._check_end(view)
        self._remember(view)
        return self._shown

    def _newer(self, view: ShardView) -> ShardManifest | None:
        """Return the newest manifest after that of a view; None if that was collected.

        Raises
        ------
        AnotherHistoryError
            Another one has the place of that of the view.
        """
        newest = read_newer_manifest(self._store, self._shard_id, view.manifest)
        if newest is None and is_replaced(self._store, view.manifest):
            raise AnotherHistoryError
        return newest

    def _after(self, view: ShardView) -> list[PositionedEntry]:
        try:
            return list(self._wal.read_from(view.last_position + 1))
        except CorruptionError:
            # It may belong to another history, and cannot continue the cached one.
            self._check_end(view)
            raise

    def newest_manifest(self) -> ShardManifest | None:
        """Return the newest manifest, for who needs no rows of the log; None if the shard has none.

        Raises
        ------
        AnotherHistoryError
            It does not follow from what this process has seen.
        """
        manifest = read_latest_manifest(self._store, self._shard_id)
        seen = self._store.engine.cache.get(self._seen_key)
        known = [] if self._view is None else [self._view.manifest]
        known += [seen.manifest] if isinstance(seen, _Seen) else []
        if manifest is not None and any(is_another_history(before, manifest) for before in known):
            raise AnotherHistoryError
        return manifest

    def _known_before(self) -> ShardManifest | None:
        """Return the manifest that was found when the table was opened, if it was a moment ago.

        Also None if a writer of this process has left entries after it, which say more.
        """
        known = looked_at(self._store, self._shard_id)
        if known is None:
            return None
        return None if self._wal.remembers(max(first_unflushed_position(known), 1)) else known

    def _asked(
        self, known: ShardManifest | None
    ) -> tuple[ShardManifest | None, int, list[PositionedEntry] | None]:
        """Return the newest manifest, and what the lease records.

        If a manifest is known already, the log is read in parallel, and returned as well if there is no newer
        manifest: then it was the newest when the log was read.
        """
        recorded = 0
        manifest: ShardManifest | None = None
        entries: list[PositionedEntry] | None = None

        def ask_lease() -> None:
            nonlocal recorded
            recorded = recorded_position(self._store, self._shard_id)

        def ask_manifest() -> None:
            nonlocal manifest
            manifest = read_latest_manifest(self._store, self._shard_id, known=known)

        def ask_log() -> None:
            nonlocal entries
            # Whether the problem matters depends on the manifest; reading it again will raise the error.
            with suppress(CorruptionError):
                entries = None if known is None else list(self._wal.read_tail(known))

        for _ in concurrent_map(
            lambda ask: ask(),
            (ask_manifest, ask_lease, *(() if known is None else (ask_log,))),
            is_local=self._store.is_local,
            engine=self._store.engine,
        ):
            pass
        return manifest, recorded, entries if manifest == known else None

    def _check_history(self, manifest: ShardManifest, *, is_proved: bool = True) -> None:
        """Refuse to continue if the stored state does not follow from what this process has seen.

        Called occasionally, and when a shard is first read: takes a round trip if the log has an entry that
        was seen and is in no generation.

        Parameters
        ----------
        manifest : ShardManifest
            The newest manifest.
        is_proved : bool, default True
            Whether it is known to come after the one seen before. Otherwise a request tells, which is spared
            on an object store if that one was seen a moment ago: no backup is restored so fast.

        Raises
        ------
        AnotherHistoryError
            It does not.
        """
        seen = self._store.engine.cache.get(self._seen_key)
        if not isinstance(seen, _Seen):
            return
        if is_another_history(seen.manifest, manifest):
            raise AnotherHistoryError
        is_proved = is_proved or manifest.version == seen.manifest.version
        if (
            not is_proved
            and (self._store.is_local or not seen.at.was_short())
            and is_replaced(self._store, seen.manifest)
        ):
            raise AnotherHistoryError
        last = seen.last
        if (
            last is not None
            and last.position >= first_unflushed_position(manifest)
            and not self._wal.stands(last.position, last.entry)
            # It may be collected by now.
            and last.position >= first_unflushed_position(self._newest(manifest))
        ):
            raise AnotherHistoryError

    def _check_end(self, view: ShardView) -> None:
        last = view.last_entry
        if last is not None and not self._wal.stands(last.position, last.entry):
            if last.position < first_unflushed_position(self._newest(view.manifest)):
                return
            raise AnotherHistoryError

    def _newest(self, manifest: ShardManifest) -> ShardManifest:
        return read_latest_manifest(self._store, self._shard_id, known=manifest) or manifest

    @property
    def _seen_key(self) -> Hashable:
        return ("seen", self._namespace, self._shard_id.int)

    def _remember(self, view: ShardView) -> None:
        """Keep a view, and what follows from it."""
        self._store.engine.cache.put(self._seen_key, _Seen(view.manifest, view.last_entry, Wave()), 512)
        manifest = visible_generations(view.manifest, view.last_position)
        shown = view if manifest is view.manifest else replace(view, manifest=manifest)
        large = sum(run.nbytes for run in view.tail) > _LARGE_TAIL_BYTES
        self._trusted_seconds = _LARGE_TAIL_TRUST_SECONDS if large else _MANIFEST_TRUST_SECONDS
        self._view, self._shown = view, shown

    def _rebased(
        self,
        view: ShardView | None,
        manifest: ShardManifest,
        recorded: int | None = None,
        entries: list[PositionedEntry] | None = None,
    ) -> ShardView:
        """Put ``view`` on a newer manifest: what its generations cover leaves the tail."""
        start = first_unflushed_position(manifest)
        if view is None or view.last_position < start - 1:
            return self._begun(manifest, recorded, entries)
        covered = covered_position(manifest, (item for run in view.tail for item in run.entries))
        kept = (run.split_after(covered) for run in view.tail)
        return replace(view, manifest=manifest, tail=tuple(run for run in kept if run is not None))

    def _begun(
        self,
        manifest: ShardManifest,
        recorded: int | None = None,
        read: list[PositionedEntry] | None = None,
    ) -> ShardView:
        """Read everything after a manifest's generations, unless that has been read beside it."""
        if recorded is None:
            # Read before the log, so that its entries existed.
            recorded = recorded_position(self._store, self._shard_id)
        entries = list(self._wal.read_tail(manifest, reached=recorded)) if read is None else read
        last = entries[-1].position if entries else max(first_unflushed_position(manifest) - 1, 0)
        if last < recorded:
            if read is not None:
                # The lease may have been asked after the log.
                return self._begun(manifest, recorded)
            newer = read_latest_manifest(self._store, self._shard_id, known=manifest)
            if newer is None or newer.replay_after_wal_entry_position <= last:
                raise entry_lost(self._store, self._shard_id, last + 1, recorded)
            # They were flushed, merged and collected since the manifest was read.
            return self._begun(newer)
        view = ShardView(manifest, self._runs(unflushed(manifest, entries), ()), last)
        if all(one.entry.header.published_from < manifest.current_generation for one in entries):
            return view
        # The log names generations that were published after the manifest was read.
        newest = read_latest_manifest(self._store, self._shard_id, known=manifest)
        assert newest is not None
        return self._rebased(view, newest)

    def _followed(self, view: ShardView, entries: Sequence[PositionedEntry]) -> ShardView:
        """Add the entries written after ``view``.

        The manifest may have been read after some of them were flushed, and not say so: see
        :mod:`weir.log.replay`. Of the entries after one that no generation holds, none is in a generation.
        """
        if not entries:
            return view
        has_rows = any(item.entry.num_rows for run in view.tail for item in run.entries)
        added = entries if has_rows else unflushed(view.manifest, entries)
        return replace(view, tail=self._runs(added, view.tail), last_position=entries[-1].position)

    def _runs(self, entries: Sequence[PositionedEntry], tail: tuple[TailRun, ...]) -> tuple[TailRun, ...]:
        if not entries:
            return tail
        return with_run(tail, TailRun(self._shard_id, entries, self._schema, self._key_columns))

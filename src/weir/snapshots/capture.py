"""A cut of a table: its base table version, generations and log positions, without reading rows.

A cut has to be consistent in three ways.

**In each shard** it is a prefix of the commit order: a position and everything before it.

**Base table and shards fit together.** The base table is read before the manifests, so what the base lacks is
still listed by them.

**Across shards** it is equivalent to the state at one moment: if a client saw a write acknowledged before it
made another one in another shard, a cut with the later one has the earlier one. The ends of the logs are read
repeatedly, one round after the other. If two rounds find the same, that state existed between them. It need
not be that quiet: take three rounds, and the positions of the second. Suppose they include a later write, in
shard B, but lack the earlier one, in A. The earlier one was not there when the second round read A, so it
came after the whole first round; the later one came after that, so the first round did not see it either. And
when the third round read A, the earlier one was there. So B moved between the first two rounds and A between
the last two: if no two different shards did that, the second round is consistent. One busy shard is never a
problem.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TypeVar
from uuid import UUID

from weir.base.table import BaseTable
from weir.engine.concurrent_map import concurrent_map
from weir.errors import ConflictError, CorruptionError
from weir.format.shard_manifest import ShardManifest
from weir.format.snapshot_token import STAMP_BYTES, ShardCut, SnapshotToken, entry_stamp, instant_of
from weir.log.manifest_store import (
    is_replaced,
    list_shards,
    read_latest_manifest,
    read_manifest_version,
    read_newer_manifest,
)
from weir.log.recorded_position import another_log, entry_lost, log_ends_before, recorded_position
from weir.log.wal import Wal, first_unflushed_position
from weir.lsm.expired_rows import expiry_instant
from weir.snapshots.shard_view import AnotherHistoryError, ShardView, is_another_history
from weir.snapshots.snapshot import ReadSnapshot, is_complete, refuse_foreign_progress
from weir.storage.interface import ObjectStore

__all__ = ["Cut", "SnapshotCapture", "cut_at", "is_cut_of", "token_of"]

T = TypeVar("T")
U = TypeVar("U")

_MAX_SECONDS = 30.0
_MAX_ATTEMPTS = 16
_MOST_STAMPS = 256


@dataclass(frozen=True, slots=True)
class Cut:
    """A state of a table, by its parts.

    Parameters
    ----------
    base : BaseTable
        The base table, pinned at a version.
    manifests : mapping of UUID to ShardManifest
        A manifest of every shard.
    positions : mapping of UUID to int
        The last log position that counts, of every shard.
    entries : mapping of UUID to bytes
        What a token has of the entries at these positions.
    """

    base: BaseTable
    manifests: Mapping[UUID, ShardManifest]
    positions: Mapping[UUID, int]
    entries: Mapping[UUID, bytes]

    def entry_at(self, shard_id: UUID, position: int) -> bytes:
        """Return what a token has of an entry: empty unless it is the last that counts."""
        return self.entries[shard_id] if position == self.positions[shard_id] else b""

    def token(self, pin: str | None = None) -> SnapshotToken:
        """Return the token of this state."""
        cuts = (
            cut_at(manifest, self.positions[shard_id], self.entries[shard_id])
            for shard_id, manifest in sorted(self.manifests.items())
        )
        stamp = self.base.version_identity[:STAMP_BYTES]
        instant = None if self.base.expiry is None else instant_of(expiry_instant())
        return SnapshotToken(self.base.identity, self.base.version, tuple(cuts), pin, stamp, instant)


def cut_at(manifest: ShardManifest, position: int, entry: bytes = b"") -> ShardCut:
    """Return the cut of a shard at a manifest and the last log position that counts, with its entry."""
    return ShardCut(
        manifest.shard_id,
        manifest.version,
        manifest.writer_epoch,
        first_unflushed_position(manifest),
        position,
        # The state before the first manifest was never committed.
        manifest.write_id[:STAMP_BYTES] if manifest.version else b"",
        entry,
    )


def is_cut_of(cut: ShardCut, manifest: ShardManifest) -> bool:
    """Whether a manifest is the one that a cut was made at.

    A writer that slept for very long may have put another one where the collected one was.

    Parameters
    ----------
    cut : ShardCut
        The cut.
    manifest : ShardManifest
        The manifest of the shard and version that it names.
    """
    return (
        manifest.writer_epoch == cut.epoch
        and first_unflushed_position(manifest) == cut.first_position
        # An older token has no stamp.
        and (not cut.stamp or manifest.write_id.startswith(cut.stamp))
    )


def token_of(snapshot: ReadSnapshot, read_at: datetime | None = None) -> SnapshotToken:
    """Return the token of a snapshot; nothing is kept for it.

    Parameters
    ----------
    snapshot : ReadSnapshot
        The snapshot.
    read_at : datetime, optional
        When it was read, if the snapshot does not say when it is judged what has expired. Default: now.
    """
    cuts = []
    for view in sorted(snapshot.shards, key=lambda one: one.shard_id):
        # A published snapshot shows a shard without its log.
        end = max(view.last_position, first_unflushed_position(view.manifest) - 1)
        last = view.last_entry
        is_last = last is not None and last.position == end
        entry = entry_stamp(last.entry.header.write_id) if last is not None and is_last else b""
        cuts.append(cut_at(view.manifest, end, entry))
    base = snapshot.base
    stamp = base.version_identity[:STAMP_BYTES]
    instant = None if base.expiry is None else instant_of(snapshot.instant or read_at or expiry_instant())
    return SnapshotToken(base.identity, base.version, tuple(cuts), None, stamp, instant)


class SnapshotCapture:
    """Takes cuts of one table, remembering how far every log has come.

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
        self._manifests: dict[UUID, ShardManifest] = {}
        self._logs: dict[UUID, _LogEnd] = {}
        self._lock = threading.Lock()

    def take(self, *, across_shards: bool = True, max_seconds: float = _MAX_SECONDS) -> Cut:
        """Return a cut that has every write acknowledged before the call.

        Parameters
        ----------
        across_shards : bool
            Whether it has to be consistent across shards.
        max_seconds : float
            How long to wait for a moment in which that can be determined.

        Raises
        ------
        ConflictError
            If several shards were written to without a pause for so long, or if merges and claims
            kept changing the table.
        """
        deadline = time.monotonic() + max_seconds
        with self._lock:
            for _ in range(_MAX_ATTEMPTS):
                try:
                    cut = self._attempt(across_shards=across_shards, deadline=deadline)
                except AnotherHistoryError:
                    self._base = self._base.begin_anew()
                    self._manifests.clear()
                    self._logs.clear()
                    continue
                if cut is not None:
                    return cut
        raise ConflictError(
            f"the table changed during each of {_MAX_ATTEMPTS} attempts to capture a snapshot of it",
            where=self._store.uri,
            hint="Try again, or merge and collect less often",
        )

    def _attempt(self, *, across_shards: bool, deadline: float) -> Cut | None:
        base, manifests = self._state()
        logs = {shard_id: self._log(manifest) for shard_id, manifest in manifests.items()}
        positions = self._settled(logs, deadline) if across_shards else self._round(logs)
        # A shard that has begun meanwhile may hold a write that is older than some of what was found.
        if across_shards and self._newest_manifests(set(list_shards(self._store)) - set(manifests)):
            return None
        newest = self._newest_manifests(positions)
        self._refuse_lost(logs, newest, positions)
        if self._was_collected(newest, positions) or _lacks_published(manifests, newest, positions):
            return None
        entries = {one: logs[one].stamps.get(at, b"") for one, at in positions.items()}
        return Cut(base, manifests, positions, entries)

    def has_news(self, positions: Mapping[UUID, int]) -> bool:
        """Whether a log continues after some positions, or another shard has begun.

        Takes one listing, and a probe of every log. Changes written and then collected since the last check
        go unnoticed, so :meth:`take` must be called occasionally.
        """
        with self._lock:
            shard_ids = list_shards(self._store)
            if not positions.keys() >= set(shard_ids):
                return True
            following = [(self._log_of(shard_id), positions[shard_id] + 1) for shard_id in shard_ids]
            return any(self._for_each(lambda one: one[0].exists(one[1]), following))

    def refuse_another_log(self, cut: Cut, place: SnapshotToken) -> None:
        """Refuse to go on from a place that was in another log: a backup was put in the place of the table.

        The entry at its position tells. If it was collected, so does the manifest that the place names, if
        that is stored; and if neither is, nothing does. Takes a round trip for every shard whose entry at
        that position has not been seen here since its manifest was written.

        Parameters
        ----------
        cut : Cut
            The newest state, as just taken.
        place : SnapshotToken
            The place.

        Raises
        ------
        CorruptionError
            It was in another log.
        """
        with self._lock:
            begins = [one for one in place.shards if one.shard_id in cut.manifests]
            for error in self._for_each(partial(self._other_log, cut), begins):
                if error is not None:
                    raise error

    def _other_log(self, cut: Cut, begin: ShardCut) -> CorruptionError | None:
        shard_id, position, last = begin.shard_id, begin.position, cut.positions[begin.shard_id]
        log = self._log_of(shard_id)
        if position > last and position > (last := log.advance()):
            # Nor has it been written since the cut, by which another process may have come further.
            return log_ends_before(self._store, shard_id, last + 1, position)
        if not position or begin in log.met:
            return None
        found: bytes | None = log.stamps.get(position, b"")
        if begin.entry and not found:
            found = log.stored_stamp(position)
            if found is None and not self._may_be_collected(cut.manifests[shard_id], position):
                return log_ends_before(self._store, shard_id, position, position)
        is_same = found == begin.entry if found and begin.entry else self._may_follow(begin, cut)
        if not is_same:
            return another_log(self._store, shard_id, position)
        log.meet(begin)
        return None

    def _may_be_collected(self, manifest: ShardManifest, position: int) -> bool:
        if position > manifest.replay_after_wal_entry_position:
            manifest = read_latest_manifest(self._store, manifest.shard_id, known=manifest) or manifest
        return position <= manifest.replay_after_wal_entry_position

    def _may_follow(self, begin: ShardCut, cut: Cut) -> bool:
        """Whether the newest manifest may come after the one that a place names, if only that can tell."""
        version, newest = begin.manifest_version, cut.manifests[begin.shard_id]
        if not begin.stamp or version > newest.version:
            return not begin.stamp
        is_newest = version == newest.version
        named = newest if is_newest else read_manifest_version(self._store, begin.shard_id, version)
        return named is None or named.write_id.startswith(begin.stamp)

    def _state(self) -> tuple[BaseTable, dict[UUID, ShardManifest]]:
        """Return the newest base table and manifests that fit together."""
        for _ in range(_MAX_ATTEMPTS):
            before, base = self._base, self._base.latest()
            if before.is_former:
                raise AnotherHistoryError
            self._base = base
            manifests = self._newest_manifests(list_shards(self._store))
            views = tuple(ShardView(manifest, (), 0) for manifest in manifests.values())
            snapshot = ReadSnapshot(base, views)
            refuse_foreign_progress(base, views)
            if all(is_complete(snapshot, view) for view in views) or base.latest().version == base.version:
                return base, manifests
        raise ConflictError(
            f"the table changed during each of {_MAX_ATTEMPTS} attempts to capture a snapshot of it",
            where=self._store.uri,
            hint="Try again, or merge less often",
        )

    def _newest_manifests(self, shard_ids: Iterable[UUID]) -> dict[UUID, ShardManifest]:
        found = self._for_each(self._newest_manifest, list(shard_ids))
        self._manifests.update((manifest.shard_id, manifest) for manifest in found if manifest is not None)
        return {manifest.shard_id: manifest for manifest in found if manifest is not None}

    def _newest_manifest(self, shard_id: UUID) -> ShardManifest | None:
        known = self._manifests.get(shard_id)
        if known is not None and (found := read_newer_manifest(self._store, shard_id, known)) is not None:
            return found
        newest = read_latest_manifest(self._store, shard_id)
        if known is not None and newest is not None:
            # A backup may be in the place of the table, whose log may end before what was seen.
            if is_another_history(known, newest) or is_replaced(self._store, known):
                raise AnotherHistoryError
            if shard_id in self._logs:
                self._logs[shard_id] = self._log_end(shard_id)
                self._logs[shard_id].wal.forget_another_history(newest)
        return newest

    def _log(self, manifest: ShardManifest) -> _LogEnd:
        log = self._log_of(manifest.shard_id)
        log.continue_at(manifest)
        return log

    def _log_of(self, shard_id: UUID) -> _LogEnd:
        log = self._logs.get(shard_id)
        if log is None:
            log = self._logs[shard_id] = self._log_end(shard_id)
        return log

    def _log_end(self, shard_id: UUID) -> _LogEnd:
        wal = Wal(self._store, shard_id, namespace=self._base.namespace)
        return _LogEnd(wal, partial(recorded_position, self._store, shard_id))

    def _settled(self, logs: Mapping[UUID, _LogEnd], deadline: float) -> dict[UUID, int]:
        before = self._round(logs)
        middle = self._round(logs)
        while True:
            if not (moved_before := _moved(before, middle)):
                return middle
            after = self._round(logs)
            moved_after = _moved(middle, after)
            if not moved_after or (len(moved_after) == 1 and moved_after == moved_before):
                return middle
            if time.monotonic() > deadline:
                raise ConflictError(
                    f"{len(moved_after)} shards were written to without a pause, so no state consistent "
                    "across shards could be found",
                    where=self._store.uri,
                    hint="Try again, or when there are fewer writes",
                )
            before, middle = middle, after

    def _round(self, logs: Mapping[UUID, _LogEnd]) -> dict[UUID, int]:
        """Ask every log how far it has come."""
        return dict(zip(logs, self._for_each(_LogEnd.advance, list(logs.values())), strict=True))

    def _refuse_lost(
        self,
        logs: Mapping[UUID, _LogEnd],
        newest: Mapping[UUID, ShardManifest],
        positions: Mapping[UUID, int],
    ) -> None:
        """Refuse a log that ends before what its lease says, unless a manifest covers all that."""
        for shard_id, position in positions.items():
            recorded = logs[shard_id].recorded
            manifest = newest.get(shard_id)
            covered = 0 if manifest is None else manifest.replay_after_wal_entry_position
            if max(position, covered) < recorded:
                raise entry_lost(self._store, shard_id, position + 1, recorded)

    def _was_collected(self, newest: Mapping[UUID, ShardManifest], positions: Mapping[UUID, int]) -> bool:
        """Whether a log looked shorter than it is because garbage collection had passed its entries.

        Only what a manifest covers is ever collected. So if the newest one covers no more than what was
        found, or the entry that was absent is there now, then it was not there yet.
        """
        return any(
            shard_id not in newest
            or (
                newest[shard_id].replay_after_wal_entry_position > position
                and not self._logs[shard_id].exists(position + 1)
            )
            for shard_id, position in positions.items()
        )

    def _for_each(self, ask: Callable[[T], U], items: list[T]) -> list[U]:
        return list(concurrent_map(ask, items, is_local=self._store.is_local, engine=self._store.engine))


class _LogEnd:
    """How far the log of a shard has come."""

    def __init__(self, wal: Wal, ask_recorded: Callable[[], int]) -> None:
        self.wal = wal
        # What something else says that the log has reached: asked before the log.
        self._ask_recorded = ask_recorded
        self.recorded = ask_recorded()
        self.position = 0
        # What a token has of entries, and the cuts that are known to be of this log. Another log has another
        # manifest: it comes from a backup, and whoever writes to that has claimed the shard.
        self.stamps: dict[int, bytes] = {}
        self.met: set[ShardCut] = set()
        self._manifest: ShardManifest | None = None
        self._covered = 0

    def continue_at(self, manifest: ShardManifest) -> None:
        """Go on from what the newest manifest says."""
        if manifest != self._manifest:
            self._manifest = manifest
            self.met.clear()
            self.stamps.clear()
        # Everything a manifest covers has been there, collected or not.
        self._covered = manifest.replay_after_wal_entry_position
        self.position = max(self.position, self._covered)

    def meet(self, cut: ShardCut) -> None:
        """Remember that a cut is of this log."""
        if len(self.met) >= _MOST_STAMPS:
            self.met.clear()
        self.met.add(cut)

    def exists(self, position: int) -> bool:
        """Whether there is an entry at a position."""
        return self.wal.exists(position)

    def stored_stamp(self, position: int) -> bytes | None:
        """Return what a token has of an entry, as it is stored; None if it is gone."""
        return self.wal.stored_stamp(position)

    def advance(self) -> int:
        """Look for newer entries and return the position of the last.

        There are no gaps (invariant I3), so a long log is found the end of in few steps.
        """
        there, step = self.position, 1
        while self._find(there + step):
            there += step
            step *= 2
        absent = there + step
        while absent - there > 1:
            middle = (there + absent) // 2
            if self._find(middle):
                there = middle
            else:
                absent = middle
        if there and there not in self.stamps:
            # Known by a manifest alone, or from before it.
            stamp = self.stored_stamp(there)
            if stamp is None and there > self._covered:
                # What no generation covers is never collected: this is another log.
                self.recorded = self._ask_recorded()
                self.position = self._covered
                return self.advance()
            self.stamps[there] = stamp or b""
        self.position = there
        return there

    def _find(self, position: int) -> bool:
        stamp = self.wal.stamp(position)
        if stamp is None:
            return False
        if len(self.stamps) >= _MOST_STAMPS:
            self.stamps.pop(next(iter(self.stamps)))
        self.stamps[position] = stamp
        return True


def _lacks_published(
    manifests: Mapping[UUID, ShardManifest],
    newest: Mapping[UUID, ShardManifest],
    positions: Mapping[UUID, int],
) -> bool:
    """Whether a log names generations that were published after its manifest was read.

    A read there would have to load all of their rows.
    """
    return any(
        one.published_after is not None
        and manifests[shard_id].current_generation <= one.generation
        and one.published_after < positions[shard_id]
        for shard_id, manifest in newest.items()
        for one in manifest.flushed_generations
    )


def _moved(before: Mapping[UUID, int], after: Mapping[UUID, int]) -> set[UUID]:
    return {shard_id for shard_id, position in after.items() if position != before[shard_id]}

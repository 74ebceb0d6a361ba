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
from typing import TypeVar
from uuid import UUID

from weir.base.table import BaseTable
from weir.engine.concurrent_map import concurrent_map
from weir.errors import ConflictError
from weir.format.shard_manifest import ShardManifest
from weir.format.snapshot_token import STAMP_BYTES, ShardCut, SnapshotToken, instant_of
from weir.log.manifest_store import list_shards, read_latest_manifest
from weir.log.recorded_position import entry_lost, recorded_position
from weir.log.wal import Wal, first_unflushed_position
from weir.lsm.expired_rows import expiry_instant
from weir.snapshots.shard_view import ShardView, is_another_history
from weir.snapshots.snapshot import ReadSnapshot, is_complete, refuse_foreign_progress
from weir.storage.interface import ObjectStore

__all__ = ["Cut", "SnapshotCapture", "cut_at", "is_cut_of", "token_of"]

T = TypeVar("T")
U = TypeVar("U")

_MAX_SECONDS = 30.0
_MAX_ATTEMPTS = 16


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
    """

    base: BaseTable
    manifests: Mapping[UUID, ShardManifest]
    positions: Mapping[UUID, int]

    def token(self, pin: str | None = None) -> SnapshotToken:
        """Return the token of this state."""
        cuts = (
            cut_at(manifest, self.positions[shard_id])
            for shard_id, manifest in sorted(self.manifests.items())
        )
        stamp = self.base.version_identity[:STAMP_BYTES]
        instant = None if self.base.expiry is None else instant_of(expiry_instant())
        return SnapshotToken(self.base.identity, self.base.version, tuple(cuts), pin, stamp, instant)


def cut_at(manifest: ShardManifest, position: int) -> ShardCut:
    """Return the cut of a shard at a manifest and the last log position that counts."""
    return ShardCut(
        manifest.shard_id,
        manifest.version,
        manifest.writer_epoch,
        first_unflushed_position(manifest),
        position,
        # The state before the first manifest was never committed.
        manifest.write_id[:STAMP_BYTES] if manifest.version else b"",
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
        cuts.append(cut_at(view.manifest, end))
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
                base, manifests = self._state()
                logs = {shard_id: self._log(manifest) for shard_id, manifest in manifests.items()}
                positions = self._settled(logs, deadline) if across_shards else self._round(logs)
                # A shard that has begun meanwhile may hold a write that is older than some of what was found.
                if across_shards and self._newest_manifests(set(list_shards(self._store)) - set(manifests)):
                    continue
                newest = self._newest_manifests(positions)
                self._refuse_lost(newest, positions)
                if not self._was_collected(newest, positions) and not _lacks_published(
                    manifests, newest, positions
                ):
                    return Cut(base, manifests, positions)
        raise ConflictError(
            f"the table changed during each of {_MAX_ATTEMPTS} attempts to capture a snapshot of it",
            where=self._store.uri,
            hint="Try again, or merge and collect less often",
        )

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

    def _state(self) -> tuple[BaseTable, dict[UUID, ShardManifest]]:
        """Return the newest base table and manifests that fit together."""
        for _ in range(_MAX_ATTEMPTS):
            self._base = base = self._base.latest()
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
        def newest(shard_id: UUID) -> ShardManifest | None:
            return read_latest_manifest(self._store, shard_id, known=self._manifests.get(shard_id))

        found = self._for_each(newest, list(shard_ids))
        for manifest in found:
            known = None if manifest is None else self._manifests.get(manifest.shard_id)
            if manifest is not None and known is not None and is_another_history(known, manifest):
                # A backup was put in the place of the table: its log may end before what was seen.
                self._logs.pop(manifest.shard_id, None)
        self._manifests.update((manifest.shard_id, manifest) for manifest in found if manifest is not None)
        return {manifest.shard_id: manifest for manifest in found if manifest is not None}

    def _log(self, manifest: ShardManifest) -> _LogEnd:
        log = self._log_of(manifest.shard_id)
        # Everything a manifest covers has been there, collected or not.
        log.position = max(log.position, manifest.replay_after_wal_entry_position)
        return log

    def _log_of(self, shard_id: UUID) -> _LogEnd:
        log = self._logs.get(shard_id)
        if log is None:
            recorded = recorded_position(self._store, shard_id)
            wal = Wal(self._store, shard_id, namespace=self._base.namespace)
            log = self._logs[shard_id] = _LogEnd(wal, recorded)
        return log

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

    def _refuse_lost(self, newest: Mapping[UUID, ShardManifest], positions: Mapping[UUID, int]) -> None:
        """Refuse a log that ends before what its lease says, unless a manifest covers all that."""
        for shard_id, position in positions.items():
            recorded = self._logs[shard_id].recorded
            manifest = newest.get(shard_id)
            covered = 0 if manifest is None else manifest.replay_after_wal_entry_position
            if max(position, covered) < recorded:
                raise entry_lost(self._store, shard_id, position + 1, recorded, "its lease")

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

    def __init__(self, wal: Wal, recorded: int) -> None:
        self._wal = wal
        # What something else says that the log has reached.
        self.recorded = recorded
        self.position = 0

    def exists(self, position: int) -> bool:
        """Whether there is an entry at a position."""
        return self._wal.exists(position)

    def advance(self) -> int:
        """Look for newer entries and return the position of the last.

        There are no gaps (invariant I3), so a long log is found the end of in few steps.
        """
        there, step = self.position, 1
        while self._wal.exists(there + step):
            there += step
            step *= 2
        absent = there + step
        while absent - there > 1:
            middle = (there + absent) // 2
            if self._wal.exists(middle):
                there = middle
            else:
                absent = middle
        self.position = there
        return there


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

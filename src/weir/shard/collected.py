"""Telling whether an append went to a place that had been collected (invariant I2).

A put-if-absent that succeeds at a log position says that nothing stands there, not that nothing ever did.
A writer that slept for long may find its next position free because the entry of whoever fenced it, and
everything around it, was covered by generations, merged and collected. What it writes there nobody reads.

While a writer is awake that cannot be: the first entry of every epoch, which is what stands at the next
position of a fenced writer, is kept for far longer than :data:`MAX_UNCERTAIN_SECONDS`. So an append that
came back soon after the position was certainly free is in its place. Later, or when an earlier append at
the same position may have been the writer's own, the newest manifest decides: only positions that it
covers are collected, and what it covers once it covers for good.
:mod:`weir.services.garbage_policy` has the whole argument.
"""

from __future__ import annotations

from uuid import UUID

from weir.errors import FencedError
from weir.shard.clock import Clock
from weir.shard.manifest_store import read_latest_manifest
from weir.shard.wal import Wal
from weir.storage.interface import ObjectStore

__all__ = ["MAX_UNCERTAIN_SECONDS", "AppendCheck"]

MAX_UNCERTAIN_SECONDS = 300.0
"""How long after its next position was certainly free a writer may trust that it still was."""


class AppendCheck:
    """Knows since when the next position of a writer was certainly free.

    Made before the shard is claimed, and told of every append.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    shard_id : UUID
        The shard.
    wal : Wal
        Its log.
    clock : Clock
        Counts the time that the system sleeps.
    """

    def __init__(self, store: ObjectStore, shard_id: UUID, wal: Wal, clock: Clock) -> None:
        self._store = store
        self._shard_id = shard_id
        self._wal = wal
        self._clock = clock
        self._free_at = clock.uptime()
        self._began = self._free_at

    def begin(self) -> None:
        """Note that an append is about to be made."""
        self._began = self._clock.uptime()

    def accept(self, position: int, *, in_doubt: bool) -> None:
        """Accept an append that went through, unless its position had been collected.

        Parameters
        ----------
        position : int
            Where it went.
        in_doubt : bool
            Whether an earlier append of the same writer may have stood there.

        Raises
        ------
        FencedError
            If another writer has claimed the shard, and its generations cover the position. Either the
            append came in time, and that writer has replayed it, or it counts for nothing.
        StorageError
            If the manifest cannot be read; then nobody knows.
        """
        if in_doubt or self._clock.uptime() - self._free_at > MAX_UNCERTAIN_SECONDS:
            latest = read_latest_manifest(self._store, self._shard_id)
            if latest is not None and latest.replay_after_wal_entry_position >= position:
                raise FencedError(
                    f"shard {self._shard_id} is claimed with epoch {latest.writer_epoch}, and its log is "
                    f"covered up to position {latest.replay_after_wal_entry_position}",
                    where=self._wal.where(position),
                    hint="Open a new writer to go on",
                )
        # The position after this one was free when this one was: nobody writes beyond a free position.
        self._free_at = self._began

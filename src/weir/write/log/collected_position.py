"""Telling whether an append goes to a place that has been collected (invariant I2).

A put-if-absent that succeeds at a log position says that nothing stands there, not that nothing ever did.
A writer that slept for long may find its next position free because the entry of whoever fenced it, and
everything around it, was covered by generations, merged and collected. What it writes there nobody reads.

While a writer is awake that cannot be: the first entry of every epoch, which is what stands at the next
position of a fenced writer, is kept for far longer than :data:`MAX_UNCERTAIN_SECONDS`. So an append that
came back soon after the position was certainly free is in its place. A writer that has not written for
longer, or whose last append may have been made although its answer was lost, asks the newest manifest
before it appends: while that has the writer's own epoch, nobody else has written to the log. Then a writer
that is fenced learns so before it writes anything.

It may still fall asleep between that and the append. So after an append that took too long, or that was
in doubt, the manifest is asked once more: only positions that it covers are collected, and what it covers
once it covers for good. :mod:`weir.maintenance.garbage.policy` has the whole argument.
"""

from __future__ import annotations

from uuid import UUID

from weir.errors import FencedError
from weir.log.manifest_store import read_latest_manifest
from weir.log.wal import Wal
from weir.storage.interface import ObjectStore
from weir.write.lease.clock import Clock

__all__ = ["MAX_UNCERTAIN_SECONDS", "AppendCheck"]

MAX_UNCERTAIN_SECONDS = 300.0
"""How long after its next position was certainly free a writer may trust that it still was."""


class AppendCheck:
    """Knows since when the next position of a writer was certainly free.

    Made before the shard is claimed, and asked before and after every append.

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

    def before(self, position: int, *, epoch: int, in_doubt: bool) -> None:
        """Refuse an append that another writer has overtaken, where the log may not show it any more.

        Asks nothing of the store if the position was certainly free a short time ago.

        Parameters
        ----------
        position : int
            Where the append is to go.
        epoch : int
            The epoch of the writer.
        in_doubt : bool
            Whether an earlier append of the same writer may stand there.

        Raises
        ------
        FencedError
            If another writer has claimed the shard. Nothing is to be appended.
        StorageError
            If the manifest cannot be read.
        """
        self._began = self._clock.uptime()
        if not self._is_uncertain(in_doubt):
            return
        latest = read_latest_manifest(self._store, self._shard_id)
        if latest is not None and latest.writer_epoch > epoch:
            raise FencedError(
                f"shard {self._shard_id} is claimed with epoch {latest.writer_epoch}; "
                f"this writer has epoch {epoch}",
                where=self._wal.where(position),
                hint="This write was not accepted; open a new writer to go on",
            )
        # Whoever writes to the log of a shard has raised the epoch before.
        self._free_at = self._began

    def after(self, position: int, *, in_doubt: bool) -> None:
        """Accept an append that went through, unless its position had been collected.

        Asks nothing of the store if the append did not take long.

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
        if self._is_uncertain(in_doubt):
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

    def _is_uncertain(self, in_doubt: bool) -> bool:
        return in_doubt or self._clock.uptime() - self._free_at > MAX_UNCERTAIN_SECONDS

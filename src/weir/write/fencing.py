"""Whether a writer may still append: its lease, its epoch, and its append position (invariant I2).

Three mechanisms keep two writers of a shard apart, each covering a gap of the others:

- The *lease* says, without asking the store, that a writer has to stop before it has gone through an append.
- The *fence entry* of a later claimer is at the next position, so the append collides with it, even if the
  writer's clock is wrong.
- The *manifest* says who has the highest epoch, when the log may no longer show it:

A put-if-absent that succeeds at a log position shows that the position is empty, not that it always was. A
writer that slept for long may find its next position free because the fence entry there, and everything
around it, was covered by generations, merged and collected. An entry written there is never read.

While a writer is awake this cannot happen: the first entry of every epoch, which is at the next position of a
fenced writer, is kept for far longer than :data:`MAX_UNCERTAIN_SECONDS`. So an append that returned soon
after the position was known to be free is valid. A writer that has not written for longer, or whose last
append may have succeeded although its answer was lost, reads the newest manifest before it appends: while
that has the writer's own epoch, no other writer has written to the log. A fenced writer thus learns it before
it writes anything.

It may still fall asleep between that and the append. So after an append that took too long, or was in doubt,
the manifest is read again: only positions that it covers are collected, and coverage is permanent.
:mod:`weir.maintenance.garbage.policy` has the whole argument.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from weir.errors import FencedError, StorageError, WeirError
from weir.format.wal_header import WalEntryHeader
from weir.log.manifest_store import read_latest_manifest
from weir.log.wal import Wal
from weir.storage.interface import ObjectStore
from weir.write.lease.clock import Clock
from weir.write.lease.heartbeat import Heartbeat
from weir.write.lease.lease import ShardLease, release_quietly

__all__ = ["MAX_UNCERTAIN_SECONDS", "AppendCheck", "Fence", "let_go_of"]

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
        self.clock = clock
        self._free_at = clock.uptime()
        self._began = self._free_at

    def before(self, position: int, *, epoch: int, in_doubt: bool) -> None:
        """Refuse an append that another writer has overtaken, where the log may not show it any more.

        Asks nothing of the store if the position was certainly free a short time ago.

        Parameters
        ----------
        position : int
            The position of the append.
        epoch : int
            The epoch of the writer.
        in_doubt : bool
            Whether an earlier append of the same writer may be there.

        Raises
        ------
        FencedError
            If another writer has claimed the shard. Nothing must be appended.
        StorageError
            If the manifest cannot be read.
        """
        self._began = self.clock.uptime()
        if not self._is_uncertain(in_doubt, self._began):
            return
        latest = read_latest_manifest(self._store, self._shard_id)
        if latest is not None and latest.writer_epoch > epoch:
            raise FencedError(
                f"shard {self._shard_id} is claimed with epoch {latest.writer_epoch}; "
                f"this writer has epoch {epoch}",
                where=self._wal.where(position),
                hint="This write was not accepted; open a new writer to continue",
            )
        # Every writer raises the epoch before it writes to the log of a shard.
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
            If the manifest cannot be read; the outcome is then unknown.
        """
        if self._is_uncertain(in_doubt, self.clock.uptime()):
            latest = read_latest_manifest(self._store, self._shard_id)
            if latest is not None and latest.replay_after_wal_entry_position >= position:
                raise FencedError(
                    f"shard {self._shard_id} is claimed with epoch {latest.writer_epoch}, and its log is "
                    f"covered up to position {latest.replay_after_wal_entry_position}",
                    where=self._wal.where(position),
                    hint="Open a new writer to continue",
                )
        # The next position was free when this one was: no writer appends beyond a free position.
        self._free_at = self._began

    def _is_uncertain(self, in_doubt: bool, uptime: float) -> bool:
        return in_doubt or uptime - self._free_at > MAX_UNCERTAIN_SECONDS


class Fence:
    """Lets the appends of one writer through while the shard is its own, and stops it for good after that.

    Parameters
    ----------
    shard_id : UUID
        The shard.
    epoch : int
        The epoch of the writer.
    lease : ShardLease
        Its lease.
    heartbeat : Heartbeat or None
        Renews the lease.
    appends : AppendCheck
        Knows since when the next position was certainly free.
    wal : Wal
        The log.
    stop : callable
        Has the writer take no more rows; called when it is found to be fenced.
    """

    def __init__(
        self,
        shard_id: UUID,
        epoch: int,
        lease: ShardLease,
        heartbeat: Heartbeat | None,
        appends: AppendCheck,
        wal: Wal,
        stop: Callable[[WeirError], None],
    ) -> None:
        self._shard_id = shard_id
        self._epoch = epoch
        self._lease = lease
        self._heartbeat = heartbeat
        self._appends = appends
        self._clock = appends.clock
        self._wal = wal
        self._stop = stop

    def before_append(self, position: int, *, in_doubt: bool) -> None:
        """Refuse an append if the shard belongs, or may belong, to another writer.

        Parameters
        ----------
        position : int
            The position of the append.
        in_doubt : bool
            Whether an earlier append of this writer may be there.

        Raises
        ------
        FencedError
            If the lease is over, or another writer has claimed the shard. Nothing must be appended.
        StorageError
            If the manifest had to be asked, and cannot be read.
        """
        try:
            if self._clock.uptime() >= self._lease.certain_until:
                self._lease.check_to_append()
            self._appends.before(position, epoch=self._epoch, in_doubt=in_doubt)
        except FencedError as error:
            raise self.fenced(error) from None

    def after_append(self, position: int, *, in_doubt: bool) -> None:
        """Accept a successful append, unless it is unknown whether it takes effect.

        Raises
        ------
        StorageError
            If it went where the log had been collected, or that cannot be ruled out.
        """
        try:
            self._appends.after(position, in_doubt=in_doubt)
        except FencedError as error:
            # The new writer may have found these rows in time, and replayed them.
            raise StorageError(
                "rows were appended so late that it is unknown whether they take effect: "
                f"{self.fenced(error).message}",
                where=self._wal.where(position),
                hint="Open a new writer and write them again, which is safe",
            ) from error

    def met(self, entry: WalEntryHeader, position: int) -> FencedError:
        """Stop, because another writer's entry is at our next position; return the error."""
        if entry.writer_epoch > self._epoch:
            met = f"shard {self._shard_id} is claimed with epoch {entry.writer_epoch}"
        else:
            met = f"shard {self._shard_id} has an entry of another history, with epoch {entry.writer_epoch}"
        return self.fenced(
            FencedError(
                f"{met}; this writer has epoch {self._epoch}",
                where=self._wal.where(position),
                hint="This write was not accepted; open a new writer to continue",
            )
        )

    def fenced(self, error: FencedError) -> FencedError:
        """Stop permanently: another writer writes the shard, or may by now."""
        self._stop(error)
        self.let_go()
        return error

    def let_go(self) -> None:
        """Release the lease, and have it renewed no more."""
        let_go_of(self._lease, self._heartbeat)


def let_go_of(lease: ShardLease, heartbeat: Heartbeat | None) -> None:
    """Release a lease, and have it renewed no more."""
    if heartbeat is not None:
        heartbeat.forget(lease)
    # If a writer without a lease has fenced us, our lease would block others needlessly.
    release_quietly(lease)

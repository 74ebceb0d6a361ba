"""The shards that this process writes: one writer each, shared by all its table writers.

Running a notebook cell again, or opening a table twice, gives two writers of one table in one process. They
do not compete: a shard that one of them has claimed takes the rows of the other too, in order of arrival. It
is released when its last user is closed or garbage-collected.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable
from contextlib import suppress
from uuid import UUID

from weir.engine.context import EngineContext
from weir.engine.living import Living
from weir.errors import LeaseHeldError, WriterClosedError
from weir.write.lease.heartbeat import Heartbeat, lease_renewals
from weir.write.shard_writer import ShardWriter

__all__ = ["HeldShard", "HeldShards"]


class HeldShard:
    """A shard that is written here. Made by :meth:`HeldShards.join`.

    Parameters
    ----------
    shard_id : UUID
        The shard.
    heartbeat : Heartbeat
        Renews its lease.

    Attributes
    ----------
    writer : ShardWriter
        Its writer.
    """

    writer: ShardWriter

    def __init__(self, shard_id: UUID, heartbeat: Heartbeat) -> None:
        self.shard_id = shard_id
        self.heartbeat = heartbeat
        # Held while the shard is claimed or closed: other threads wait for the end of it.
        self._turn = threading.Lock()
        self._users: Living[object] = Living()
        self._alone: weakref.ref[object] | None = None
        self._is_claimed = False
        self._is_over = False
        # One whose writers are dropped without being closed lets its lease run out; here it is free at once.
        self._on_collection = weakref.finalize(self, heartbeat.abandon)
        self._on_collection.atexit = False

    def join(self, user: object, claim: Callable[[Heartbeat], ShardWriter], *, alone: bool) -> bool:
        """Use the shard from now on, claiming it if necessary; return False if it was closed.

        Raises
        ------
        LeaseHeldError
            If another writer of this process uses it, and one of both needs it exclusively.
        """
        with self._turn:
            if self._is_over:
                return False
            if not self._is_claimed:
                try:
                    self.writer = claim(self.heartbeat)
                except BaseException:
                    self._end()
                    raise
                self._is_claimed = True
            elif user not in self._users and not self.writer.holds_its_shard:
                # Fenced, closed, or paused: the next user claims it again, and finds what others left.
                self._is_over = True
                return False
            self._refuse_others(user, alone=alone)
            self._users.add(user)
            if alone:
                self._alone = weakref.ref(user)
            return True

    def keep_alone(self, user: object) -> None:
        """Use the shard exclusively from now on.

        Raises
        ------
        LeaseHeldError
            If somebody does.
        """
        with self._turn:
            self._refuse_others(user, alone=True)
            self._alone = weakref.ref(user)

    def _refuse_others(self, user: object, *, alone: bool) -> None:
        others = [one for one in self._users.all() if one is not user]
        sole = None if self._alone is None else self._alone()
        if others and (alone or sole in others):
            raise LeaseHeldError(
                f"another writer of this process writes shard {self.shard_id}"
                + (" exclusively" if sole in others else ""),
                where=self.writer.where,
                hint="Close that writer, or wait until it is closed",
            )

    @property
    def writer_at_work(self) -> ShardWriter | None:
        """Its writer, while the shard is claimed and neither released nor lost."""
        with self._turn:
            works = self._is_claimed and not self._is_over and self.writer.holds_its_shard
            return self.writer if works else None

    def is_shared_by(self, user: object) -> bool:
        """Whether the shard has other users."""
        return any(one is not user for one in self._users.all())

    def close(self, user: object, *, flush: bool) -> None:
        """Use it no more; the last one closes its writer. Idempotent.

        Raises
        ------
        WeirError
            If the flush failed. The rows are durable in the log all the same.
        """
        if self._leave(user, lambda: self.writer.close(flush=flush)):
            return
        # Rows written through one of its writers are flushed when that one is closed, or by the last one if
        # that is closed by now.
        with suppress(WriterClosedError):
            self.writer.write_queued()
            if flush:
                self.writer.flush()

    def abandon(self, user: object) -> None:
        """Stop using it, without a flush; the last user releases it."""
        self._leave(user, self.writer.abandon)

    def _leave(self, user: object, end: Callable[[], None]) -> bool:
        """Take a user off, and end the writer if it was the last; False if others use the shard still."""
        with self._turn:
            if user not in self._users:
                return True
            self._users.discard(user)
            if self._users.all():
                return False
            try:
                end()
            finally:
                self._end()
            return True

    def _end(self) -> None:
        self._is_over = True
        self._on_collection.detach()
        self.heartbeat.stop()


class HeldShards:
    """The shards that tables of one engine are written through. Safe to use from many threads."""

    def __init__(self) -> None:
        self._shards: weakref.WeakValueDictionary[tuple[Hashable, UUID], HeldShard] = (
            weakref.WeakValueDictionary()
        )
        self._lock = threading.Lock()

    def writers_of(self, table: Hashable) -> list[ShardWriter]:
        """Return the writers of a table's shards that are written here, by whatever table writer."""
        with self._lock:
            held = [one for (of_table, _), one in self._shards.items() if of_table == table]
        return [writer for one in held if (writer := one.writer_at_work) is not None]

    def join(
        self,
        table: Hashable,
        shard_id: UUID,
        user: object,
        claim: Callable[[Heartbeat], ShardWriter],
        engine: EngineContext,
        *,
        takeover: bool,
        alone: bool,
    ) -> HeldShard:
        """Return a shard that is written here, claiming it if this process has not done so.

        Parameters
        ----------
        table : hashable
            Equal for writers that may share: the table, the store, and the name of leases.
        shard_id : UUID
            The shard.
        user : object
            Who uses it: the shards of one table writer.
        claim : callable
            Claims the shard, given what renews its lease.
        engine : EngineContext
            Whose threads renew it.
        takeover : bool
            Whether to claim it in any case: who has it by now is fenced, as those of other processes are.
        alone : bool
            Whether to use it exclusively in this process.

        Raises
        ------
        LeaseHeldError
            If another process holds its lease, or another writer of this process and one of both needs it
            exclusively.
        """
        place = (table, shard_id)
        skipped: HeldShard | None = None
        while True:
            with self._lock:
                held = self._shards.get(place)
                if held is None or held is skipped or takeover:
                    held = self._shards[place] = HeldShard(
                        shard_id, Heartbeat(renewals=lease_renewals(engine))
                    )
                    takeover = False
            if held.join(user, claim, alone=alone):
                return held
            skipped = held

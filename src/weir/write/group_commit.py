"""Group commit: writes that arrive while another is being written share the next WAL entry.

Lance MemWAL spec, "WAL Durability": "Multiple writes can be batched together in a single WAL flush". There is
no separate thread: one of the waiting callers becomes the leader and writes for all.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from weir.errors import StorageError
from weir.format.batch_memory import batch_bytes
from weir.format.source import Source

if TYPE_CHECKING:
    from weir.write.decision.operation import Undecided

__all__ = ["GroupCommit", "PendingWrite", "joined", "owned"]

Result = TypeVar("Result")

_LOOK_AGAIN_SECONDS = 1.0
"""Time after which another caller leads if the one woken to lead was interrupted first."""

_SMALL_BYTES = 256 * 1024
"""Batches that together have no more than this are copied into one: cheaper than to handle many."""


class PendingWrite:
    """One write on its way into the WAL.

    Parameters
    ----------
    commits : GroupCommit
        The group commit to queue it in.
    batch : RecordBatch or None
        The rows, in the schema of WAL entries; None for a write that has to be decided first.
    nbytes : int
        Bytes of its rows.
    overhead : int
        Bytes the batch takes in memory beyond its rows.
    sources : sequence of Source
        Its mark; or those of the single writes that it consists of. It is made if the shard has none of them.
    schema : Schema, optional
        The schema of the log entry it is for. Writes with different ones do not share an entry.
    undecided : Undecided, optional
        The operations of a write that depends on existing rows.

    Attributes
    ----------
    deduplicated : bool
        Whether nothing was written because the shard has the rows already, or those of one of its writes.
    answered_at : int or None
        For a repeated single write: the log position of the first one; 0 if unknown.
    """

    __slots__ = (
        "_commits",
        "answered_at",
        "batch",
        "deduplicated",
        "error",
        "held_bytes",
        "nbytes",
        "position",
        "schema",
        "sources",
        "submitted",
        "undecided",
    )

    def __init__(
        self,
        commits: GroupCommit,
        batch: pa.RecordBatch | None,
        nbytes: int,
        overhead: int = 0,
        sources: Sequence[Source] = (),
        schema: pa.Schema | None = None,
        undecided: Undecided | None = None,
    ) -> None:
        self._commits = commits
        self.batch = batch
        self.schema = schema
        self.undecided = undecided
        self.sources = sources
        self.deduplicated = False
        self.answered_at: int | None = None
        self.nbytes = nbytes
        self.held_bytes = nbytes + overhead
        self.submitted = time.monotonic()
        self.position: int | None = None
        self.error: BaseException | None = None

    @property
    def rows(self) -> int:
        """Rows that it has written, tombstones included, once it is settled."""
        if self.undecided is not None:
            return self.undecided.rows_done
        return 0 if self.batch is None else self.batch.num_rows

    @property
    def is_alone(self) -> bool:
        """Whether it has an entry to itself.

        As do changes by filter, which are decided against everything in the log by then.
        """
        return self.undecided is not None and self.undecided.since is not None

    @property
    def settled(self) -> bool:
        """Whether the write is durable or has failed."""
        return self.position is not None or self.error is not None

    def enqueue(self) -> None:
        """Queue it, its bytes being admitted. It goes out when its caller, or another, asks for a result."""
        self._commits.enqueue(self)

    def result(self) -> int:
        """Wait until the write is durable (invariant I1), and return its position; raise what made it fail.

        Raises
        ------
        FencedError
            If another writer has claimed the shard. Nothing of it was written.
        BackpressureError
            If flushes did not make room in time. Nothing of it was written.
        StorageError
            If the store failed. The rows may or may not be durable; writing them again is safe.
        """
        self._commits.settle(self)
        if self.error is not None:
            raise self.error
        assert self.position is not None
        return self.position


class GroupCommit:
    """Gathers pending writes into groups and has each group written by one of its callers.

    Parameters
    ----------
    write : callable
        Writes a group as one WAL entry and returns its position. Never called concurrently.
    max_bytes : int
        Bytes after which a group takes no more writes.
    max_delay : float
        Seconds the first write of a group waits for others.
    """

    def __init__(
        self, write: Callable[[Sequence[PendingWrite]], int], *, max_bytes: int, max_delay: float
    ) -> None:
        self._write = write
        self._max_bytes = max_bytes
        self._max_delay = max_delay
        # Entered by itself: entering the condition runs Python code, where an interruption would leave
        # the lock locked for good.
        self._lock = threading.RLock()
        # Each thread waits separately, in order of arrival: a written group wakes only its own callers and
        # the next leader, instead of everyone.
        self._waiting: dict[threading.Condition, Callable[[], bool]] = {}
        # The leader waits here for its group to fill.
        self._filled = threading.Condition(self._lock)
        self._leader: object | None = None
        self._queue: deque[PendingWrite] = deque()
        self._queued_bytes = 0

    def enqueue(self, pending: PendingWrite) -> None:
        """Queue a write. It is written when a caller waits for it or for another one."""
        with self._lock:
            pending.submitted = time.monotonic()
            self._queue.append(pending)
            self._queued_bytes += pending.nbytes
            if self._queued_bytes >= self._max_bytes:
                self._filled.notify()

    def settle(self, pending: PendingWrite) -> None:
        """Wait until the write is durable, or has failed."""
        while not pending.settled:
            self._lead_or_wait(lambda: pending.settled)

    def drain(self) -> None:
        """Write everything queued so far, and wait for a group that is being written."""
        while self._queue or self._leader is not None:
            self._lead_or_wait(lambda: not self._queue and self._leader is None)

    def alone(self, action: Callable[[], Result]) -> Result:
        """Run something between two groups, and return its result."""
        lead = object()
        try:
            with self._lock:
                self._wait_for_lead(lambda: False)
                self._leader = lead
            return action()
        finally:
            # Inlined, here and below: an interruption at the start of a function would leave no leader.
            if self._leader is lead:
                self._leader = None
                with self._lock:
                    self._wake()

    def alone_if_idle(self, action: Callable[[], object]) -> None:
        """Do something between two groups, unless a group is being written."""
        lead = object()
        try:
            with self._lock:
                if self._leader is not None:
                    return
                self._leader = lead
            action()
        finally:
            if self._leader is lead:
                self._leader = None
                with self._lock:
                    self._wake()

    def _lead_or_wait(self, done: Callable[[], bool]) -> None:
        """Write the next group if no other thread is writing; otherwise wait for it."""
        group: list[PendingWrite] = []
        lead = object()
        try:
            with self._lock:
                self._wait_for_lead(done)
                if done() or not self._queue:
                    return
                self._leader = lead
            self._gather(group)
            position = self._write(group)
            for pending in group:
                pending.position = position
        except Exception as error:
            for pending in group:
                pending.error = error
        except BaseException as interruption:
            # It is meant for the leader; the others need to know its effect on them.
            for pending in group:
                pending.error = _interrupted(interruption)
            raise
        finally:
            if self._leader is lead:
                self._leader = None
                with self._lock:
                    self._wake()

    def _wait_for_lead(self, done: Callable[[], bool]) -> None:
        """Wait until there is no leader, or the awaited write is done. The lock is held."""
        while self._leader is not None and not done():
            woken = threading.Condition(self._lock)
            self._waiting[woken] = done
            try:
                woken.wait(_LOOK_AGAIN_SECONDS)
            finally:
                self._waiting.pop(woken, None)

    def _wake(self) -> None:
        """Wake all whose write is done, and the first of the others to lead. The lock is held."""
        somebody_leads = self._leader is not None
        for woken, done in self._waiting.items():
            if done():
                woken.notify()
            elif not somebody_leads:
                woken.notify()
                somebody_leads = True

    def _gather(self, group: list[PendingWrite]) -> None:
        """Move the next writes from the queue to ``group``."""
        with self._lock:
            if self._max_delay:
                deadline = self._queue[0].submitted + self._max_delay
                while self._queued_bytes < self._max_bytes:
                    remaining = deadline - time.monotonic()
                    if remaining <= 0 or not self._filled.wait(remaining):
                        break
            size = 0
            while self._queue and (not group or self._may_join(group, size)):
                # In the group before it leaves the queue: an interruption in between loses no write.
                group.append(self._queue[0])
                self._queue.popleft()
                size += group[-1].nbytes
            self._queued_bytes -= size

    def _may_join(self, group: list[PendingWrite], size: int) -> bool:
        following = self._queue[0]
        if group[0].schema is not following.schema:
            return False
        if group[0].is_alone or following.is_alone:
            return False
        return size + following.nbytes <= self._max_bytes


def owned(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
    """Return ``batch``, copied if it is a small part of something larger that it would keep alive.

    Returns
    -------
    RecordBatch, int
        The rows, and about how many bytes they take.
    """
    nbytes = batch_bytes(batch)
    if batch.get_total_buffer_size() <= 2 * nbytes:
        return batch, nbytes
    return pa.concat_batches([batch]), nbytes


def joined(batches: Sequence[pa.RecordBatch], nbytes: int) -> tuple[pa.RecordBatch, ...]:
    """Return the same rows as one batch if there are many batches and little in them.

    Parameters
    ----------
    batches : sequence of RecordBatch
        The rows.
    nbytes : int
        About how many bytes they take together.
    """
    if len(batches) < 2 or nbytes > _SMALL_BYTES:
        return tuple(batches)
    return (pa.concat_batches(batches),)


def _interrupted(interruption: BaseException) -> StorageError:
    return StorageError(
        f"the thread that wrote for this one was interrupted ({type(interruption).__name__})",
        hint="The rows may or may not be durable; writing them again is safe",
    )

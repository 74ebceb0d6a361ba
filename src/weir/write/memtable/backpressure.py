"""Back-pressure: makes writes wait, so that memory and the number of generations stay bounded.

Two limits hold across calls: bytes that are not flushed, in all shards of a writer, and generations of a
shard that are not merged. Below three quarters of a limit nothing happens. From there on every write is
held up a little, longer the nearer the limit is, so that writers get slower before they stand still. At
the limit they wait, and after the timeout they get an error.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from weir.engine.context import EngineContext
from weir.engine.living import Living
from weir.engine.logs import get_logger
from weir.errors import BackpressureError, WeirError
from weir.format.shard_manifest import ShardManifest

__all__ = ["MergeBacklog", "UnflushedBytes", "WithMemTables", "delay_seconds", "unflushed_of"]

_log = get_logger(__name__)

_SLOW_FROM = 0.75
_MAX_DELAY_SECONDS = 0.1
_FLUSH_FROM = 0.5
_LOOK_AGAIN_SECONDS = 0.2
_REFRESH_SECONDS = 1.0


def delay_seconds(used: float, limit: float) -> float:
    """Return how many seconds a write is held up when ``used`` of ``limit`` is taken.

    Examples
    --------
    >>> [round(delay_seconds(used, 100), 4) for used in (0, 75, 80, 90, 100, 200)]
    [0.0, 0.0, 0.004, 0.036, 0.1, 0.1]
    """
    near = (used / limit - _SLOW_FROM) / (1.0 - _SLOW_FROM)
    return _MAX_DELAY_SECONDS * min(max(near, 0.0), 1.0) ** 2


class WithMemTables(Protocol):
    """A shard's writer, as its share of the memory is seen from here."""

    @property
    def active_bytes(self) -> int:
        """Bytes that its active MemTable takes in memory."""
        ...

    @property
    def flush_error(self) -> BaseException | None:
        """What the last flush died of, if it did."""
        ...

    def flush_early(self) -> None:
        """Flush the active MemTable in the background, unless as many as may wait already do."""
        ...

    def retry_flush(self) -> None:
        """Retry a failed flush, if it is time."""
        ...


@dataclass(slots=True)
class _Counts:
    """Bytes of rows that are not flushed."""

    queued: int = 0
    active: int = 0
    leaving: int = 0


class UnflushedBytes:
    """Counts the memory of rows that are not flushed, and makes writes wait for room.

    The bytes of a write are *queued* when it is admitted, *active* when it is in a MemTable, *leaving*
    when that MemTable waits for its flush, and gone when the flush is done. From half of the limit in
    active MemTables the largest of them is flushed, however small it is. Writers that are dropped without
    being closed are not kept by it, and count no more in the larger limit.

    Parameters
    ----------
    limit : int
        Bytes.
    timeout : float
        Seconds a write waits before it gets an error.
    where : str
        The table, for errors.
    within : UnflushedBytes, optional
        A larger limit, of several writers, that everything counts against too.
    option : str
        The name of the limit, for errors.

    Attributes
    ----------
    peak : int
        The most bytes that have been counted at any time.
    """

    def __init__(
        self,
        limit: int,
        *,
        timeout: float,
        where: str,
        within: UnflushedBytes | None = None,
        option: str = "max_unflushed_bytes",
    ) -> None:
        self._limit = limit
        self._timeout = timeout
        self._where = where
        self._within = within
        self._option = option
        # Entered by itself: see GroupCommit.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._counts = _Counts()
        self._turns: deque[object] = deque()
        self._held_up = 0
        self._members: Living[WithMemTables] = Living()
        # What those have left that were collected; they are, wherever a thread is just then, without a lock.
        self._collected: deque[_Counts] = deque()
        if within is not None:
            weakref.finalize(self, within._collected.append, self._counts).atexit = False
        self.peak = 0

    @property
    def used(self) -> int:
        """Bytes that are not flushed."""
        if self._collected:
            self._take_back()
        counts = self._counts
        return counts.queued + counts.active + counts.leaving

    def _take_back(self) -> None:
        """Count what was collected no more."""
        with self._lock:
            gone = _Counts()
            while self._collected:
                left = self._collected.popleft()
                gone.queued += left.queued
                gone.active += left.active
                gone.leaving += left.leaving
            # At once: for each it would be looked again for what is left, one call deeper every time.
            self._move(queued=-gone.queued, active=-gone.active, leaving=-gone.leaving)

    @property
    def urgency(self) -> float:
        """How urgent flushes are: 0 with a quarter of the limit taken, 1 where writes are slowed down."""
        own = min(max((self.used / self._limit - 0.25) / (_SLOW_FROM - 0.25), 0.0), 1.0)
        return own if self._within is None else max(own, self._within.urgency)

    def add(self, member: WithMemTables, replayed: int) -> None:
        """Count a shard in, with the bytes that its claim has replayed."""
        with self._lock:
            self._members.add(member)
            self._counts.active += replayed
        self._relieve()
        if self._within is not None:
            self._within.add(member, replayed)

    def remove(self, member: WithMemTables) -> None:
        """Count a shard out. Its bytes are dropped separately."""
        self._members.discard(member)
        if self._within is not None:
            self._within.remove(member)

    def admit(self, nbytes: int, timeout: float | None = None) -> None:
        """Queue ``nbytes``, after waiting for room.

        Writes that have to wait are admitted in the order they came. One that is larger than the
        limit is admitted when there is nothing else.

        Parameters
        ----------
        nbytes : int
            Bytes.
        timeout : float, optional
            Seconds to wait at most. Default: that of the limit.

        Raises
        ------
        BackpressureError
            If there was no room within the timeout. Nothing was queued.
        """
        timeout = self._timeout if timeout is None else timeout
        self._admit(nbytes, timeout)
        if self._within is not None:
            try:
                self._within.admit(nbytes, timeout)
            except BaseException:
                self._move_here(queued=-nbytes)
                raise

    def _admit(self, nbytes: int, timeout: float) -> None:
        if self._queue_at_once(nbytes):
            return
        began = time.monotonic()
        turn = object()
        try:
            with self._lock:
                self._hold_up(min(delay_seconds(self.used, self._limit), timeout))
                self._turns.append(turn)
            while not self._queue(turn, nbytes):
                # Also by a write that waits no longer: the next one should find room.
                self._relieve(nbytes, urgent=True)
                remaining = began + timeout - time.monotonic()
                if remaining <= 0:
                    raise self._no_room(timeout)
                with self._lock:
                    if not self._may_queue(turn, nbytes):
                        self._changed.wait(min(remaining, _LOOK_AGAIN_SECONDS))
        finally:
            with self._lock:
                if turn in self._turns:
                    self._turns.remove(turn)
                if self._turns:
                    self._changed.notify_all()
        self._relieve()

    def written(self, queued: int, active: int) -> None:
        """Note that ``queued`` bytes of admitted writes take ``active`` bytes in a MemTable now."""
        self._move(queued=-queued, active=active)

    def failed(self, queued: int) -> None:
        """Note that admitted writes will not reach a MemTable."""
        self._move(queued=-queued)

    def frozen(self, nbytes: int) -> None:
        """Note that a MemTable waits for its flush."""
        self._move(active=-nbytes, leaving=nbytes)

    def flushed(self, nbytes: int) -> None:
        """Note that a MemTable that waited for its flush is gone."""
        self._move(leaving=-nbytes)

    def dropped(self, active: int) -> None:
        """Note that an active MemTable is gone."""
        self._move(active=-active)

    def _move(self, *, queued: int = 0, active: int = 0, leaving: int = 0) -> None:
        self._move_here(queued=queued, active=active, leaving=leaving)
        if self._within is not None:
            self._within._move(queued=queued, active=active, leaving=leaving)

    def _move_here(self, *, queued: int = 0, active: int = 0, leaving: int = 0) -> None:
        with self._lock:
            self._counts.queued += queued
            self._counts.active += active
            self._counts.leaving += leaving
            self.peak = max(self.peak, self.used)
            if self._turns or self._held_up:
                self._changed.notify_all()

    def _hold_up(self, seconds: float) -> None:
        if seconds <= 0:
            return
        self._held_up += 1
        try:
            self._changed.wait_for(lambda: self.used <= _SLOW_FROM * self._limit, seconds)
        finally:
            self._held_up -= 1

    def _queue_at_once(self, nbytes: int) -> bool:
        """Queue a write if there is enough room without waiting, slowing down or flushing early."""
        with self._lock:
            used = self.used + nbytes
            if self._turns or used > _FLUSH_FROM * self._limit:
                return False
            self._counts.queued += nbytes
            self.peak = max(self.peak, used)
            return True

    def _may_queue(self, turn: object, nbytes: int) -> bool:
        return self._turns[0] is turn and (self.used == 0 or self.used + nbytes <= self._limit)

    def _queue(self, turn: object, nbytes: int) -> bool:
        with self._lock:
            if not self._may_queue(turn, nbytes):
                return False
            self._counts.queued += nbytes
            self.peak = max(self.peak, self.used)
            return True

    def _relieve(self, wanted: int = 0, *, urgent: bool = False) -> None:
        """Flush the largest active MemTable if they take too much."""
        # Called without the lock: those of shards are taken before it.
        active = self._counts.active
        too_much = active > _FLUSH_FROM * self._limit or (
            urgent and active > 0 and active + wanted > self._limit
        )
        if not too_much and not urgent:
            return
        members = self._members.all()
        if urgent:
            for member in members:
                member.retry_flush()
        if too_much and members:
            max(members, key=lambda member: member.active_bytes).flush_early()

    def _no_room(self, timeout: float) -> BackpressureError:
        errors = (member.flush_error for member in self._members.all())
        cause = next((error for error in errors if error is not None), None)
        failure = BackpressureError(
            f"{self.used:,} bytes of rows waited to be flushed for {timeout:g} s; "
            f"{self._option} is {self._limit:,}",
            where=self._where,
            hint=f"Write again later; the last flush said: {cause or 'nothing'}",
        )
        failure.__cause__ = cause
        return failure


def unflushed_of(engine: EngineContext) -> UnflushedBytes:
    """Return what counts the unflushed rows of all writers of an engine."""

    def make() -> UnflushedBytes:
        made = UnflushedBytes(
            engine.unflushed_bytes, timeout=60.0, where="the engine", option="unflushed_bytes of the engine"
        )
        engine.metrics.unflushed_bytes.observe(lambda: made.used)
        return made

    return engine.part(UnflushedBytes, make)


class MergeBacklog:
    """Counts the generations of each shard that wait for a merge, and makes writes wait for one.

    Parameters
    ----------
    limit : int
        Generations of one shard.
    timeout : float
        Seconds a write waits before it gets an error.
    where : str
        The table, for errors.
    merge_progress : callable
        Reads from the base table how far merges have got; returns what gives the newest merged
        generation of a shard. Asked only when a shard is near the limit, and at most every second.
    """

    def __init__(
        self,
        limit: int,
        *,
        timeout: float,
        where: str,
        merge_progress: Callable[[], Callable[[UUID], int]],
    ) -> None:
        self._limit = limit
        self._timeout = timeout
        self._where = where
        self._merge_progress = merge_progress
        # Entered by itself: see GroupCommit.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._listed: dict[UUID, tuple[int, ...]] = {}
        self._waiting: dict[UUID, int] = {}
        self._merged: Callable[[UUID], int] = _nothing_merged
        self._refreshed_at = float("-inf")

    def waiting(self, shard_id: UUID) -> int:
        """Return how many generations of a shard wait for a merge, as far as is known."""
        return self._waiting.get(shard_id, 0)

    def listed(self, manifest: ShardManifest) -> None:
        """Note what generations a shard's newest manifest lists."""
        shard_id = manifest.shard_id
        with self._lock:
            self._listed[shard_id] = tuple(one.generation for one in manifest.flushed_generations)
            self._count(shard_id)
        if self._is_near(shard_id):
            self._refresh(_REFRESH_SECONDS)

    def admit(self, shard_id: UUID) -> None:
        """Wait until a shard may take more rows.

        Raises
        ------
        BackpressureError
            If no merge came within the timeout.
        """
        if not self._is_near(shard_id):
            return
        began = time.monotonic()
        self._refresh(_REFRESH_SECONDS)
        with self._lock:
            delay = delay_seconds(self.waiting(shard_id), self._limit)
            self._changed.wait_for(lambda: not self._is_near(shard_id), min(delay, self._timeout))
        while self.waiting(shard_id) >= self._limit:
            remaining = began + self._timeout - time.monotonic()
            self._refresh(_LOOK_AGAIN_SECONDS if remaining > 0 else 0.0)
            if (waiting := self.waiting(shard_id)) < self._limit:
                return
            if remaining <= 0:
                raise BackpressureError(
                    f"{waiting:,} generations of shard {shard_id} waited for a merge for "
                    f"{self._timeout:g} s; max_unmerged_generations is {self._limit:,}",
                    where=self._where,
                    hint="Run table.maintenance.merge(), in this or any other process, and write again",
                )
            with self._lock:
                self._changed.wait(min(remaining, _LOOK_AGAIN_SECONDS))

    def _is_near(self, shard_id: UUID) -> bool:
        return self.waiting(shard_id) > _SLOW_FROM * self._limit

    def _count(self, shard_id: UUID) -> None:
        merged = self._merged(shard_id)
        self._waiting[shard_id] = sum(one > merged for one in self._listed[shard_id])

    def _refresh(self, at_most_every: float) -> None:
        with self._lock:
            now = time.monotonic()
            if now - self._refreshed_at < at_most_every:
                return
            self._refreshed_at = now
        try:
            merged = self._merge_progress()
        except WeirError as error:
            _log.info("shard.merge_progress_not_read", where=self._where, error=str(error))
            return
        with self._lock:
            self._merged = merged
            for shard_id in self._listed:
                self._count(shard_id)
            self._changed.notify_all()


def _nothing_merged(shard_id: UUID) -> int:
    return 0

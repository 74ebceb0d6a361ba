"""Renewal of leases: those of all writers of an engine, on shared threads."""

from __future__ import annotations

import heapq
import itertools
import os
import threading
from collections import Counter, deque
from dataclasses import dataclass

from weir.engine.context import EngineContext
from weir.engine.logs import get_logger
from weir.engine.metrics import Metrics
from weir.errors import FencedError
from weir.write.lease.clock import SYSTEM_CLOCK, Clock
from weir.write.lease.lease import ShardLease

__all__ = ["Heartbeat", "LeaseRenewals", "lease_renewals"]

_log = get_logger(__name__)

_RENEWALS_PER_TTL = 3
_IDLE_RENEWALS_PER_TTL = 2
_RETRIES_PER_TTL = 15
_LATE_PER_TTL = 30
"""How late a renewal may be, as a share of the TTL, before another thread takes it on."""
_LOOKS_PER_TTL = 60
"""What falls due within such a share of the TTL is renewed one after the other, by one look at the clock."""
_MAX_THREADS = 16
_MAX_WAITING = 2


class Heartbeat:
    """Renews the leases of one writer until it is stopped.

    A lease is renewed when a third of its time has passed; when half of it has, if nothing was written
    between the last two renewals. If that fails it is tried again every fifteenth of its time, so some ten or
    seven times before the lease runs out and stops its writer.

    Parameters
    ----------
    clock : Clock
        Tells when a renewal is due. Default: the clocks of this machine.
    renewals : LeaseRenewals, optional
        Renews them. Default: separate threads, which end with it.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK, *, renewals: LeaseRenewals | None = None) -> None:
        self._renewals = renewals or LeaseRenewals(clock)
        self._leases: set[ShardLease] = set()

    def watch(self, lease: ShardLease) -> None:
        """Renew ``lease`` from now on, until it is over."""
        self._leases.add(lease)
        self._renewals.watch(lease)

    def forget(self, lease: ShardLease) -> None:
        """Renew ``lease`` no more."""
        self._leases.discard(lease)
        self._renewals.forget([lease])

    def stop(self) -> None:
        """Renew nothing any more. Does not wait for a renewal that is under way."""
        self._renewals.forget(list(self._leases))
        self._leases.clear()

    def abandon(self) -> None:
        """Stop before long, as :meth:`stop` does, without a lock: for when a writer is collected.

        The leases are left to run out, but to this process they are free from now on.
        """
        for lease in self._leases:
            lease.abandon()
        self._renewals.abandon(self._leases)


@dataclass(slots=True)
class _Watched:
    """When a lease is renewed next; ``number`` identifies its newest entry in the queue."""

    number: int
    is_being_renewed: bool = False


class LeaseRenewals:
    """Renews leases as they fall due.

    One thread waits for the next that is due, and renews one after the other. Another takes on what is late
    by a thirtieth of its time, and leaves a further one to wait, up to 16: so a store that is slow to answer
    for one lease does not use up the time of others, and where it answers soon, no thread waits for another.
    Where there is nothing to renew there is no thread. The threads hold on to nothing but leases: a writer
    that is dropped without being closed can be collected, and its leases run out.

    Parameters
    ----------
    clock : Clock
        Tells when a renewal is due. Default: the clocks of this machine.
    metrics : Metrics, optional
        Counts renewed, lost and late leases.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK, metrics: Metrics | None = None) -> None:
        self._clock = clock
        self._metrics = metrics
        # Entered by itself: see GroupCommit.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._numbers = itertools.count()
        self._watched: dict[ShardLease, _Watched] = {}
        self._due: list[tuple[float, int, ShardLease]] = []
        self._ttls: Counter[float] = Counter()
        self._abandoned: deque[set[ShardLease]] = deque()
        self._threads = 0
        self._renewing = 0
        # Whether a thread waits for the next that is due; others wait for what is late.
        self._is_expected = False
        self._process_id = os.getpid()
        if metrics is not None:
            metrics.leases.observe(lambda: len(self._watched))

    def watch(self, lease: ShardLease) -> None:
        """Renew ``lease`` from now on, until it is over."""
        with self._lock:
            if self._process_id != os.getpid():
                self._begin_anew()
            if lease not in self._watched:
                self._ttls[lease.ttl] += 1
            self._queue(lease, self._clock.uptime() + lease.ttl / _RENEWALS_PER_TTL)
            self._keep_one_waiting()
            if self._due[0][2] is lease:
                self._changed.notify_all()

    def forget(self, leases: list[ShardLease]) -> None:
        """Renew leases no more."""
        with self._lock:
            for lease in leases:
                self._forget(lease)
            if not self._watched:
                self._changed.notify_all()

    def abandon(self, leases: set[ShardLease]) -> None:
        """Renew leases no more from some moment on; takes no lock."""
        self._abandoned.append(leases)

    def _begin_anew(self) -> None:
        """Forget the leases and the threads of the process that this one was forked from."""
        self._watched.clear()
        self._due.clear()
        self._ttls.clear()
        self._threads = self._renewing = 0
        self._is_expected = False
        self._process_id = os.getpid()

    def _queue(self, lease: ShardLease, due: float) -> None:
        watched = self._watched[lease] = _Watched(next(self._numbers))
        heapq.heappush(self._due, (due, watched.number, lease))

    def _forget(self, lease: ShardLease) -> None:
        if self._watched.pop(lease, None) is None:
            return
        self._ttls[lease.ttl] -= 1
        if not self._ttls[lease.ttl]:
            del self._ttls[lease.ttl]

    def _keep_one_waiting(self) -> None:
        if self._threads == self._renewing < _MAX_THREADS:
            threading.Thread(target=self._run, name="weir-heartbeat", daemon=True).start()
            self._threads += 1

    def _run(self) -> None:
        while (lease := self._next()) is not None:
            began = self._clock.uptime()
            error: Exception | None = None
            try:
                lease.renew()
            except Exception as failure:
                # Whatever it was, the next attempt may go better; if none does, the lease runs out
                # and stops its writer.
                error = failure
            self._settle(lease, began, error)

    def _next(self) -> ShardLease | None:
        """Wait until a renewal is due, and take it on; None to end the thread."""
        with self._lock:
            while True:
                while self._abandoned:
                    for lease in self._abandoned.popleft():
                        self._forget(lease)
                self._drop_forgotten()
                if not self._watched or self._threads - self._renewing > _MAX_WAITING:
                    # Nothing to renew, or others wait for it already.
                    self._threads -= 1
                    return None
                # Waiting does not count the time that a laptop sleeps; looking again does.
                shortest = min(self._ttls)
                wait = shortest / _RETRIES_PER_TTL
                is_first = not self._renewing and not self._is_expected
                if self._due:
                    due, _, lease = self._due[0]
                    if not is_first:
                        due += lease.ttl / _LATE_PER_TTL
                    remaining = due - self._clock.uptime()
                    if remaining <= 0:
                        return self._taken_on()
                    wait = min(wait, max(remaining, shortest / _LOOKS_PER_TTL))
                if is_first:
                    self._is_expected = True
                try:
                    self._changed.wait(wait)
                finally:
                    if is_first:
                        self._is_expected = False

    def _taken_on(self) -> ShardLease:
        """Take the first lease off the queue."""
        _, _, lease = heapq.heappop(self._due)
        # Nobody else's until it is settled.
        self._watched[lease].is_being_renewed = True
        self._renewing += 1
        if len(self._watched) > 1:
            self._keep_one_waiting()
        return lease

    def _drop_forgotten(self) -> None:
        """Remove entries from the front of the queue that are outdated or no longer watched."""
        while self._due:
            _, number, lease = self._due[0]
            watched = self._watched.get(lease)
            if watched is not None and watched.number == number:
                return
            heapq.heappop(self._due)

    def _settle(self, lease: ShardLease, began: float, error: Exception | None) -> None:
        with self._lock:
            self._renewing -= 1
            watched = self._watched.get(lease)
            if watched is None or not watched.is_being_renewed:
                # Its writer has released it meanwhile.
                return
            if isinstance(error, FencedError):
                self._forget(lease)
            else:
                parts = _RETRIES_PER_TTL
                if error is None:
                    # Nothing new is to be recorded for others, and there is time for many retries still.
                    parts = _IDLE_RENEWALS_PER_TTL if lease.is_idle else _RENEWALS_PER_TTL
                # From when it was asked for, as the lease itself: an answer may take its time.
                self._queue(lease, began + lease.ttl / parts)
        if isinstance(error, FencedError):
            if self._metrics is not None:
                self._metrics.leases_lost.add()
            _log.warning("shard.lease_lost", shard=str(lease.shard_id), epoch=lease.epoch, error=str(error))
        elif error is not None:
            if self._metrics is not None:
                self._metrics.lease_renewal_failures.add()
            _log.warning(
                "shard.lease_not_renewed", shard=str(lease.shard_id), epoch=lease.epoch, error=str(error)
            )


def lease_renewals(engine: EngineContext) -> LeaseRenewals:
    """Return what renews the leases of all writers of an engine."""
    return engine.part(LeaseRenewals, lambda: LeaseRenewals(metrics=engine.metrics))

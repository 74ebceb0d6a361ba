"""Renewing the leases of one table writer, on threads of its own."""

from __future__ import annotations

import math
import threading

from weir.engine.logs import get_logger
from weir.errors import FencedError
from weir.write.lease.clock import SYSTEM_CLOCK, Clock
from weir.write.lease.lease import ShardLease

__all__ = ["Heartbeat"]

_log = get_logger(__name__)

_RENEWALS_PER_TTL = 3
_RETRIES_PER_TTL = 15
_MAX_THREADS = 16


class Heartbeat:
    """Renews leases until it is stopped.

    A lease is renewed when a third of its time has passed. If that fails it is tried again every
    fifteenth of its time, so some ten times before the lease runs out and stops its writer.

    Each lease brings a thread along, up to 16, so that a store that is slow to answer for one does not
    use up the time of the others. The threads hold on to nothing but leases: a writer that is dropped
    without being closed can be collected, and stops the heartbeat by that.

    Parameters
    ----------
    clock : Clock
        Tells when a renewal is due. Default: the clocks of this machine.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        # Entered by itself: see GroupCommit.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._due: dict[ShardLease, float] = {}
        self._threads = 0
        self._stopped = False

    def watch(self, lease: ShardLease) -> None:
        """Renew ``lease`` from now on, until it is over."""
        with self._lock:
            self._due[lease] = self._clock.uptime() + lease.ttl / _RENEWALS_PER_TTL
            if self._threads < min(len(self._due), _MAX_THREADS) and not self._stopped:
                threading.Thread(target=self._run, name="weir-heartbeat", daemon=True).start()
                self._threads += 1
            self._changed.notify()

    def forget(self, lease: ShardLease) -> None:
        """Renew ``lease`` no more."""
        with self._lock:
            self._due.pop(lease, None)

    def stop(self) -> None:
        """Renew nothing any more. Does not wait for a renewal that is under way."""
        with self._lock:
            self._stopped = True
            self._due.clear()
            self._changed.notify_all()

    def abandon(self) -> None:
        """Stop before long, as :meth:`stop` does, without a lock: for when a writer is collected."""
        self._stopped = True

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
        """Wait until a renewal is due, and take it on; None to stop."""
        with self._lock:
            while not self._stopped:
                if not self._due:
                    self._changed.wait()
                    continue
                lease = min(self._due, key=self._due.__getitem__)
                remaining = self._due[lease] - self._clock.uptime()
                if remaining <= 0:
                    # Nobody else's until it is settled.
                    self._due[lease] = math.inf
                    return lease
                # Waiting does not count the time that a laptop sleeps; looking again does.
                self._changed.wait(min(remaining, *(one.ttl / _RETRIES_PER_TTL for one in self._due)))
        return None

    def _settle(self, lease: ShardLease, began: float, error: Exception | None) -> None:
        with self._lock:
            if lease not in self._due:
                # Its writer has let go of it meanwhile.
                return
            if isinstance(error, FencedError):
                del self._due[lease]
            else:
                parts = _RENEWALS_PER_TTL if error is None else _RETRIES_PER_TTL
                # From when it was asked for, as the lease itself: an answer may take its time.
                self._due[lease] = began + lease.ttl / parts
        if isinstance(error, FencedError):
            _log.warning("shard.lease_lost", shard=str(lease.shard_id), epoch=lease.epoch, error=str(error))
        elif error is not None:
            _log.warning(
                "shard.lease_not_renewed", shard=str(lease.shard_id), epoch=lease.epoch, error=str(error)
            )

"""Taking, renewing and releasing the lease of a shard.

A lease separates well-behaved writers: a claim respects a held lease, and so does not fence an active writer.
The epoch and its fence entry (:mod:`weir.write.claim`) separate any two writers, even with wrong clocks and
suspended processes. Both are needed: a writer checks its lease before each write, which costs no round trip,
and the append finds the fence.

Every change is a compare-and-swap of one object. Our own deadline counts on the uptime of the system from
before a renewal was sent, so it ends no later than others read, apart from differences between wall clocks,
for which they add an allowance.
"""

from __future__ import annotations

import math
import secrets
import threading
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from weir.engine.logs import get_logger
from weir.errors import (
    ConflictError,
    CorruptionError,
    FencedError,
    LeaseHeldError,
    ObjectExistsError,
    PreconditionError,
    WeirError,
)
from weir.format import layout, lease
from weir.format.lease import Lease, LeaseOwner
from weir.log.read_lease import read_lease
from weir.storage.interface import ObjectStore
from weir.write.lease.lease_terms import LeaseTerms, is_free
from weir.write.lease.released_leases import released_leases

__all__ = ["ShardLease", "release_quietly"]

_log = get_logger(__name__)

_MAX_ATTEMPTS = 64
_LOOKS_PER_TTL = 60
"""For which share of the TTL a look counts that nobody has taken a paused lease."""
_RECORDED_EVERY_SECONDS = 1.0
"""How often a brief pause records the log position."""


class ShardLease:
    """The lease of one shard, in the hands of one writer. Safe to use from many threads.

    Made by :meth:`acquire`.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    terms : LeaseTerms
        How it is taken and renewed.
    held : Lease
        The stored lease.
    version : str, optional
        Version of the stored object; None if that is not known.
    deadline : float
        Uptime at which it runs out.
    path : str, optional
        Where it is stored, if it is no shard's.

    Attributes
    ----------
    certain_until : float
        Uptime before which it is ours without a further look, as writers find out before each append. Minus
        infinity while it is paused, and once it is lost, released or found expired.
    last_position : int
        A position that the log has reached, according to the lease and its holder since. The next change of
        the stored lease records it.
    """

    def __init__(
        self,
        store: ObjectStore,
        terms: LeaseTerms,
        held: Lease,
        version: str | None,
        deadline: float,
        path: str | None = None,
    ) -> None:
        self._store = store
        self._path = path or layout.lease_path(held.shard_id)
        self._terms = terms
        self._held = held
        self._version = version
        self._deadline = self.certain_until = deadline
        self.last_position = held.last_position
        self._is_idle = False
        self._ended: FencedError | None = None
        self._is_paused = False
        self._is_brief = False
        # Uptimes: until which it counts that nobody had come during a brief pause, and of the last swap.
        self._looked_until = self._swapped_at = 0.0
        self._swapping = threading.Lock()
        # Leases that may be stored by swaps whose answers were lost.
        self._in_doubt: set[str] = set()

    @classmethod
    def acquire(
        cls,
        store: ObjectStore,
        shard_id: UUID,
        terms: LeaseTerms,
        *,
        least_epoch: int,
        path: str | None = None,
        is_new: bool = False,
    ) -> ShardLease:
        """Take the lease of a shard.

        Its epoch is at least ``least_epoch`` and above that of every holder before. Without
        contention it takes three round trips, of the first holder ever two, or one if ``is_new`` says that
        there has hardly been another. If the store fails, it is given up again, in case it was taken all
        the same.

        Raises
        ------
        LeaseHeldError
            If another writer holds it and the terms do not permit taking it over.
        CorruptionError
            If it is not what was written; a take-over replaces it.
        ConflictError
            If others kept taking it.
        """
        path = path or layout.lease_path(shard_id)
        for attempt in range(_MAX_ATTEMPTS):
            meta = None if is_new and not attempt else store.head(path)
            found = None if meta is None else _read_to_replace(store, shard_id, terms, path)
            if found is not None and not is_free(store, found, terms):
                raise _held_error(store, found, terms, path)
            epoch = max(least_epoch, 1 if found is None else found.epoch + 1)
            taken, deadline = _written(shard_id, epoch, terms, 0 if found is None else found.last_position)
            ours = cls(store, terms, taken, None, deadline, path)
            try:
                if ours._place(None if meta is None else meta.version):
                    return ours
            except (Exception, KeyboardInterrupt):
                # Whether it was written is unknown, and it will not be used.
                release_quietly(ours)
                raise
        raise ConflictError(
            f"the lease of shard {shard_id} was taken by others during {_MAX_ATTEMPTS} attempts",
            where=f"{store.uri}/{path}",
            hint="Look for several writers that take the lease over from each other",
        )

    def _place(self, expected: str | None) -> bool:
        """Store the lease in place of a version, or as the first; return whether it is stored."""
        path, data = self._path, lease.encode(self._held)
        try:
            if expected is None:
                self._store.put_if_absent(path, data)
            else:
                self._version = self._store.compare_and_swap(path, data, expected)
        except (ObjectExistsError, PreconditionError):
            # Another writer was first, or we were and the answer was lost.
            stored = _read_to_replace(self._store, self.shard_id, self._terms, path)
            return stored is not None and stored.write_id == self._held.write_id
        return True

    @property
    def shard_id(self) -> UUID:
        """The shard."""
        return self._held.shard_id

    @property
    def epoch(self) -> int:
        """Fencing token: the epoch to write with."""
        return self._held.epoch

    @property
    def ttl(self) -> float:
        """Seconds from a renewal to the end."""
        return self._terms.ttl

    @property
    def is_paused(self) -> bool:
        """Whether it is let to others until it is asked for again."""
        return self._is_paused

    @property
    def is_idle(self) -> bool:
        """Whether the log has not grown between the last two renewals."""
        return self._is_idle

    def check(self) -> None:
        """Return if the lease is ours still. Asks nothing of the store, unless it was paused.

        Raises
        ------
        FencedError
            If it was lost to another writer, has expired or was released: from then on, every time.
        StorageError
            If it was paused, and the store failed; it is paused still.
        """
        if self._is_paused:
            self._resume()
        if self._ended is None and self._terms.clock.uptime() < self._deadline:
            return
        raise self._end(self._error("has expired and was not renewed"))

    def check_to_append(self) -> None:
        """As :meth:`check`, but after a brief pause the lease is not taken back: one look, if nobody came.

        Raises
        ------
        FencedError, StorageError
            As for :meth:`check`.
        """
        if not (self._is_paused and self._is_brief and self._nobody_came()):
            self.check()

    def _nobody_came(self) -> bool:
        """Return whether the stored lease is as we left it, or was so a moment ago."""
        with self._swapping:
            uptime = self._terms.clock.uptime()
            if self._ended is not None or self._version is None:
                return False
            if uptime >= self._looked_until:
                stored = self._store.head(self._path)
                if stored is None or stored.version != self._version:
                    return False
                self._looked_until = uptime + self._terms.ttl / _LOOKS_PER_TTL
            return True

    def check_stored(self) -> None:
        """As :meth:`check`, and on a local disk that the lease is there still: one look, no round trip.

        Libraries that write below a table recreate its directory if it was removed.

        Raises
        ------
        FencedError
            As for :meth:`check`, or if the stored lease is gone.
        """
        self.check()
        if self._store.is_local and self._store.head(self._path) is None:
            raise self._end(
                FencedError(
                    f"the lease of shard {self.shard_id}, held with epoch {self.epoch}, is gone: the table "
                    "was removed or moved",
                    where=f"{self._store.uri}/{self._path}",
                    hint="Restore or recreate the table, and open it again",
                )
            )

    def renew(self) -> None:
        """Put the end off by the TTL. One round trip, if nothing came in between.

        While it is paused only the log position is recorded, if appends have moved it.

        Raises
        ------
        FencedError
            If another writer has taken the lease.
        StorageError
            If the store failed; the lease is as it was, and can be renewed again until it expires.
        """
        with self._swapping:
            if self._ended is not None:
                raise self._ended.again()
            if self._is_paused:
                self._give_up()
                return
            renewed, deadline = _written(self.shard_id, self.epoch, self._terms, self.last_position)
            renewed = replace(renewed, acquired_at=self._held.acquired_at)
            recorded = self._held.last_position
            self._swap(renewed)
            self._hold_until(deadline)
            self._is_idle = renewed.last_position == recorded

    def release(self) -> None:
        """Mark the lease as released, unless another writer has it. Idempotent.

        Raises
        ------
        WeirError
            If the store failed; for other processes the lease then runs its time.
        """
        with self._swapping:
            if self._ended is not None:
                return
            # First of all for ourselves, so that no write relies on what others see as free.
            self._end(self._error("was released"))
            self._give_up()

    def abandon(self) -> None:
        """Record in this process only that the lease is unused; takes no lock and no round trip.

        For when its writer is garbage-collected. The next claim fences any pending append.
        """
        released_leases.abandon(self._held)

    def pause(self, *, brief: bool = False) -> None:
        """Let go for now: others find the lease released, and the next :meth:`check` takes it back.

        Taking it back is one round trip, and succeeds if no other writer has held the lease in between: then
        nothing known about the shard has changed.

        If the store fails, the lease is paused all the same, and for other processes it runs its time.

        Parameters
        ----------
        brief : bool, default False
            Whether appends may go on without it (:meth:`check_to_append`), as far as nobody takes it: the
            fence then keeps us apart from others, as it does where clocks are wrong. The log position that
            they reach is recorded once in a second.
        """
        with self._swapping:
            self._is_brief, self._looked_until = brief, 0.0
            is_due = self._terms.clock.uptime() - self._swapped_at >= _RECORDED_EVERY_SECONDS
            if self._ended is not None or (self._is_paused and not is_due):
                return
            self._is_paused, self.certain_until = True, -math.inf
            try:
                self._give_up()
            except WeirError as error:
                _not_released(self.shard_id, error)

    def _give_up(self) -> None:
        """Mark the lease as released, unless it already is, or another writer has it."""
        released_leases.add(self._held)
        is_recorded = self._held.last_position == self.last_position
        if self._held.released and is_recorded and self._version is not None:
            return
        released = replace(
            self._held,
            expires_at=self._terms.clock.now(),
            expires_at_uptime=self._terms.clock.uptime(),
            released=True,
            write_id=secrets.token_hex(16),
            last_position=self.last_position,
        )
        try:
            self._swap(released)
        except FencedError as error:
            _log.info("shard.lease_was_taken", shard=str(self.shard_id), by=str(error))

    def _resume(self) -> None:
        """Take the lease back after a pause, unless another writer has held it since."""
        with self._swapping:
            if self._ended is not None or not self._is_paused:
                return
            taken, deadline = _written(self.shard_id, self.epoch, self._terms, self.last_position)
            # From here on this process must not treat it as released, whether or not the answer to the swap
            # arrives.
            released_leases.remove(self._held)
            try:
                self._swap(taken)
            except BaseException:
                # It may have succeeded: the stored lease has to be read before it is replaced.
                self._version = None
                released_leases.add(self._held)
                raise
            # The deadline first: a check on another thread must not compare the former one, and find it over.
            self._hold_until(deadline)
            self._is_paused = False

    def _swap(self, successor: Lease) -> None:
        """Replace the stored lease, which must be ours, by ``successor``."""
        path = self._path
        for _ in range(_MAX_ATTEMPTS):
            if self._version is None:
                self._version, self._held = self._find_ours()
                if self._held.write_id == successor.write_id:
                    # It went through before, and the answer was lost (invariant I4).
                    return
            self._in_doubt.add(successor.write_id)
            try:
                self._version = self._store.compare_and_swap(path, lease.encode(successor), self._version)
            except PreconditionError:
                self._version = None
                continue
            self._held = successor
            self._swapped_at = self._terms.clock.uptime()
            self._in_doubt.clear()
            return
        raise ConflictError(
            f"the lease of shard {self.shard_id} changed during {_MAX_ATTEMPTS} attempts",
            where=f"{self._store.uri}/{self._path}",
        )

    def _find_ours(self) -> tuple[str, Lease]:
        # The version is asked for before the content: if both do not belong together, it is the
        # version that is old, and the swap is refused.
        meta = self._store.head(self._path)
        stored = None if meta is None else read_lease(self._store, self.shard_id, self._path)
        if meta is None or stored is None:
            raise self._end(self._error("is gone"))
        ours = (self._held.holder.holder_id, self.epoch)
        if (stored.holder.holder_id, stored.epoch) != ours:
            raise self._end(
                self._error(
                    f"was taken over by {_describe(stored.holder, self._terms.holder)} "
                    f"with epoch {stored.epoch}"
                )
            )
        if stored.write_id not in {self._held.write_id, *self._in_doubt}:
            # Nobody but us writes it while it is ours, and this is an older state of it.
            if self._terms.on_restore is not None:
                self._terms.on_restore()
            raise self._end(
                self._error("is not what was stored last: a backup was restored in place of the table")
            )
        return meta.version, stored

    def _end(self, error: FencedError) -> FencedError:
        if self._ended is None:
            self._ended = error
        self.certain_until = -math.inf
        return self._ended.again()

    def _hold_until(self, deadline: float) -> None:
        self._deadline = self.certain_until = deadline
        if self._ended is not None:
            # Another thread has found it expired meanwhile, which stands.
            self.certain_until = -math.inf

    def _error(self, what: str) -> FencedError:
        return FencedError(
            f"the lease of shard {self.shard_id}, held with epoch {self.epoch}, {what}",
            where=f"{self._store.uri}/{self._path}",
            hint="Acknowledged rows are safe; open a new writer to continue",
        )


def _written(shard_id: UUID, epoch: int, terms: LeaseTerms, last_position: int) -> tuple[Lease, float]:
    """Return a lease that begins now, and the uptime at which it runs out."""
    now, uptime = terms.clock.now(), terms.clock.uptime()
    deadline = uptime + terms.ttl
    return (
        Lease(
            shard_id=shard_id,
            epoch=epoch,
            holder=terms.holder,
            acquired_at=now,
            renewed_at=now,
            expires_at=now + timedelta(seconds=terms.ttl),
            expires_at_uptime=deadline,
            ttl=terms.ttl,
            released=False,
            write_id=secrets.token_hex(16),
            last_position=last_position,
        ),
        deadline,
    )


def _read_to_replace(store: ObjectStore, shard_id: UUID, terms: LeaseTerms, path: str) -> Lease | None:
    try:
        return read_lease(store, shard_id, path)
    except CorruptionError as error:
        if terms.takeover:
            _log.warning("shard.lease_was_damaged", shard=str(shard_id), error=str(error))
            return None
        raise CorruptionError(
            error.message,
            where=error.where,
            hint="The shard's writer is unknown; table.writer(takeover=True) claims the shard anyway",
        ) from error


def _held_error(store: ObjectStore, found: Lease, terms: LeaseTerms, path: str) -> LeaseHeldError:
    return LeaseHeldError(
        f"{_describe(found.holder, terms.holder)} writes shard {found.shard_id} with epoch {found.epoch}: "
        f"its lease is held since {found.acquired_at:%Y-%m-%d %H:%M:%S} UTC "
        f"and lasts until {found.expires_at:%Y-%m-%d %H:%M:%S} UTC, unless it is renewed",
        where=f"{store.uri}/{path}",
        hint="Close that writer, or wait until the lease has run out, or fence the writer with "
        "table.writer(takeover=True)",
    )


def _describe(holder: LeaseOwner, own: LeaseOwner) -> str:
    reached = f", reached at {holder.address}," if holder.address else ""
    same = (holder.system, holder.process_id, holder.process_started, holder.host)
    if same == (own.system, own.process_id, own.process_started, own.host):
        return f"another writer of this process ({holder.process_id} on {holder.host}){reached}"
    return f"process {holder.process_id} on {holder.host}{reached}"


def release_quietly(held: ShardLease) -> None:
    """Release a lease; if the store fails, leave it to run its time, for all but this process."""
    try:
        held.release()
    except WeirError as error:
        _not_released(held.shard_id, error)


def _not_released(shard_id: UUID, error: WeirError) -> None:
    _log.warning("shard.lease_not_released", shard=str(shard_id), error=str(error))

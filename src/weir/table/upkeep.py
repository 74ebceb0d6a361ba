"""Upkeep in the background: tables are merged, compacted and garbage-collected when it is due.

One thread of an engine maintains all tables that are written in the process. It checks a table when a writer
of this process has flushed something, and every few minutes for what others have left; an idle table is
checked less and less often, down to once an hour. A check writes nothing, and nothing happens between checks.
A lease limits the upkeep of a table to one process at a time. Merges and flushes yield to reads and writes
(:mod:`weir.engine.throttle`), and the thread works at most the share of the time that its policy allows. When
the process ends, upkeep stops before its next step: completed steps stay, and the process that maintains the
table next does the rest.
"""

from __future__ import annotations

import heapq
import itertools
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

from weir.base.table import BaseTable
from weir.engine.context import EngineContext, default_context
from weir.engine.freed_memory import give_back_freed_memory
from weir.engine.living import Living
from weir.engine.logs import get_logger
from weir.engine.written_tables import WrittenTables
from weir.errors import CorruptionError, LeaseHeldError, StorageError, TableNotFoundError
from weir.maintenance.upkeep_lease import held_upkeep
from weir.maintenance.upkeep_policy import UpkeepPolicy, chosen_policy
from weir.storage.interface import ObjectStore
from weir.table.maintenance import TableMaintenance
from weir.table.open_table import OpenTable

__all__ = ["Upkeep", "announce_writer"]

_log = get_logger(__name__)

_SOON_SECONDS = 0.5
_LONGEST_BACK_OFF_SECONDS = 600.0
_LONGEST_REST_SECONDS = 60.0
_MOST_LOOKS_LEFT_OUT = 12
_PRUNINGS_PER_RETENTION = 8

Task = TypeVar("Task")
Result = TypeVar("Result")


class _BrokenOffError(Exception):
    """Upkeep has to stop: the current work is interrupted."""


class _ThisThread:
    """Runs tasks one after the other on the calling thread: when the process ends, no others are waited for.

    Parameters
    ----------
    check : callable
        Called before every task; raises to interrupt.
    """

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check

    def run(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """Yield ``function(task)`` for every task."""
        for task in tasks:
            self._check()
            yield function(task)


@dataclass(eq=False, slots=True)
class _Tended:
    """A maintained table, and when each job is due, by the uptime of the process."""

    store: ObjectStore
    due: float
    look_at: float
    compact_at: float | None = None
    collect_at: float | None = None
    prune_at: float = float("-inf")
    # The last merge or compaction: what it replaced is kept for the retention from then on.
    changed_at: float = float("-inf")
    failures: int = 0
    # Consecutive checks that found nothing to do; below 0 before the first.
    idle_looks: int = -1
    table: OpenTable | None = field(default=None, repr=False)
    # The table object used since: the former one may belong to a directory that was moved away.
    opened_since: ObjectStore | None = field(default=None, repr=False)

    def collect_by(self, time: float) -> None:
        """Collect garbage at a time at the latest: what is scheduled may be for versions a day from now."""
        self.collect_at = time if self.collect_at is None else min(self.collect_at, time)


class Upkeep:
    """Maintains the tables that an engine's writers write, until it is stopped.

    Parameters
    ----------
    engine : EngineContext
        The engine.
    policy : UpkeepPolicy
        When each job is due.
    uptime : callable
        Returns the time in seconds. Default: the uptime of this machine.
    """

    def __init__(
        self,
        engine: EngineContext,
        policy: UpkeepPolicy,
        *,
        uptime: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = engine.metrics
        self._policy = policy
        self._uptime = uptime
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._tables: dict[str, _Tended] = {}
        # Ordered by due time; tables that were rescheduled since are in it more than once.
        self._queue: list[tuple[float, int, _Tended]] = []
        self._numbers = itertools.count()
        self._rests_until = float("-inf")
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._process_id = os.getpid()
        self.turned_away = 0
        """How often another process had the upkeep of a table."""
        self._written = written_tables(engine)
        self._written.listen(self)
        engine.metrics.tended_tables.observe(lambda: len(self._tables))
        _of_this_process.add(self)

    def opened(self, store: ObjectStore) -> None:
        """Maintain a table from now on, starting with what dead writers left in it."""
        with self._lock:
            if self._stopped:
                return
            soon = self._uptime() + _SOON_SECONDS
            tended = self._tables.get(store.uri)
            if tended is not None:
                tended.opened_since = None if store is tended.store else store
                return
            tended = self._tables[store.uri] = _Tended(store, soon, soon)
            self._schedule(tended, soon)
            self._wake()

    def changed(self, store: ObjectStore) -> None:
        """Check a table soon: something was flushed."""
        with self._lock:
            tended = self._tables.get(store.uri)
            if tended is None or self._stopped:
                return
            soon = self._uptime() + _SOON_SECONDS
            tended.idle_looks = min(tended.idle_looks, 0)
            tended.look_at = min(tended.look_at, soon + self._policy.look_every.total_seconds())
            if not tended.failures and soon < tended.due:
                self._schedule(tended, soon)
                self._wake()

    def stop(self) -> None:
        """Stop before the next step, and wait for the current one. Idempotent.

        The wait is needed even when the process ends: a thread that returns from the library after the
        interpreter is gone aborts the process.
        """
        if self._process_id != os.getpid():
            return  # the thread and the owner of the lock belong to the parent
        self._written.listen(None)
        with self._lock:
            self._stopped = True
            thread = self._thread
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        with self._lock:
            self._tables.clear()
            self._queue.clear()

    def _schedule(self, tended: _Tended, due: float) -> None:
        tended.due = due
        heapq.heappush(self._queue, (due, next(self._numbers), tended))

    def _wake(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="weir-upkeep", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _run(self) -> None:
        while (tended := self._next()) is not None:
            self._tend(tended)

    def _next(self) -> _Tended | None:
        """Wait for the next table that is due; None to end the thread."""
        with self._lock:
            while not self._stopped:
                if not self._queue:
                    self._changed.wait()
                    continue
                due, _, tended = self._queue[0]
                if due != tended.due:
                    heapq.heappop(self._queue)
                    continue
                remaining = max(due, self._rests_until) - self._uptime()
                if remaining <= 0:
                    heapq.heappop(self._queue)
                    # A change meanwhile makes it due again.
                    tended.due = math.inf
                    return tended
                self._changed.wait(min(remaining, 60.0))
        return None

    def _tend(self, tended: _Tended) -> None:
        where, began = tended.store.uri, self._uptime()
        try:
            if tended.table is None:
                tended.table = OpenTable(tended.store, BaseTable.open(tended.store))
            table = tended.table
            if self._is_at_rest(tended, table):
                due = self._next_look(tended)
            else:
                # Checked before taking the lease, which would be left behind where the table was dropped.
                table.base.latest()
                with held_upkeep(tended.store) as lease:
                    due = self._round(tended, table, lease.check)
                tended.idle_looks = max(tended.idle_looks, 0)
            tended.failures = 0
            self._metrics.upkeep_rounds.add()
        except LeaseHeldError:
            # Another process does it; if it dies, the next check finds out.
            self.turned_away += 1
            due = self._uptime() + self._policy.look_every.total_seconds()
        except TableNotFoundError:
            with self._lock:
                self._tables.pop(where, None)
            return
        except Exception as error:
            if self._stopped:
                return  # what it needs is gone already, or it was interrupted
            tended.failures += 1
            tended.table = None
            tended.store, tended.opened_since = tended.opened_since or tended.store, None
            wait = min(2.0**tended.failures, _LONGEST_BACK_OFF_SECONDS)
            due = self._uptime() + wait
            self._metrics.upkeep_failures.add()
            _log.warning("upkeep.failed", table=where, error=str(error), again_in_seconds=wait)
        with self._lock:
            now = self._uptime()
            rest = (now - began) * (1 / self._policy.max_share - 1)
            self._rests_until = now + min(rest, _LONGEST_REST_SECONDS)
            self._schedule(tended, due if tended.failures else min(tended.due, due))

    def _is_at_rest(self, tended: _Tended, table: OpenTable) -> bool:
        """Whether there is nothing to do; at the first check, a merge that died may have left something."""
        due = [one for one in (tended.compact_at, tended.collect_at) if one is not None]
        if (
            tended.idle_looks < 0
            or table.base.expiry is not None
            or min(due, default=math.inf) <= self._uptime()
        ):
            return False
        snapshot = table.reader.take_newest()
        return not any(view.tail_rows or snapshot.unmerged(view) for view in snapshot.shards)

    def _next_look(self, tended: _Tended) -> float:
        """Return when to check an idle table again: the longer it was idle, the later."""
        tended.idle_looks += 1
        left_out = min(2**tended.idle_looks, _MOST_LOOKS_LEFT_OUT)
        tended.look_at = self._uptime() + left_out * self._policy.look_every.total_seconds()
        return min(one for one in (tended.look_at, tended.compact_at, tended.collect_at) if one is not None)

    def _catch_up(self, maintenance: TableMaintenance, here: _ThisThread, where: str) -> bool:
        """Let the indexes catch up; return whether all of them did.

        The other jobs go on: an index that cannot would fail again at once, and nothing would be compacted or
        collected. It is tried again at the next merge or compaction.
        """
        try:
            maintenance.catch_up_indexes(runner=here)
        except (StorageError, CorruptionError) as error:
            if self._stopped:
                raise
            self._metrics.upkeep_failures.add()
            _log.warning("upkeep.catch_up_failed", table=where, error=str(error))
            return False
        return True

    def _round(self, tended: _Tended, table: OpenTable, check_lease: Callable[[], None]) -> float:
        """Do what is due; return when to check again."""

        def go_on() -> None:
            if self._stopped:
                raise _BrokenOffError
            check_lease()

        policy, began = self._policy, self._uptime()
        maintenance, here = TableMaintenance(table), _ThisThread(go_on)
        if tended.look_at <= began:
            recovered = maintenance.recover_dead(runner=here)
            if recovered:
                _log.info("upkeep.recovered", table=tended.store.uri, shards=recovered)
            if table.base.expiry is not None:
                go_on()
                removed = maintenance.expire()
                if removed.rows:
                    # A compaction and a collection free their space.
                    tended.compact_at = tended.compact_at or began + policy.compact_every.total_seconds()
                    tended.collect_by(began + policy.collect_every.total_seconds())
            tended.look_at = began + policy.look_every.total_seconds()
        go_on()
        merged = maintenance.merge(policy=policy.merge, runner=here)
        if merged.generations:
            _log.info(
                "upkeep.merged",
                table=tended.store.uri,
                generations=merged.generations,
                rows=merged.rows_upserted,
                version=merged.version,
            )
            go_on()
            self._catch_up(maintenance, here, tended.store.uri)
            tended.changed_at = now = self._uptime()
            tended.compact_at = tended.compact_at or now + policy.compact_every.total_seconds()
            tended.collect_by(now + policy.collect_every.total_seconds())
            give_back_freed_memory()
        if tended.compact_at is not None and tended.compact_at <= self._uptime():
            go_on()
            if maintenance.compact(runner=here).fragments_removed:
                tended.changed_at = self._uptime()
            go_on()
            caught_up = self._catch_up(maintenance, here, tended.store.uri)
            later = self._uptime() + policy.compact_every.total_seconds()
            tended.compact_at = None if caught_up else later
            give_back_freed_memory()
        if tended.collect_at is not None and tended.collect_at <= self._uptime():
            go_on()
            report = maintenance.collect_garbage(
                horizon=policy.horizon, version_retention=self._retention_that_is_due(tended), runner=here
            )
            now = self._uptime()
            if report.waiting_objects or report.deleted_objects:
                # What is marked now is deleted by a later collection.
                tended.collect_at = now + max(policy.collect_every, policy.horizon).total_seconds()
            elif (
                policy.version_retention
                and now - tended.changed_at <= policy.version_retention.total_seconds()
            ):
                tended.collect_at = now + (policy.version_retention + policy.collect_every).total_seconds()
            else:
                tended.collect_at = None
        waits = [tended.look_at, tended.compact_at, tended.collect_at]
        if merged.rows_left:
            age = policy.merge.max_age or timedelta.max
            waits.append(began + min(age, policy.look_every).total_seconds() / 2)
        return min(one for one in waits if one is not None)

    def _retention_that_is_due(self, tended: _Tended) -> timedelta | None:
        """Return how long to keep former versions; None for most collections.

        To remove one the library reads the manifests of all, so they go in batches.
        """
        retention = self._policy.version_retention
        if retention is None:
            return None
        now, seconds = self._uptime(), retention.total_seconds()
        # Once all that changed is older, no later collection may be scheduled.
        if now < tended.prune_at and now - tended.changed_at <= seconds:
            return None
        tended.prune_at = now + seconds / _PRUNINGS_PER_RETENTION
        return retention


@dataclass(frozen=True, eq=False, slots=True)
class _OfTheProcess:
    """The upkeep of the default engine, for tables opened without one."""

    upkeep: Upkeep | None


def announce_writer(store: ObjectStore) -> None:
    """Register a table that is about to be written with the upkeep of its engine.

    Raises
    ------
    OptionError
        If ``WEIR_MAINTENANCE`` says neither ``auto`` nor ``off``.
    """
    engine = store.engine
    written = written_tables(engine)
    if engine is default_context():

        def make() -> _OfTheProcess:
            policy = chosen_policy(None)
            return _OfTheProcess(None if policy is None else Upkeep(engine, policy))

        engine.part(_OfTheProcess, make)
    written.opened(store)


def written_tables(engine: EngineContext) -> WrittenTables[ObjectStore]:
    """Return the record of the tables that an engine's writers write."""
    return engine.part(WrittenTables)


_of_this_process: Living[Upkeep] = Living()


def _end_with_process() -> None:
    for one in _of_this_process.all():
        one.stop()


# Runs before the threads it uses are joined, which is before ``atexit`` callbacks run.
threading._register_atexit(_end_with_process)  # type: ignore[attr-defined]

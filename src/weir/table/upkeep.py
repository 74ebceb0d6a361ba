"""Tables that look after themselves: merged, compacted and collected in the background, when it is due.

One thread of an engine looks after all tables that are written in the process. A table is looked at when a
writer of this process has flushed something, and every few minutes for what others have left; tables at rest
cost nothing in between. A lease keeps the upkeep of a table to one process at a time. Merges and flushes
give way to reads and writes (:mod:`weir.engine.throttle`).
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from weir.base.table import BaseTable
from weir.engine.context import EngineContext
from weir.engine.logs import get_logger
from weir.engine.written_tables import WrittenTables
from weir.errors import LeaseHeldError, TableNotFoundError
from weir.maintenance.upkeep_lease import held_upkeep
from weir.maintenance.upkeep_policy import UpkeepPolicy
from weir.storage.interface import ObjectStore
from weir.table.maintenance import TableMaintenance
from weir.table.open_table import OpenTable

__all__ = ["Upkeep"]

_log = get_logger(__name__)

_SOON_SECONDS = 0.5
_LONGEST_BACK_OFF_SECONDS = 600.0


@dataclass(eq=False, slots=True)
class _Tended:
    """A table that is looked after, and when each part is due, by the uptime of the process."""

    store: ObjectStore
    due: float
    look_at: float
    compact_at: float | None = None
    collect_at: float | None = None
    failures: int = 0
    table: OpenTable | None = field(default=None, repr=False)


class Upkeep:
    """Looks after the tables that an engine's writers write, until it is stopped.

    Parameters
    ----------
    engine : EngineContext
        The engine.
    policy : UpkeepPolicy
        When what is due.
    uptime : callable
        Tells the time in seconds. Default: that of this machine.
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
        self._thread: threading.Thread | None = None
        self._stopped = False
        self.turned_away = 0
        """How often another process had the upkeep of a table."""
        self._written = written_tables(engine)
        self._written.listen(self)
        engine.metrics.tended_tables.observe(lambda: len(self._tables))
        atexit.register(self.stop)

    def opened(self, store: ObjectStore) -> None:
        """Look after a table from now on; first at what writers that have died have left in it."""
        with self._lock:
            if self._stopped or store.uri in self._tables:
                return
            now = self._uptime()
            self._tables[store.uri] = _Tended(store, now + _SOON_SECONDS, now + _SOON_SECONDS)
            self._wake()

    def changed(self, store: ObjectStore) -> None:
        """Look at a table soon: something was flushed."""
        with self._lock:
            tended = self._tables.get(store.uri)
            if tended is None or self._stopped:
                return
            if not tended.failures:
                tended.due = min(tended.due, self._uptime() + _SOON_SECONDS)
            self._wake()

    def stop(self) -> None:
        """Begin nothing any more, and wait for what is going on. Idempotent."""
        atexit.unregister(self.stop)
        self._written.listen(None)
        with self._lock:
            self._stopped = True
            thread = self._thread
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        with self._lock:
            self._tables.clear()

    def _wake(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="weir-upkeep", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _run(self) -> None:
        while (tended := self._next()) is not None:
            self._tend(tended)

    def _next(self) -> _Tended | None:
        """Wait for the table that is due first; None to end the thread."""
        with self._lock:
            while not self._stopped:
                tended = min(self._tables.values(), key=lambda one: one.due, default=None)
                if tended is None:
                    self._changed.wait()
                    continue
                remaining = tended.due - self._uptime()
                if remaining <= 0:
                    # Whoever changes it meanwhile makes it due again.
                    tended.due = float("inf")
                    return tended
                self._changed.wait(min(remaining, 60.0))
        return None

    def _tend(self, tended: _Tended) -> None:
        where = tended.store.uri
        try:
            # Before the lease, which would be left where a table was dropped.
            table = self._opened(tended)
            with held_upkeep(tended.store) as lease:
                due = self._round(tended, table, lease.check)
            tended.failures = 0
            self._metrics.upkeep_rounds.add()
        except LeaseHeldError:
            # Another process does it; should it die, the next look finds out.
            self.turned_away += 1
            due = self._uptime() + self._policy.look_every.total_seconds()
        except TableNotFoundError:
            with self._lock:
                self._tables.pop(where, None)
            return
        except Exception as error:
            tended.failures += 1
            tended.table = None
            wait = min(2.0**tended.failures, _LONGEST_BACK_OFF_SECONDS)
            due = self._uptime() + wait
            self._metrics.upkeep_failures.add()
            _log.warning("upkeep.failed", table=where, error=str(error), again_in_seconds=wait)
        with self._lock:
            tended.due = min(tended.due, due) if not tended.failures else due

    def _opened(self, tended: _Tended) -> OpenTable:
        """Return the table as it is now."""
        if tended.table is None:
            tended.table = OpenTable(tended.store, BaseTable.open(tended.store))
        else:
            tended.table.base.latest()
        return tended.table

    def _round(self, tended: _Tended, table: OpenTable, still_ours: Callable[[], None]) -> float:
        """Do what is due; return when to come again."""
        policy, began = self._policy, self._uptime()
        maintenance = TableMaintenance(table)
        if tended.look_at <= began:
            recovered = maintenance.recover_dead()
            if recovered:
                _log.info("upkeep.recovered", table=tended.store.uri, shards=recovered)
            if table.base.expiry is not None:
                still_ours()
                removed = maintenance.expire()
                if removed.rows:
                    # What they took is given back by a compaction and a collection.
                    tended.compact_at = tended.compact_at or began + policy.compact_every.total_seconds()
                    tended.collect_at = tended.collect_at or began + policy.collect_every.total_seconds()
            tended.look_at = began + policy.look_every.total_seconds()
        if self._stopped:
            return began
        still_ours()
        merged = maintenance.merge(policy=policy.merge)
        if merged.generations:
            _log.info(
                "upkeep.merged",
                table=tended.store.uri,
                generations=merged.generations,
                rows=merged.rows_upserted,
                version=merged.version,
            )
            still_ours()
            maintenance.catch_up_indexes()
            now = self._uptime()
            tended.compact_at = tended.compact_at or now + policy.compact_every.total_seconds()
            tended.collect_at = tended.collect_at or now + policy.collect_every.total_seconds()
        if tended.compact_at is not None and tended.compact_at <= self._uptime() and not self._stopped:
            still_ours()
            maintenance.compact()
            maintenance.catch_up_indexes()
            tended.compact_at = None
        if tended.collect_at is not None and tended.collect_at <= self._uptime() and not self._stopped:
            still_ours()
            report = maintenance.collect_garbage(horizon=policy.horizon)
            # What is marked now is deleted by a later one.
            again = report.waiting_objects or report.deleted_objects
            tended.collect_at = (
                self._uptime() + max(policy.collect_every, policy.horizon).total_seconds() if again else None
            )
        waits = [tended.look_at, tended.compact_at, tended.collect_at]
        if merged.rows_left:
            age = policy.merge.max_age or timedelta.max
            waits.append(began + min(age, policy.look_every).total_seconds() / 2)
        return min(one for one in waits if one is not None)


def written_tables(engine: EngineContext) -> WrittenTables[ObjectStore]:
    """Return what tells which tables the writers of an engine write."""
    return engine.part(WrittenTables)

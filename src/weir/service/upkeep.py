"""Upkeep of namespaces: flush, merge, index, compact and collect garbage."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from weir.errors import LeaseHeldError, WeirError
from weir.maintenance.garbage.garbage import DEFAULT_HORIZON
from weir.namespaces import Namespace
from weir.service.context import Service
from weir.service.expiry import remove_expired
from weir.service.telemetry import Telemetry

__all__ = ["Upkeep"]

_SECONDS_BETWEEN_EXPIRIES = 600.0
_SECONDS_UNUSED = 60.0
"""Idle time after which a namespace has no owner any more, and its table is closed."""
_HORIZON = DEFAULT_HORIZON
_SECONDS_BETWEEN_SWEEPS = 3600.0
_SWEPT_AT_ONCE = 20

_log = logging.getLogger("weir.service.upkeep")


class Upkeep:
    """A loop that maintains the namespaces this process writes, and those without a writer.

    Parameters
    ----------
    service : Service
        The service with the namespaces.
    telemetry : Telemetry
        Counts rounds.
    interval : float
        Seconds between two rounds.
    """

    def __init__(self, service: Service, telemetry: Telemetry, interval: float) -> None:
        self._service = service
        self._namespaces = service.namespaces
        self._telemetry = telemetry
        self._interval = interval
        self._expired_at = self._swept_at = float("-inf")
        self._to_sweep: list[str] = []
        self._stopping = threading.Event()
        self._hurried = threading.Event()
        service.hurry = self._hurried.set
        self._thread = threading.Thread(target=self._run, name="weir-upkeep", daemon=True)
        service.loops["upkeep"] = self._thread.is_alive

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, seconds: float) -> bool:
        """Stop after the current namespace; return whether it ended in the given time."""
        self._stopping.set()
        self._hurried.set()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._hurried.wait(self._interval)
            self._hurried.clear()
            if self._service.has_other_storage:
                continue
            for work in (
                self._look_after_own,
                self._collect,
                self._look_after_abandoned,
                self._sweep,
                self._remove_expired,
            ):
                if self._stopping.is_set():
                    return
                try:
                    work()
                except WeirError as error:
                    # The storage does not answer: the next round goes on.
                    _log.warning("upkeep failed", exc_info=error)
                except Exception:
                    # Of a kind that nobody expects. Ended, this thread would leave all namespaces unmerged.
                    _log.exception("upkeep failed")

    def _look_after_own(self) -> None:
        for namespace in self._namespaces.open_here():
            if self._stopping.is_set():
                return
            self._look_after(namespace, namespace.maintain)
            namespace.rest(_SECONDS_UNUSED)

    def _collect(self) -> None:
        """Remove what merges have replaced, once no reader can need it."""
        dirty = self._namespaces.dirty
        for name, since in dirty.marked().items():
            if self._stopping.is_set():
                return
            namespace = self._namespaces.namespace(name)
            if namespace.is_writing or time.monotonic() - since < _HORIZON.total_seconds():
                continue
            is_open = namespace.is_open
            is_left = self._look_after(namespace, lambda one=namespace: not one.collect(_HORIZON))  # type: ignore[misc]
            if is_left:
                dirty.mark(name)  # what is marked now goes a horizon later
            elif is_left is False:
                dirty.clear(name, since)
            if not is_open:
                namespace.rest(0.0)

    def _look_after_abandoned(self) -> None:
        """Maintain this process's share of the namespaces left by vanished processes."""
        dirty = self._namespaces.dirty
        gone = dirty.processes()
        if gone and self._service.owners is not None:
            alive = {member.id for member in self._service.owners.members.live()}
            gone = [process for process in gone if process not in alive]
        for process in gone:
            for name in dirty.of(process):
                if self._stopping.is_set():
                    return
                if self._falls_here(name) and self._taken_over(name) is not None:
                    dirty.adopt(process, name)

    def _sweep(self) -> None:
        """Check some unmarked namespaces: their writer may not have set marks."""
        if not self._to_sweep:
            if time.monotonic() - self._swept_at < _SECONDS_BETWEEN_SWEEPS:
                return
            self._swept_at = time.monotonic()
            self._to_sweep = [name for name in self._namespaces.names() if self._falls_here(name)]
        for name in [self._to_sweep.pop() for _ in self._to_sweep[-_SWEPT_AT_ONCE:]]:
            if self._stopping.is_set():
                return
            if self._taken_over(name):
                self._namespaces.dirty.mark(name)

    def _falls_here(self, name: str) -> bool:
        owners = self._service.owners
        return owners is None or owners.is_preferred(name)

    def _taken_over(self, name: str) -> bool | None:
        """Do what is due for a namespace; None to do it later."""
        namespace = self._namespaces.namespace(name)
        is_open = namespace.is_open
        done = self._look_after(namespace, namespace.look_after_abandoned)
        if not is_open:
            namespace.rest(0.0)
        return done

    def _remove_expired(self) -> None:
        """Remove expired records, and tables given up long ago: occasionally, in one process."""
        now = time.monotonic()
        if now - self._expired_at < _SECONDS_BETWEEN_EXPIRIES:
            return
        self._expired_at = now
        if not self._falls_here("expiry"):
            return
        removed = remove_expired(self._service.namespaces.store)
        if removed:
            _log.info(
                "notes expired", extra={"event_fields": {"event": "upkeep.expired", "objects": removed}}
            )
        for name in self._namespaces.with_old_notes():
            if self._stopping.is_set():
                return
            namespace = self._namespaces.namespace(name)
            self._look_after(namespace, lambda one=namespace: bool(one.remove_leftovers()))  # type: ignore[misc]

    def _look_after(self, namespace: Namespace, work: Callable[[], bool]) -> bool | None:
        """Return whether there was something to do; None if it could not be done."""
        began = time.monotonic()
        try:
            if not work():
                return False
            outcome = "done"
        except LeaseHeldError:
            return None
        except WeirError as error:
            outcome = "failed"
            _log.warning(
                "upkeep failed",
                extra={
                    "event_fields": {
                        "event": "upkeep.failed",
                        "namespace": namespace.name,
                        "error": type(error).__name__,
                        "seconds": round(time.monotonic() - began, 3),
                    }
                },
            )
        except Exception:
            outcome = "failed"
            _log.exception("upkeep failed")
        self._telemetry.upkeep_rounds.labels(outcome).inc()
        return True if outcome == "done" else None

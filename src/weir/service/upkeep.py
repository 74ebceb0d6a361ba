"""Upkeep of the namespaces: flush, merge, index and compact what was written, and remove garbage."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from weir.errors import WeirError
from weir.namespaces import Namespace
from weir.service.context import Service
from weir.service.expiry import remove_expired
from weir.service.telemetry import Telemetry

__all__ = ["Upkeep"]

_SECONDS_BETWEEN_EXPIRIES = 600.0

_log = logging.getLogger("weir.service.upkeep")


class Upkeep:
    """A loop that looks after the namespaces which this process writes.

    Parameters
    ----------
    service : Service
        What knows the namespaces.
    telemetry : Telemetry
        Counts rounds.
    interval : float
        Seconds between two rounds.
    """

    def __init__(self, service: Service, telemetry: Telemetry, interval: float) -> None:
        self._service = service
        self._telemetry = telemetry
        self._interval = interval
        self._expired_at = float("-inf")
        self._stopping = threading.Event()
        self._hurried = threading.Event()
        service.hurry = self._hurried.set
        self._thread = threading.Thread(target=self._run, name="weir-upkeep", daemon=True)
        service.loops["upkeep"] = self._thread.is_alive

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, after the namespace that is being looked after."""
        self._stopping.set()
        self._hurried.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._hurried.wait(self._interval)
            self._hurried.clear()
            if self._stopping.is_set():
                return
            for namespace in self._service.namespaces.open_here():
                if self._stopping.is_set():
                    return
                self._look_after(namespace, namespace.maintain)
            self._look_for_abandoned()
            self._remove_expired()

    def _look_for_abandoned(self) -> None:
        """Look after what processes that are gone have left, as far as it falls to this one."""
        owners = self._service.owners
        try:
            names = self._service.namespaces.names()
        except WeirError:
            return
        for name in names:
            if self._stopping.is_set():
                return
            if owners is None or owners.is_preferred(name):
                namespace = self._service.namespaces.namespace(name)
                self._look_after(namespace, namespace.look_after_abandoned)

    def _remove_expired(self) -> None:
        """Remove what the service has noted and nobody can ask for any more: one process, now and then."""
        owners = self._service.owners
        now = time.monotonic()
        if now - self._expired_at < _SECONDS_BETWEEN_EXPIRIES:
            return
        self._expired_at = now
        if owners is not None and not owners.is_preferred("expiry"):
            return
        try:
            removed = remove_expired(self._service.namespaces.store)
        except WeirError as error:
            _log.warning("expired notes could not be removed", exc_info=error)
            return
        if removed:
            _log.info(
                "notes expired", extra={"event_fields": {"event": "upkeep.expired", "objects": removed}}
            )

    def _look_after(self, namespace: Namespace, work: Callable[[], bool]) -> None:
        began = time.monotonic()
        try:
            if not work():
                return
            outcome = "done"
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

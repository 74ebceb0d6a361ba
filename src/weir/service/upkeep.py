"""Upkeep of the namespaces: flush, merge, index and compact what was written, and remove garbage."""

from __future__ import annotations

import logging
import threading
import time

from weir.errors import WeirError
from weir.namespaces import Namespace
from weir.service.context import Service
from weir.service.telemetry import Telemetry

__all__ = ["Upkeep"]

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
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="weir-upkeep", daemon=True)
        service.loops["upkeep"] = self._thread.is_alive

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, after the namespace that is being looked after."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._interval):
            for namespace in self._service.namespaces.open_here():
                if self._stopping.is_set():
                    return
                self._look_after(namespace)

    def _look_after(self, namespace: Namespace) -> None:
        began = time.monotonic()
        try:
            if not namespace.maintain():
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

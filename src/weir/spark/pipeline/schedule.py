"""Runs services at intervals, each on its own thread, with retries after failures.

Independent of tables and of Spark.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from weir.engine.logs import get_logger

__all__ = ["Schedule", "ScheduledService", "ServiceState", "retry_after"]

_log = get_logger(__name__)

_FIRST_RETRY = 1.0
_LONGEST_RETRY = 60.0


@dataclass(frozen=True, slots=True)
class ScheduledService:
    """A service that runs at an interval.

    Parameters
    ----------
    name : str
        What it is.
    every : timedelta
        From the beginning of one run to that of the next.
    run : callable
        Runs it and returns a few figures.
    """

    name: str
    every: timedelta
    run: Callable[[], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ServiceState:
    """The state of a service.

    Parameters
    ----------
    runs, failures : int
        Number of successful and failed runs.
    failures_in_a_row : int
        Failures since the last success.
    seconds : float
        Duration of the last success.
    last_error : str
        Message of the last failure; empty after a success.
    """

    runs: int = 0
    failures: int = 0
    failures_in_a_row: int = 0
    seconds: float = 0.0
    last_error: str = ""


def retry_after(failures: int, every: float) -> float:
    """Return the seconds to wait after a number of consecutive failures.

    Doubles each time, from a second up to the interval or a minute, whichever is longer.

    Examples
    --------
    >>> [retry_after(failures, every=10.0) for failures in (1, 2, 3, 9)]
    [1.0, 2.0, 4.0, 60.0]
    """
    return min(_FIRST_RETRY * 2.0 ** min(failures - 1, 30), max(every, _LONGEST_RETRY))


class Schedule:
    """Runs services in the background, from :meth:`start` to :meth:`stop`.

    Parameters
    ----------
    services : sequence of ScheduledService
        The services.
    prepare : callable, optional
        Called once on the thread of each service, before anything else.
    """

    def __init__(
        self, services: Sequence[ScheduledService], prepare: Callable[[], None] | None = None
    ) -> None:
        self._services = tuple(services)
        self._prepare = prepare
        self._stopping = threading.Event()
        self._abandoned = threading.Event()
        self._states = {service.name: ServiceState() for service in services}
        # Daemons: a run that does not end in time does not keep the process.
        self._threads = [
            threading.Thread(
                target=self._repeat, args=(service,), name=f"weir-pipeline-{service.name}", daemon=True
            )
            for service in self._services
        ]

    @property
    def states(self) -> dict[str, ServiceState]:
        """The state of each service, by name."""
        return dict(self._states)

    def start(self) -> None:
        """Start: the first run of each service is due an interval from now."""
        for thread in self._threads:
            thread.start()

    def stop(self, grace: timedelta) -> tuple[str, ...]:
        """Start no further run, and wait for running ones.

        Parameters
        ----------
        grace : timedelta
            How long to wait.

        Returns
        -------
        tuple of str
            The services that are still running.
        """
        self._stopping.set()
        deadline = time.monotonic() + grace.total_seconds()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(deadline - time.monotonic(), 0.0))
        running = tuple(
            service.name
            for service, thread in zip(self._services, self._threads, strict=True)
            if thread.is_alive()
        )
        if running:
            self._abandoned.set()
        return running

    def run_each(
        self, services: Sequence[ScheduledService], break_off: Callable[[], bool] = lambda: False
    ) -> None:
        """Run some services once on this thread, until interrupted. Failures are logged."""
        for service in services:
            if break_off():
                return
            self._run(service)

    def _repeat(self, service: ScheduledService) -> None:
        if self._prepare is not None:
            self._prepare()
        every = service.every.total_seconds()
        due = time.monotonic() + every
        while not self._stopping.wait(max(due - time.monotonic(), 0.0)):
            began = time.monotonic()
            self._run(service)
            failures = self._states[service.name].failures_in_a_row
            due = time.monotonic() + retry_after(failures, every) if failures else began + every

    def _run(self, service: ScheduledService) -> None:
        began = time.monotonic()
        state = self._states.get(service.name, ServiceState())
        try:
            figures = service.run()
        except Exception as error:
            if self._abandoned.is_set():
                # Nobody waits for it, and what it ran on may be gone.
                return
            # Whatever it is, the stream goes on, and the next run may succeed.
            failed = replace(
                state,
                failures=state.failures + 1,
                failures_in_a_row=state.failures_in_a_row + 1,
                last_error=str(error) or type(error).__name__,
            )
            self._states[service.name] = failed
            _log.warning(
                "pipeline.service_failed",
                service=service.name,
                failures_in_a_row=failed.failures_in_a_row,
                error=failed.last_error,
            )
            return
        seconds = time.monotonic() - began
        self._states[service.name] = replace(
            state, runs=state.runs + 1, failures_in_a_row=0, seconds=seconds, last_error=""
        )
        _log.info("pipeline.service_ran", service=service.name, seconds=round(seconds, 3), **figures)

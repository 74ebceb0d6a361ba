from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from weir.spark.pipeline.schedule import Schedule, ScheduledService, retry_after

LONG = timedelta(hours=1)
AT_ONCE = timedelta(milliseconds=1)


class Work:
    """Counts its runs, fails as often as told, and says when it has run so often."""

    def __init__(self, failures: int = 0, until: int = 3) -> None:
        self.failures = failures
        self.until = until
        self.runs = 0
        self.done = threading.Event()

    def __call__(self) -> Mapping[str, Any]:
        self.runs += 1
        if self.runs >= self.until:
            self.done.set()
        if self.runs <= self.failures:
            raise RuntimeError(f"failure {self.runs}")
        return {"worked": self.runs}


def test_each_service_runs_again_and_again_until_it_is_stopped() -> None:
    often, never = Work(), Work()
    schedule = Schedule([ScheduledService("often", AT_ONCE, often), ScheduledService("never", LONG, never)])
    schedule.start()
    assert often.done.wait(60)
    assert schedule.stop(LONG) == ()
    runs = often.runs
    assert schedule.states["often"].runs == runs
    assert schedule.states["often"].failures == 0
    assert never.runs == 0
    assert not often.done.wait(0.01) or often.runs == runs


def test_a_failure_is_logged_and_tried_again_and_stops_nothing_else(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weir.spark.pipeline.schedule._FIRST_RETRY", 0.001)
    failing, fine = Work(failures=2), Work()
    schedule = Schedule(
        [ScheduledService("failing", AT_ONCE, failing), ScheduledService("fine", AT_ONCE, fine)]
    )
    with caplog.at_level(logging.INFO, logger="weir"):
        schedule.start()
        assert failing.done.wait(60)
        assert fine.done.wait(60)
        schedule.stop(LONG)
    state = schedule.states["failing"]
    assert (state.failures, state.failures_in_a_row, state.last_error) == (2, 0, "")
    assert state.runs == failing.runs - 2
    events = [getattr(record, "event_fields", {}) for record in caplog.records]
    failed = [event for event in events if event.get("event") == "pipeline.service_failed"]
    assert [(event["service"], event["failures_in_a_row"], event["error"]) for event in failed] == [
        ("failing", 1, "failure 1"),
        ("failing", 2, "failure 2"),
    ]
    assert any(event.get("event") == "pipeline.service_ran" and event["worked"] == 3 for event in events)


def test_waiting_after_failures_grows_and_has_a_limit() -> None:
    assert [retry_after(failures, every=600.0) for failures in (1, 2, 5, 20, 10_000)] == [1, 2, 16, 600, 600]
    assert retry_after(20, every=1.0) == 60.0


def test_stopping_waits_for_what_has_begun_but_not_for_ever() -> None:
    began, release = threading.Event(), threading.Event()

    def work() -> Mapping[str, Any]:
        began.set()
        assert release.wait(60)
        return {}

    schedule = Schedule([ScheduledService("slow", AT_ONCE, work)])
    schedule.start()
    assert began.wait(60)
    assert schedule.stop(timedelta(0)) == ("slow",)
    release.set()
    assert schedule.stop(LONG) == ()
    assert schedule.states["slow"].runs == 1


def test_a_closing_round_runs_each_once_in_order_whatever_fails() -> None:
    order: list[str] = []

    def work(name: str) -> Mapping[str, Any]:
        order.append(name)
        if name == "merge":
            raise RuntimeError
        return {}

    names = ("merge", "compact", "index")
    services = [ScheduledService(name, LONG, lambda name=name: work(name)) for name in names]  # type: ignore[misc]
    schedule = Schedule(services)
    schedule.start()
    schedule.stop(LONG)
    schedule.run_each(services)
    assert order == list(names)
    assert [schedule.states[name].runs for name in names] == [0, 1, 1]
    assert schedule.states["merge"].last_error == "RuntimeError"


def test_services_are_prepared_on_their_own_threads() -> None:
    prepared: list[str] = []
    work = Work(until=1)
    schedule = Schedule(
        [ScheduledService("one", AT_ONCE, work)],
        prepare=lambda: prepared.append(threading.current_thread().name),
    )
    schedule.start()
    assert work.done.wait(60)
    schedule.stop(LONG)
    assert prepared == ["weir-pipeline-one"]

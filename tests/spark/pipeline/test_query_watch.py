"""Waiting for a query whose Spark answers, fails, or says nothing any more."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from weir.spark.pipeline.query_watch import QueryWatch
from weir.spark.silence import SparkSilentError

ZERO: dict[str, int] = {}


class Query:
    """Stands for a query: it ends, fails, or does not answer, when it is told to."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.answers = threading.Event()
        self.answers.set()
        self.error: Exception | None = None

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802
        self.answers.wait()
        if self.error is not None:
            raise self.error
        return self.ended.wait(timeout)

    @property
    def isActive(self) -> bool:  # noqa: N802
        self.answers.wait()
        return not self.ended.is_set()


@pytest.fixture
def query() -> Any:
    return Query()


def test_it_waits_for_the_end(query: Any) -> None:
    watch = QueryWatch(query, silence=1.0)
    assert not watch.wait(0.05)
    threading.Timer(0.3, query.ended.set).start()
    assert watch.wait()
    assert watch.wait(0.0)
    assert watch.run(lambda: 5) == 5
    watch.close()


def test_what_a_query_fails_with_is_raised(query: Any) -> None:
    watch = QueryWatch(query, silence=1.0)
    query.error = ZeroDivisionError("no")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            watch.wait()
    # What fails may be asked for all the same.
    with pytest.raises(KeyError):
        watch.run(lambda: ZERO["none"])
    watch.close()


@pytest.mark.parametrize("ended", [False, True])
def test_nobody_waits_for_a_spark_that_says_nothing(query: Any, ended: bool) -> None:
    watch = QueryWatch(query, silence=1.0)
    if ended:
        query.ended.set()
        assert watch.wait()
    query.answers.clear()
    began = time.monotonic()
    if not ended:
        with pytest.raises(SparkSilentError, match="has said nothing for 1 s"):
            watch.wait()
    with pytest.raises(SparkSilentError):
        watch.run(query.answers.wait)
    assert watch.is_silent
    assert time.monotonic() - began > 0.9
    # It was slow, not gone.
    query.answers.set()
    deadline = time.monotonic() + 60
    while watch.is_silent and time.monotonic() < deadline:
        time.sleep(0.01)
    query.ended.set()
    assert watch.wait(60)
    watch.close()


def test_a_process_that_stood_still_itself_goes_on(query: Any) -> None:
    """The time between two looks counts for a second at most."""
    watch = QueryWatch(query, silence=1.5)
    query.answers.clear()
    assert not watch.wait(0.01)
    watch._looked_at -= 1000.0
    assert not watch.wait(0.01)
    query.answers.set()
    watch.close()

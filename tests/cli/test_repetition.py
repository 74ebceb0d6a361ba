"""Rounds until a signal arrives."""

from __future__ import annotations

import os
import signal
import threading
import time
from datetime import timedelta

import pytest

from weir.cli.repetition import repeat


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_a_round_lets_it_finish(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    rounds: list[str] = []

    def action() -> None:
        rounds.append("begun")
        if len(rounds) == 5:
            os.kill(os.getpid(), number)
            time.sleep(0.01)
        rounds.append("finished")

    repeat(action, timedelta(0))
    assert rounds == ["begun", "finished"] * 3
    assert signal.getsignal(number) is before


def test_a_signal_ends_the_waiting() -> None:
    rounds: list[int] = []
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
    repeat(lambda: rounds.append(1), timedelta(hours=1))
    assert rounds == [1]


def test_a_second_signal_interrupts() -> None:
    def action() -> None:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
        pytest.fail("the second signal did nothing")

    with pytest.raises(KeyboardInterrupt):
        repeat(action, timedelta(0))


def test_an_error_ends_it_and_the_handlers_are_as_before() -> None:
    before = signal.getsignal(signal.SIGTERM)

    def action() -> None:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        repeat(action, timedelta(0))
    assert signal.getsignal(signal.SIGTERM) is before

"""Signals as wishes and as calls: real ones, that this process sends to itself."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from weir.engine.stop_signals import STOP_SIGNALS, handle_stop_signals, stop_when_asked


@pytest.fixture(autouse=True)
def interrupts() -> Iterator[None]:
    """As in a terminal: what a script starts in the background ignores SIGINT, and so does its Python."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def send(number: int) -> None:
    os.kill(os.getpid(), number)


def test_every_signal_is_a_call_inside_the_block() -> None:
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    calls: list[int] = []
    with handle_stop_signals(calls.append):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            send(number)
    assert calls == [signal.SIGINT, signal.SIGTERM, signal.SIGINT]
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before


def test_the_first_signal_is_a_wish_and_the_second_a_call() -> None:
    calls: list[int] = []
    with stop_when_asked(calls.append) as asked:
        assert not asked.is_set()
        send(signal.SIGTERM)
        assert asked.is_set()
        assert calls == []
        send(signal.SIGINT)
    assert calls == [signal.SIGINT]


def test_the_second_signal_does_what_it_did_before_the_block() -> None:
    calls: list[int] = []
    with handle_stop_signals(calls.append):
        with stop_when_asked() as asked:
            send(signal.SIGTERM)
            assert asked.is_set()
            assert calls == []
            send(signal.SIGTERM)
            assert calls == [signal.SIGTERM]
        send(signal.SIGINT)
    assert calls == [signal.SIGTERM, signal.SIGINT]
    with stop_when_asked():
        send(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)

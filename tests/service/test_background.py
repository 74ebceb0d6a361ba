"""What goes on after its request: once, not without end, and not for longer than an end may take."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from weir.service.background import Background
from weir.service.refusals import Refusal


class Held:
    """Work that goes on until it is let go."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.let_go = threading.Event()

    def work(self, name: str) -> None:
        self.begun.append(name)
        self.let_go.wait(60)


@pytest.fixture
def held() -> Iterator[Held]:
    """Work that keeps the threads for as long as a test lasts."""
    one = Held()
    yield one
    one.let_go.set()


def test_what_is_asked_for_again_before_it_begins_is_done_once(held: Held) -> None:
    background = Background()
    for name in ("a", "b", *"cd" * 50):
        background.begin(held.work, name)
    held.let_go.set()
    background.begin(held.work, "e")
    while len(held.begun) < 5:
        threading.Event().wait(0.01)
    assert background.close(60)
    assert sorted(held.begun) == ["a", "b", "c", "d", "e"]


def test_who_asks_for_too_much_is_refused(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weir.service.background._MOST_WAITING", 3)
    background = Background()
    for number in range(5):  # two begin, three wait
        background.begin(held.work, str(number))
        while len(held.begun) < min(number + 1, 2):
            threading.Event().wait(0.01)
    with pytest.raises(Refusal) as refused:
        background.begin(held.work, "5")
    assert (refused.value.status, refused.value.retry_after) == (429, 1)


def test_what_takes_too_long_holds_up_no_end(held: Held) -> None:
    background = Background()
    for number in range(3):
        background.begin(held.work, str(number))
    while len(held.begun) < 2:
        threading.Event().wait(0.01)
    assert not background.close(0.05)
    held.let_go.set()
    assert background.close(60)
    assert sorted(held.begun) == ["0", "1"]

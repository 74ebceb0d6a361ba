"""The model can say no: each kind of broken promise is told from a kept one."""

from __future__ import annotations

import pytest

from tests.faults.model import Change, Key, Model, Observation, Write

ONE: Key = (0, 1)
TWO: Key = (0, 2)


def write(name: str, began: float, ended: float, position: int | None, *keys: Key) -> Write:
    return Write(name, f"writer of {name}", frozenset(keys or (ONE,)), False, began, ended, position)


def change(position: int, value: str | None, key: Key = ONE, epoch: int = 1) -> Change:
    return Change(0, position, epoch, key, value)


def refused(name: str) -> Write:
    return Write(name, f"writer of {name}", frozenset((ONE,)), False, 1.0, 2.0, None, is_refused=True)


def test_what_may_be() -> None:
    model = Model()
    model.follow(
        [
            write("a", 1.0, 2.0, 5),
            write("in doubt, landed", 3.0, 9.0, None, ONE, TWO),
            write("in doubt, lost", 3.0, 9.0, None),
            Write("deleted", "d", frozenset((TWO,)), True, 10.0, 11.0, 8),
        ],
        [
            change(5, "a"),
            change(7, "in doubt, landed"),
            change(7, "in doubt, landed", TWO),
            change(8, None, TWO),
        ],
    )
    assert model.rows == {ONE: "in doubt, landed"}
    model.check(Observation(2.5, 2.6, frozenset((ONE,)), {ONE: "a"}))
    model.check(Observation(4.0, 12.0, frozenset((ONE, TWO)), {ONE: "in doubt, landed"}))


@pytest.mark.parametrize(
    ("writes", "changes"),
    [
        pytest.param([write("a", 1.0, 2.0, 5)], [], id="lost"),
        pytest.param([write("a", 1.0, 2.0, 5)], [change(6, "a")], id="elsewhere"),
        pytest.param([write("a", 1.0, 2.0, 5)], [change(5, "a"), change(6, "a")], id="twice"),
        pytest.param([write("a", 1.0, 2.0, None, ONE, TWO)], [change(5, "a")], id="torn"),
        pytest.param([refused("a")], [change(5, "a")], id="refused"),
        pytest.param([], [change(5, "a")], id="by nobody"),
        pytest.param([], [change(5, None)], id="deleted by nobody"),
        pytest.param(
            [write("a", 1.0, 2.0, 6), write("b", 3.0, 4.0, 5)],
            [change(5, "b"), change(6, "a")],
            id="out of order",
        ),
        pytest.param(
            [write("a", 1.0, 9.0, 5), write("b", 1.0, 9.0, 6)],
            [change(5, "a", epoch=2), change(6, "b", epoch=1)],
            id="by a fenced writer",
        ),
    ],
)
def test_what_may_not_be(writes: list[Write], changes: list[Change]) -> None:
    with pytest.raises(AssertionError):
        Model().follow(writes, changes)


@pytest.mark.parametrize(
    ("began", "ended", "found"),
    [(2.5, 2.6, None), (4.5, 4.6, "a"), (0.1, 0.2, "a"), (4.5, 4.6, "never written")],
    ids=["missing", "stale", "from the future", "made up"],
)
def test_what_may_not_be_seen(began: float, ended: float, found: str | None) -> None:
    model = Model()
    model.follow(
        [write("a", 1.0, 2.0, 5), write("b", 3.0, 4.0, 6)],
        [change(5, "a"), change(6, "b")],
    )
    with pytest.raises(AssertionError):
        model.check(Observation(began, ended, frozenset((ONE,)), {} if found is None else {ONE: found}))

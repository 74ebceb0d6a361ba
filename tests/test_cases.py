"""Of the cases that a test lists, the short run has as many as a mark says, and the long one the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.cases import mark_long


@pytest.mark.covering
@pytest.mark.parametrize("kind", ["a", "b", "c"])
@pytest.mark.parametrize(("size", "flushed"), [(1, True), (2, True), (1, False)])
def _pairs(kind: str, size: int, flushed: bool) -> None: ...


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(8))
def _seeds(seed: int) -> None: ...


@pytest.mark.parametrize("seed", range(3))
def _others(seed: int) -> None: ...


def _case(
    parent: pytest.Collector, test: Any, *marks: pytest.MarkDecorator, **values: Any
) -> pytest.Function:
    spec: Any = SimpleNamespace(params=values, marks=[one.mark for one in marks], _idlist=(), indices={})
    name = f"{test.__name__}[{'-'.join(map(str, values.values()))}]"
    return pytest.Function.from_parent(parent, name=name, callobj=test, callspec=spec)


def _short(cases: list[pytest.Function]) -> list[str]:
    mark_long(cases)
    return [case.name.partition("[")[2][:-1] for case in cases if case.get_closest_marker("long") is None]


def test_every_value_is_there_once(request: pytest.FixtureRequest) -> None:
    """Those of one list belong together: of a size and whether it is flushed, each pair that is listed."""
    cases = [
        _case(request.node.parent, _pairs, size=size, flushed=flushed, kind=kind)
        for size, flushed in [(1, True), (2, True), (1, False)]
        for kind in "abc"
    ]
    assert _short(cases) == ["1-True-a", "2-True-b", "1-False-c"]


def test_one_in_so_many_of_those_that_are_not_long_anyway(request: pytest.FixtureRequest) -> None:
    seeds = [_case(request.node.parent, _seeds, seed=seed) for seed in range(7)]
    long = _case(request.node.parent, _seeds, pytest.mark.long, seed=7)
    others = [_case(request.node.parent, _others, seed=seed) for seed in range(3)]
    assert _short([long, *seeds, *others]) == ["0", "3", "6", "0", "1", "2"]

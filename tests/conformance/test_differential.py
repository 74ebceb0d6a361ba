"""A few of the histories of which ``make conformance`` plays thousands; and that they find a mistake."""

from __future__ import annotations

import random

import pytest
from tests.conformance.differential.history import History, Step, find, run, shrink
from tests.conformance.differential.world import World


@pytest.mark.one_in(6)
@pytest.mark.parametrize("seed", range(6))
def test_everybody_shows_the_same(seed: int) -> None:
    found = find(seed, 20, cut=False)
    assert found is None, found


def test_a_mistake_is_found_and_cut_down_to_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    def deletes_unseen(world: World, chance: random.Random) -> None:
        if world.ours is not None:
            world.ours.delete(world.model.shape.keys(world.keys))

    monkeypatch.setattr(World, "compact", deletes_unseen)
    names = ["catch_up", "weir_upserts", "weir_flushes", "merge", "weir_upserts", "compact", "weir_upserts"]
    failure = run(History(1, tuple(Step(name, number) for number, name in enumerate(names))))
    assert failure is not None
    assert failure.at == 5
    smallest = shrink(failure, seconds=30)
    assert [step.name for step in smallest.history.steps] == ["weir_upserts", "compact"]

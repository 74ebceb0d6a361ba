"""What the checker takes for right and for wrong, where histories seldom get to."""

from __future__ import annotations

import pytest
from tests.simulation.checker import _Entry
from tests.simulation.substitution import substituted
from tests.simulation.world import World


@pytest.mark.parametrize(("published", "is_right"), [(5, True), (4, False)])
def test_a_row_is_left_out_for_what_the_entry_before_it_publishes(published: int, is_right: bool) -> None:
    """A write that depends on a value being even is decided after the generations that an entry names."""
    with substituted():
        world = World(0)
        checker, shard = world.checker, world.scenario.shards[0]
        model, rows = checker.shards[shard], [(0, published, False)]
        model.entries.append(_Entry(1, True, [], rows))
        model.states.append(checker._after({}, rows))
        checker.acknowledged(checker.began(shard, [(0, 6, False)], decides=True), 1)
    assert [one.invariant for one in checker.violations] == ([] if is_right else ["decided"])

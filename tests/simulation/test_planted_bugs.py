"""The checker can fail: it finds every bug that is put in on purpose."""

from __future__ import annotations

import pytest
from tests.simulation.planted_bugs import PLANTED_BUGS, PlantedBug
from tests.simulation.simulation import simulate
from tests.simulation.substitution import substituted

_MAX_SEEDS = 1500


@pytest.mark.parametrize("bug", PLANTED_BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: PlantedBug) -> None:
    with substituted():
        for seed in range(_MAX_SEEDS):
            with bug.planted():
                violations = simulate(seed).violations
            if violations:
                break
        else:
            pytest.fail(f"not found within {_MAX_SEEDS} seeds")
        assert violations[0].invariant in bug.breaks, f"seed {seed}: {violations[0]}"
        assert not simulate(seed).violations

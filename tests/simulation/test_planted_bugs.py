"""The checker can fail: it finds every bug that is put in on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.simulation.planted_bugs import PLANTED_BUGS, PlantedBug
from tests.simulation.simulation import simulate
from tests.simulation.substitution import substituted

_MAX_SEEDS = 2000
"""Of bugs that show in one history of two hundred, nearly all show in three hundred; one in ten thousand
takes as many as these."""
_PAGE = Path(__file__).resolve().parents[2] / "docs" / "simulation.md"


@pytest.mark.one_in(2)
@pytest.mark.parametrize("bug", PLANTED_BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: PlantedBug) -> None:
    expected = bug.breaks.split(", ")
    others: list[str] = []
    with substituted(), bug.planted():
        for seed in range(bug.first_seed, bug.first_seed + _MAX_SEEDS):
            violations = simulate(seed, kind=bug.kind, is_long=bug.is_long).violations
            if violations and violations[0].invariant in expected:
                break
            # What follows from a mistake may show first. It does not count.
            others += [f"seed {seed}: {violations[0]}" for _ in violations[:1]]
        else:
            pytest.fail(f"not found within {_MAX_SEEDS} seeds from {bug.first_seed}, but {others}")
    with substituted():
        assert not simulate(seed, kind=bug.kind, is_long=bug.is_long).violations


def test_every_planted_bug_is_documented() -> None:
    page = _PAGE.read_text()
    assert [bug.name for bug in PLANTED_BUGS if f"| {bug.name} |" not in page] == []


@pytest.mark.parametrize("bug", PLANTED_BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_replaces_what_has_a_public_name(bug: PlantedBug) -> None:
    owners = [(getattr(owner, "__name__", repr(owner)), name) for owner, name, _ in bug.patches()]
    assert [
        one for one in owners if any(part.startswith("_") for text in one for part in text.split("."))
    ] == []

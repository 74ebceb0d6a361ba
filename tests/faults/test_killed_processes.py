"""A few rounds of ``make faults``: many processes on one table, killed at any moment and started again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.killing import Killing, killing_on_s3

ROUNDS = 4
HAPPENS = ("acknowledged", "saw", "merged", "collected", "writers killed", "mergers killed")


@pytest.mark.parametrize("least", [1, pytest.param(ROUNDS, marks=pytest.mark.long)])
@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL and SIGSTOP")
def test_no_promise_is_broken_by_death(tmp_path: Path, least: int) -> None:
    killing = Killing(tmp_path, seed=7)
    for played in range(1, ROUNDS + 1):
        killing.play()
        if played >= least and all(killing.counts[event] for event in HAPPENS):
            return
    raise AssertionError(f"nothing of what is to be shown has happened: {killing.counts}")


@pytest.mark.long
@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL and SIGSTOP")
def test_no_promise_is_broken_by_death_on_an_object_store(tmp_path: Path) -> None:
    """Requests of the dead arrive late, and those of the living get lost."""
    with killing_on_s3(tmp_path, seed=3, longest_life=6.0) as killing:
        for _ in range(ROUNDS):
            killing.play()
            # On a busy machine a process may be killed before it has written.
            if killing.counts["acknowledged"] and killing.counts["writers killed"]:
                return
    raise AssertionError(f"nothing of what is to be shown has happened: {killing.counts}")

"""Running a history, and cutting one that fails down to the steps that it takes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.conformance.differential.world import World

__all__ = ["Failure", "History", "find", "history_of", "run", "shrink"]

WEIGHTS = {
    "weir_upserts": 10,
    "weir_deletes": 5,
    "weir_patches": 3,
    "weir_inserts": 2,
    "weir_updates_where": 1,
    "weir_deletes_where": 1,
    "weir_shares": 2,
    "weir_snapshots": 2,
    "weir_flushes": 4,
    "weir_closes": 2,
    "weir_dies": 2,
    "weir_dies_in_a_flush": 1,
    "weir_dies_in_a_claim": 1,
    "recover": 1,
    "library_puts": 8,
    "library_deletes": 4,
    "library_closes": 3,
    "library_dies": 1,
    "library_merges": 1,
    "merge": 5,
    "merge_dies": 1,
    "merge_divided": 2,
    "merge_divided_dies": 1,
    "collect": 2,
    "collect_dies": 1,
    "compact": 1,
    "catch_up": 1,
    "maintain": 1,
    "repair": 1,
    "weir_indexes": 1,
    "weir_alters": 2,
    "weir_widens": 1,
    "weir_clones": 1,
    "lance_alters": 2,
    "lance_merge_inserts": 3,
    "lance_deletes": 2,
    "lance_updates": 2,
    "lance_compacts": 1,
    "lance_indexes": 1,
    "lance_optimizes_indexes": 1,
    "lance_cleans_up": 1,
    "lance_restores": 1,
    "lance_clones": 1,
}


@dataclass(frozen=True)
class Step:
    """A step and what decides it: the same in a history that others have been cut out of."""

    name: str
    seed: int


@dataclass(frozen=True)
class History:
    """What one seed comes to."""

    seed: int
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Failure:
    """A history that ended in a difference, or an error."""

    history: History
    at: int
    error: BaseException

    @property
    def kind(self) -> str:
        """What tells one failure from another, roughly."""
        return f"{type(self.error).__name__}: {str(self.error)[:40]}"


def history_of(seed: int, length: int) -> History:
    """Return the history of a seed."""
    chance = random.Random(f"history {seed}")
    names = chance.choices(list(WEIGHTS), list(WEIGHTS.values()), k=length)
    return History(seed, tuple(Step(name, chance.randrange(1 << 30)) for name in names))


def run(history: History, make_world: Callable[[int], World] = World) -> Failure | None:
    """Play a history; return what failed first."""
    world = make_world(history.seed)
    at = 0
    try:
        state = world.state()
        for step in history.steps:
            getattr(world, step.name)(random.Random(step.seed))
            world.note_version()
            before, state, anew = state, world.state(), step.seed % 4 == 0
            if anew or state is None or state != before:
                world.check(anew=anew, feed=step.seed % 3 == 0, asked=step.seed)
            at += 1
        world.settle()
    except Exception as error:
        return Failure(history, at, error)
    finally:
        world.close()
    return None


def shrink(failure: Failure, seconds: float = 60.0) -> Failure:
    """Cut steps out as long as it fails in the same way, for some time."""
    deadline = time.monotonic() + seconds
    smallest = failure
    steps: Sequence[Step] = failure.history.steps[: failure.at + 1]
    size = max(len(steps) // 2, 1)
    while size and time.monotonic() < deadline:
        start = 0
        while start < len(steps) and time.monotonic() < deadline:
            fewer = (*steps[:start], *steps[start + size :])
            found = run(History(failure.history.seed, tuple(fewer)))
            if found is not None and found.kind == failure.kind:
                smallest, steps = found, found.history.steps[: found.at + 1]
            else:
                start += size
        size //= 2
    return smallest


def find(seed: int, length: int, *, cut: bool = True) -> str | None:
    """Play the history of a seed; return what is wrong, in words."""
    failure = run(history_of(seed, length))
    if failure is None:
        return None
    smallest = shrink(failure) if cut else failure
    steps = "\n".join(f"    {one.name} {one.seed}" for one in smallest.history.steps[: smallest.at + 1])
    return f"seed {seed}, step {smallest.at}: {type(smallest.error).__name__}: {smallest.error}\n{steps}"

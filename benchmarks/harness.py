"""Timing contenders in turns, and judging what came out against a target.

Every contender does the same work. They take turns, block by block, and the order is reversed in every
second round, so that whatever else the machine does hits all of them alike.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum

__all__ = [
    "Case",
    "Contender",
    "Measurement",
    "Sense",
    "Target",
    "Verdict",
    "judge",
    "measure",
]

_MIN_CALLS = 3


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to do the work.

    Parameters
    ----------
    name : str
        Name in tables and plots.
    session : callable
        Returns a context manager whose value is the call to time. It is entered once per block, outside
        the timing: opening writers, clearing caches.
    """

    name: str
    session: Callable[[], AbstractContextManager[Callable[[], object]]]


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one contender took.

    Parameters
    ----------
    contender : str
        Its name.
    blocks : tuple of tuple of float
        Seconds of every timed call, per round.
    """

    contender: str
    blocks: tuple[tuple[float, ...], ...]

    @property
    def seconds(self) -> list[float]:
        """Every timed call, ascending."""
        return sorted(value for block in self.blocks for value in block)

    @property
    def median(self) -> float:
        """Seconds half of the calls took at most.

        Examples
        --------
        >>> Measurement("one", ((3.0, 1.0), (2.0,))).median
        2.0
        """
        return statistics.median(self.seconds)

    def quantile(self, share: float) -> float:
        """Return the seconds that ``share`` of the calls took at most (nearest rank).

        Examples
        --------
        >>> Measurement("one", ((4.0, 1.0, 3.0, 2.0),)).quantile(0.75)
        3.0
        """
        seconds = self.seconds
        return seconds[min(len(seconds) - 1, max(0, -int(-share * len(seconds) // 1) - 1))]

    @property
    def mean(self) -> float:
        """Mean seconds of a call, what throughput follows from: it includes the slow ones."""
        return statistics.fmean(self.seconds)


class Sense(Enum):
    """What the factor of a target bounds."""

    FASTER = "times faster than"
    """The reference takes at least ``factor`` times as long."""

    WITHIN = "times the time of"
    """The contender takes at most ``factor`` times as long as the reference."""


@dataclass(frozen=True, slots=True)
class Target:
    """What one contender has to reach, as a ratio of medians.

    Parameters
    ----------
    contender : str
        Who has to reach it.
    sense : Sense
        What the factor bounds.
    factor : float
        The bound.
    references : tuple of str
        Whom it is compared with. Of several, the fastest counts.
    """

    contender: str
    sense: Sense
    factor: float
    references: tuple[str, ...]

    def describe(self) -> str:
        """Return the target for people, to be followed by the reference."""
        bound = "at least" if self.sense is Sense.FASTER else "at most"
        return f"{bound} {self.factor:g} {self.sense.value}"


@dataclass(frozen=True, slots=True)
class Case:
    """One piece of work, done by all contenders.

    Parameters
    ----------
    subject : str
        The subject it belongs to.
    name : str
        The work.
    measurements : tuple of Measurement
        One per contender.
    targets : tuple of Target
        What has to be reached.
    rows_per_call : int
        Rows that one call moves, for throughput; 0 where it says nothing.
    """

    subject: str
    name: str
    measurements: tuple[Measurement, ...]
    targets: tuple[Target, ...] = ()
    rows_per_call: int = 0

    def measurement(self, contender: str) -> Measurement:
        """Return what a contender took."""
        return next(one for one in self.measurements if one.contender == contender)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target and what was reached.

    Parameters
    ----------
    target : Target
        The target.
    reference : str
        The reference that counted.
    ratio : float
        The ratio of medians, in the sense of the target.
    lowest, highest : float
        The smallest and largest ratio of the medians of one round: how much the machine's noise matters.
    limit : float
        Median seconds the contender may take to meet the target.
    """

    target: Target
    reference: str
    ratio: float
    lowest: float
    highest: float
    limit: float

    @property
    def met(self) -> bool:
        """Whether the target was reached."""
        if self.target.sense is Sense.FASTER:
            return self.ratio >= self.target.factor
        return self.ratio <= self.target.factor


def judge(case: Case, target: Target) -> Verdict:
    """Compare what a target's contender took with its fastest reference.

    Examples
    --------
    >>> fast, slow = Measurement("fast", ((1.0,),)), Measurement("slow", ((3.0,),))
    >>> case = Case("subject", "work", (fast, slow))
    >>> verdict = judge(case, Target("fast", Sense.FASTER, 2.0, ("slow",)))
    >>> verdict.ratio, verdict.met
    (3.0, True)
    >>> judge(case, Target("slow", Sense.WITHIN, 2.0, ("fast",))).met
    False
    """
    own = case.measurement(target.contender)
    reference = min((case.measurement(name) for name in target.references), key=lambda one: one.median)

    def ratio(mine: float, theirs: float) -> float:
        return theirs / mine if target.sense is Sense.FASTER else mine / theirs

    rounds = [
        ratio(statistics.median(mine), statistics.median(theirs))
        for mine, theirs in zip(own.blocks, reference.blocks, strict=True)
    ]
    faster = target.sense is Sense.FASTER
    return Verdict(
        target,
        reference.contender,
        ratio=ratio(own.median, reference.median),
        lowest=min(rounds),
        highest=max(rounds),
        limit=reference.median / target.factor if faster else reference.median * target.factor,
    )


def measure(
    contenders: Sequence[Contender], *, rounds: int, calls: int, warm_up: int = 1, block_seconds: float = 2.0
) -> tuple[Measurement, ...]:
    """Time the contenders in turns.

    Parameters
    ----------
    contenders : sequence of Contender
        Who takes part.
    rounds : int
        Blocks of each contender.
    calls : int
        Timed calls of a block.
    warm_up : int
        Calls before them that are not timed.
    block_seconds : float
        A block ends early after this many seconds, so that a slow contender does not take the day.
    """
    blocks: dict[str, list[tuple[float, ...]]] = {one.name: [] for one in contenders}
    for number in range(rounds):
        for contender in contenders if number % 2 == 0 else reversed(contenders):
            with contender.session() as call:
                for _ in range(warm_up):
                    call()
                _settle()
                blocks[contender.name].append(_block(call, calls, block_seconds))
    return tuple(Measurement(name, tuple(done)) for name, done in blocks.items())


def _settle() -> None:
    """Let nobody pay for what others left behind: garbage, and pages not yet written to disk."""
    gc.collect()
    os.sync()


def _block(call: Callable[[], object], calls: int, block_seconds: float) -> tuple[float, ...]:
    taken: list[float] = []
    clock = time.perf_counter
    end = clock() + block_seconds
    while len(taken) < calls and (len(taken) < _MIN_CALLS or clock() < end):
        start = clock()
        call()
        taken.append(clock() - start)
    return tuple(taken)

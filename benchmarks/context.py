"""What every subject is given: where to work, how much to do, and how to say what it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import Case

__all__ = ["Context", "Result", "Scale", "SparkScale", "Subject"]


@dataclass(frozen=True, slots=True)
class SparkScale:
    """How much work to do on Spark.

    Parameters
    ----------
    base_rows : int
        Rows of the base table that streams write to.
    batch_rows : tuple of int
        Sizes of micro-batches.
    batches : int
        Micro-batches of one query that are timed.
    bulk_rows : int
        Rows that are written or read at once.
    rounds : int
        Turns each contender gets.
    merges : int
        Merges of each session that are timed.
    warm_up : int
        Calls of every turn that are not timed: Spark compiles what it runs, and starts Python workers.
    """

    base_rows: int = 1_000_000
    batch_rows: tuple[int, ...] = (1_000, 10_000, 100_000)
    batches: int = 5
    bulk_rows: int = 2_000_000
    rounds: int = 2
    merges: int = 3
    warm_up: int = 2

    @classmethod
    def trial(cls) -> SparkScale:
        """Return a size that runs in seconds, once Spark has started."""
        return cls(2_000, (100,), batches=1, bulk_rows=2_000, rounds=1, merges=1, warm_up=0)


@dataclass(frozen=True, slots=True)
class Scale:
    """How much work to do.

    Parameters
    ----------
    base_rows, generation_rows : int
        Rows of the base table and of each unmerged generation.
    generations : int
        Unmerged generations.
    rounds : int
        Turns each contender gets.
    touched_mebibytes : int
        Memory to use before the first measurement.
    quick : bool
        Whether this is a trial of the benchmarks rather than a measurement: the targets are meant for the
        full size.
    largest_base_rows : int
        Rows of the largest base table that merges are measured on; they are on 1, 5 and 20 million.
    events : int
        Events that are written into one store, to see whether it slows down.
    spark : SparkScale
        How much work to do on Spark.
    """

    base_rows: int
    generation_rows: int
    generations: int
    rounds: int
    touched_mebibytes: int
    quick: bool
    largest_base_rows: int = 1_000_000
    events: int = 10_000_000
    spark: SparkScale = SparkScale()

    @classmethod
    def full(cls) -> Scale:
        """Return the size that the targets are meant for."""
        return cls(500_000, 10_000, 5, rounds=7, touched_mebibytes=6_000, quick=False)

    @classmethod
    def trial(cls) -> Scale:
        """Return a size that runs in seconds."""
        return cls(
            20_000,
            1_000,
            5,
            rounds=2,
            touched_mebibytes=500,
            quick=True,
            largest_base_rows=0,
            events=150_000,
            spark=SparkScale.trial(),
        )


@dataclass(frozen=True, slots=True)
class Context:
    """What a subject works with.

    Parameters
    ----------
    directory : Path
        Where tables go; all subjects share it.
    scale : Scale
        How much work to do.
    say : callable
        Tells people what is going on.
    """

    directory: Path
    scale: Scale
    say: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Result:
    """What a subject found.

    Parameters
    ----------
    subject : str
        Its name.
    title : str
        What is compared, in one line.
    conditions : sequence of str
        What the figures depend on, each side's durability first.
    cases : sequence of Case
        The figures.
    """

    subject: str
    title: str
    conditions: Sequence[str]
    cases: Sequence[Case]


Subject = Callable[[Context], Result]
"""Runs one subject's cases."""

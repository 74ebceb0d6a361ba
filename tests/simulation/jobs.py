"""A job that numbers its writes: what it has to make, and what of that has been begun and is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from tests.simulation.checker import Outcome, Write
from tests.simulation.engines import Row
from tests.simulation.world import World

from weir.config import WriterOptions
from weir.format.source import Source

__all__ = ["Job"]


@dataclass(slots=True)
class Job:
    """The writes of one source to one shard, made by one process after another, or by two at once.

    Parameters
    ----------
    world : World
        Where.
    name : str
        The name of the source.
    shard : UUID
        Where its writes go.
    calls : int
        How many writes it has to make.
    options : WriterOptions
        Of the writers that make them.
    """

    world: World
    name: str
    shard: UUID
    calls: int
    options: WriterOptions
    writes: list[Write] = field(default_factory=list)
    """By number, those that have been begun. What one writes is the same at every attempt."""

    @property
    def done(self) -> int:
        """How many writes are known to be done."""
        return sum(write.outcome == Outcome.ACKNOWLEDGED for write in self.writes)

    @property
    def is_done(self) -> bool:
        """Whether all of them are."""
        return self.done >= self.calls

    def place(self, back: Sequence[int]) -> int:
        """Return the number from which to go on: up to so many of the writes that are done are repeated.

        Whoever takes a job over does not know quite how far it has got.
        """
        return max(self.done - self.world.random.choice(back), 0)

    def begin(self, rows: Sequence[Row], parts: Sequence[int] = ()) -> Write:
        """Begin the next write."""
        source = Source(self.name, len(self.writes))
        self.writes.append(self.world.checker.began(self.shard, rows, source, parts))
        return self.writes[-1]

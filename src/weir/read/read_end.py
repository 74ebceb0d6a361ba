"""How far a read came, so that the next one need not go back to where nothing has changed."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from weir.lsm.log_tail import TailRun
from weir.snapshots.snapshot import ReadSnapshot

__all__ = ["ReadEnd"]


@dataclass(frozen=True, slots=True)
class ReadEnd:
    """How far a read came, as a small value: the last log position of every shard, and what lies below.

    Parameters
    ----------
    below : Hashable
        What was read below the logs: the version of the base table, and the generations of every shard.
    positions : mapping of UUID to int
        The last log position of every shard.
    """

    below: Hashable = field(repr=False)
    positions: Mapping[UUID, int]

    @classmethod
    def of(cls, snapshot: ReadSnapshot) -> ReadEnd:
        """Return how far a read of a snapshot comes."""
        return cls(_below(snapshot), {view.shard_id: view.last_position for view in snapshot.shards})

    def follows(self, before: ReadEnd) -> bool:
        """Whether a read that came so far can be of the same history as an earlier one.

        A backup from before the first write takes the shards away, and nothing else tells.
        """
        return all(self.positions.get(shard, -1) >= last for shard, last in before.positions.items())

    def tails(self, snapshot: ReadSnapshot) -> list[tuple[TailRun, ...]] | None:
        """Return the log entries written since, for every shard of a newer snapshot.

        None if they are not all in the log any more, or the base table has changed otherwise.
        """
        if _below(snapshot) != self.below:
            return None
        found = []
        for view in snapshot.shards:
            after = self.positions.get(view.shard_id, 0)
            rest = (run.split_after(after) for run in view.tail if run.last_position > after)
            found.append(tuple(run for run in rest if run is not None))
        return found


def _below(snapshot: ReadSnapshot) -> Hashable:
    base = snapshot.base
    generations = {
        view.shard_id: tuple(one.generation for one in view.manifest.flushed_generations)
        for view in snapshot.shards
        if view.manifest.flushed_generations
    }
    return base.namespace, base.version_key, tuple(generations.items())

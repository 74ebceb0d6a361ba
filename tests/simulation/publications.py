"""The model of generations that were staged: what of them is published, and where it stands in the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Publication", "Publications", "newest_rows_of"]

State = Mapping[int, int]
Row = tuple[int, int, bool]


@dataclass(frozen=True, slots=True)
class Publication:
    """Generations that one manifest has published.

    Parameters
    ----------
    position : int
        The last position of the log before.
    paths : tuple of str
        Their directories. The next entry has to name them.
    rows : tuple of (int, int, bool)
        Their rows, in order: key, value, and whether it is a delete.
    states : mapping of int to State
        By the number of each generation: what the shard is with it and all before.
    """

    position: int
    paths: tuple[str, ...]
    rows: tuple[Row, ...]
    states: Mapping[int, State]

    @property
    def state(self) -> State:
        """What the shard is with all of them."""
        return self.states[max(self.states)]


@dataclass(slots=True)
class Publications:
    """What has been published in one shard.

    Some readers see it once the manifest is there, all of them once the entry after it is: nobody has been
    told before that it is published. So between the two a shard may show either state.
    """

    pending: Publication | None = None
    """The one that no log entry names yet."""
    _by_position: dict[int, Publication] = field(default_factory=dict)

    def add(self, publication: Publication) -> None:
        """Note one whose manifest has been written."""
        self.pending = self._by_position[publication.position] = publication

    def states_at(self, first: int, last: int) -> Iterator[State]:
        """Yield what a shard may show after some positions beside what the log says."""
        for position, publication in self._by_position.items():
            if first <= position <= last:
                yield publication.state

    def since(self, position: int) -> Iterator[Publication]:
        """Yield those published after a position or a later one."""
        return (one for at, one in self._by_position.items() if at >= position)

    def state_of(self, generation: int) -> State | None:
        """Return what the shard is with a published generation and all before; None if it was flushed."""
        for publication in self._by_position.values():
            if generation in publication.states:
                return publication.states[generation]
        return None


def newest_rows_of(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the last row of every key, in the order of the rows."""
    last = {key: at for at, (key, _, _) in enumerate(rows)}
    return tuple(rows[at] for at in sorted(last.values()))

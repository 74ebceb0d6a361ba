"""The model of marked writes: how far every source has got after every position of a log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from weir.format.source import Source

__all__ = ["Marks"]


class Marks:
    """How far every source has got, after every position of the log of one shard.

    The sources of a simulation send number after number to one shard, each when they know the one before
    to be done. So a log has them all, in this order.
    """

    def __init__(self) -> None:
        self._after: list[Mapping[str, int]] = [{}]

    def append(self, sources: Iterable[Source]) -> bool:
        """Take in what the next position holds; return whether that is what each source sends next."""
        self._after.append(self._after[-1])
        return self.add(sources)

    def add(self, sources: Iterable[Source]) -> bool:
        """Take in what is published at the last position, without a log entry; return the same."""
        before = self._after[-1]
        after, in_order = dict(before), True
        for source in sources:
            in_order = in_order and source.sequence == after.get(source.name, -1) + 1
            after[source.name] = source.sequence
        self._after[-1] = before if after == before else after
        return in_order

    def at(self, position: int) -> Mapping[str, int]:
        """Return how far the sources have got after a position."""
        return self._after[position]

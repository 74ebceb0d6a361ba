"""Cursors: how far a reader has come, as the arrival id of the last event seen in each shard.

Within a shard ids rise in the order of the log, so events up to that id have been seen, wherever they are
stored by now. For restored events the arrival id counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from weir.events.clock import SHARD_BITS

__all__ = ["Cursor", "arrivals"]

_SHARDS = 1 << SHARD_BITS


def arrivals(rows: pa.Table) -> NDArray[np.int64]:
    """Return the arrival ids of rows with ``event_id`` and ``arrival_id``."""
    found: NDArray[np.int64] = pc.coalesce(rows.column("arrival_id"), rows.column("event_id")).to_numpy()
    return found


@dataclass(frozen=True, slots=True)
class Cursor:
    """A position in the events of a store, as a value.

    Parameters
    ----------
    seen : mapping of int to int
        By shard number. Nothing has been seen of a missing shard.

    Examples
    --------
    >>> cursor = Cursor().advanced(np.array([(7 << SHARD_BITS) | 1, (9 << SHARD_BITS) | 1]))
    >>> cursor.beyond(np.array([(8 << SHARD_BITS) | 1, (8 << SHARD_BITS) | 2])).tolist()
    [False, True]
    """

    seen: Mapping[int, int] = field(default_factory=dict)

    def least(self, shards: int) -> int | None:
        """Return an id up to which everything was seen in each of this many shards; None if there is none."""
        return min(self.seen.values()) if len(self.seen) >= shards else None

    def beyond(self, arrived: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which events are new to the cursor."""
        known = np.zeros(_SHARDS, np.int64)
        for shard, last in self.seen.items():
            known[shard] = last
        found: NDArray[np.bool_] = arrived > known[arrived & (_SHARDS - 1)]
        return found

    def advanced(self, arrived: NDArray[np.int64]) -> Cursor:
        """Return the cursor advanced over some more events."""
        if len(arrived) == 0:
            return self
        known = np.zeros(_SHARDS, np.int64)
        for shard, last in self.seen.items():
            known[shard] = last
        np.maximum.at(known, arrived & (_SHARDS - 1), arrived)
        return Cursor({int(shard): int(known[shard]) for shard in np.flatnonzero(known)})

    def to_json(self) -> dict[str, int]:
        """Return the stored form."""
        return {str(shard): last for shard, last in self.seen.items()}

    @classmethod
    def from_json(cls, stored: Mapping[str, int]) -> Cursor:
        """Return the value of a stored form."""
        return cls({int(shard): int(last) for shard, last in stored.items()})

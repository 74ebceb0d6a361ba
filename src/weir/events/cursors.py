"""How far a reader of the events has come: by shard the id at which the last event it has seen arrived.

Within a shard ids rise in the order of the log, so that what is not above its number has been seen,
wherever the
shard's events are by now. Of restored events the id counts at which they came.
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
    """Return the ids at which events arrived; the rows have ``event_id`` and ``arrival_id``."""
    found: NDArray[np.int64] = pc.coalesce(rows.column("arrival_id"), rows.column("event_id")).to_numpy()
    return found


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in the events of a store. A value.

    Parameters
    ----------
    seen : mapping of int to int
        By the number of the shard. One that is missing has been seen nothing of.

    Examples
    --------
    >>> cursor = Cursor().advanced(np.array([(7 << SHARD_BITS) | 1, (9 << SHARD_BITS) | 1]))
    >>> cursor.beyond(np.array([(8 << SHARD_BITS) | 1, (8 << SHARD_BITS) | 2])).tolist()
    [False, True]
    """

    seen: Mapping[int, int] = field(default_factory=dict)

    def least(self, shards: int) -> int | None:
        """Return an id up to which all has been seen in each of so many shards; None if there is none."""
        return min(self.seen.values()) if len(self.seen) >= shards else None

    def beyond(self, arrived: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which events have not been seen."""
        known = np.zeros(_SHARDS, np.int64)
        for shard, last in self.seen.items():
            known[shard] = last
        found: NDArray[np.bool_] = arrived > known[arrived & (_SHARDS - 1)]
        return found

    def advanced(self, arrived: NDArray[np.int64]) -> Cursor:
        """Return the cursor once some more events have been seen."""
        if len(arrived) == 0:
            return self
        known = np.zeros(_SHARDS, np.int64)
        for shard, last in self.seen.items():
            known[shard] = last
        np.maximum.at(known, arrived & (_SHARDS - 1), arrived)
        return Cursor({int(shard): int(known[shard]) for shard in np.flatnonzero(known)})

    def to_json(self) -> dict[str, int]:
        """Return what is stored."""
        return {str(shard): last for shard, last in self.seen.items()}

    @classmethod
    def from_json(cls, stored: Mapping[str, int]) -> Cursor:
        """Return what was stored."""
        return cls({int(shard): int(last) for shard, last in stored.items()})

"""The position of a WAL entry: its shard's log, and its number there. Specific to Weir.

The entry names its place itself (:mod:`weir.format.wal_trailer`). Nothing else in it distinguishes it from
another entry of the same writer: if two of one epoch were swapped, each would be intact, and the older write
would count as the newer one.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

__all__ = ["LogPlace"]


@dataclass(frozen=True, slots=True)
class LogPlace:
    """The place of a WAL entry.

    Parameters
    ----------
    shard_id : UUID
        The shard whose log it is in.
    position : int
        Its position there, below 2**64.
    """

    shard_id: UUID
    position: int

    def __str__(self) -> str:
        return f"position {self.position} of shard {self.shard_id}"

"""Where a WAL entry stands: in the log of which shard, and at which position. Weir's own.

The entry names its place itself (:mod:`weir.format.wal_entry`). What else is in it does not tell it from
another entry of the same writer: were two of one epoch swapped, each would be whole, and the older write
would count as the newer one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from uuid import UUID

from weir.errors import CorruptionError, InputError

__all__ = ["LogPlace"]

_DIGITS = 20
_TEXT = re.compile(rb"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/([0-9]{20})")


@dataclass(frozen=True, slots=True)
class LogPlace:
    """The place of a WAL entry.

    Parameters
    ----------
    shard_id : UUID
        The shard whose log it is in.
    position : int
        Its position there, below 2**64.

    Examples
    --------
    >>> LogPlace(UUID("11111111-2222-4333-8444-555555555555"), 7).encode()
    b'11111111-2222-4333-8444-555555555555/00000000000000000007'
    """

    shard_id: UUID
    position: int

    LENGTH = 36 + 1 + _DIGITS
    """Bytes of every encoded place."""

    def __str__(self) -> str:
        return f"position {self.position} of shard {self.shard_id}"

    def encode(self) -> bytes:
        """Return the place as it stands in an entry: :attr:`LENGTH` bytes of ASCII.

        Raises
        ------
        InputError
            The position does not fit in 64 unsigned bits.
        """
        if not 0 <= self.position < 1 << 64:
            raise InputError(f"the position {self.position} does not fit in 64 unsigned bits")
        return f"{self.shard_id}/{self.position:0{_DIGITS}d}".encode()

    @staticmethod
    def decode(text: bytes, *, where: str) -> LogPlace:
        """Return the place that stands in an entry.

        Raises
        ------
        CorruptionError
            ``text`` is no place.
        """
        match = _TEXT.fullmatch(text)
        position = 0 if match is None else int(match[2])
        if match is None or position >= 1 << 64:
            raise CorruptionError(f"the WAL entry has the place {text[:60]!r}", where=where)
        return LogPlace(_shard_id(match[1]), position)


# Most entries that a process reads are of few shards.
@lru_cache(maxsize=1024)
def _shard_id(text: bytes) -> UUID:
    return UUID(text.decode())

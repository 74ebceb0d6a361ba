"""Schema messages of WAL entries that have been read, so that the next entry of a writer need not be.

Entries of one writer differ there in checksum, write id, sequence and place alone. So what one of them says
holds for the next, and reading it is most of the work on a small entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from weir.format.ipc_framing import KeyValue
from weir.format.log_place import LogPlace
from weir.format.wal_checksum import CHECKSUM_DIGITS, NO_CHECKSUM
from weir.format.wal_header import CHECKSUM, PLACE, SEQUENCE, SEQUENCE_DIGITS, WRITE_ID, WalEntryHeader

__all__ = ["Opening", "known_opening", "remember_opening"]


@dataclass(frozen=True, slots=True)
class Opening:
    """The schema message of an entry, and what was read from it."""

    message: bytes
    checksum_at: int
    write_id_at: int
    sequence_at: int
    place_at: int
    header: WalEntryHeader
    plain_schema: pa.Schema

    @classmethod
    def of(
        cls,
        view: memoryview,
        end: int,
        pairs: Sequence[KeyValue],
        header: WalEntryHeader,
        plain_schema: pa.Schema,
    ) -> Opening:
        """Return the opening of an entry that has been read, its schema message ending at ``end``."""
        starts = {pair.key: pair.value_start for pair in pairs}
        write_id_at, sequence_at = starts.get(WRITE_ID, 0), starts.get(SEQUENCE, 0)
        place_at = starts.get(PLACE, 0)
        opening = cls(b"", starts[CHECKSUM], write_id_at, sequence_at, place_at, header, plain_schema)
        return replace(opening, message=opening._without_values(view[:end]))

    def is_of(self, view: memoryview) -> bool:
        """Whether an entry begins with this message, whatever its checksum, write id, sequence and place."""
        end = len(self.message)
        return len(view) >= end and self._without_values(view[:end]) == self.message

    def _without_values(self, message: memoryview) -> bytes:
        plain = bytearray(message)
        plain[self.checksum_at : self.checksum_at + CHECKSUM_DIGITS] = NO_CHECKSUM
        length = len(self.header.write_id or "")
        plain[self.write_id_at : self.write_id_at + length] = b"0" * length
        if self.header.source is not None:
            plain[self.sequence_at : self.sequence_at + SEQUENCE_DIGITS] = b"0" * SEQUENCE_DIGITS
        if self.header.place is not None:
            plain[self.place_at : self.place_at + LogPlace.LENGTH] = b"0" * LogPlace.LENGTH
        return bytes(plain)


# Newest first; replaced as a whole, so that threads need no lock.
_openings: tuple[Opening, ...] = ()
_OPENING_LIMIT = 8


def known_opening(view: memoryview) -> Opening | None:
    """Return the opening that an entry begins with, if one like it has been read lately."""
    return next((one for one in _openings if one.is_of(view)), None)


def remember_opening(opening: Opening) -> None:
    """Keep an opening for the next entry."""
    global _openings
    others = (one for one in _openings if one.message != opening.message)
    _openings = (opening, *others)[:_OPENING_LIMIT]

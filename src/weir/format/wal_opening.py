"""Cached schema messages of WAL entries, so that the next entry of a writer need not parse its own.

They are the same in most entries of one writer. So what one of them says holds for the next, and reading it
is most of the work on a small entry.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from weir.format.wal_header import WalEntryHeader

__all__ = ["Opening", "known_opening", "remember_opening"]


@dataclass(frozen=True, slots=True)
class Opening:
    """The schema message of an entry, and its decoded content."""

    message: bytes
    header: WalEntryHeader
    plain_schema: pa.Schema


# Newest first; replaced as a whole, so that threads need no lock.
_openings: tuple[Opening, ...] = ()
_OPENING_LIMIT = 8


def known_opening(view: memoryview) -> Opening | None:
    """Return the opening that an entry begins with, if one like it has been read lately."""
    return next((one for one in _openings if bytes(view[: len(one.message)]) == one.message), None)


def remember_opening(opening: Opening) -> None:
    """Keep an opening for the next entry."""
    global _openings
    others = (one for one in _openings if one.message != opening.message)
    _openings = (opening, *others)[:_OPENING_LIMIT]

"""The library's cache of a table's indexes across versions, and when to start a new one.

Datasets that are checked out from each other share a session of the library with its opened indexes and
cached file contents. It evicts entries only when full, by a nominal size in bytes. Every merge replaces
indexes, so the entries of obsolete ones, including open files, would grow as long as the process runs.
"""

from __future__ import annotations

from uuid import UUID

__all__ = ["LibrarySession"]

_MOST_GONE = 8


class LibrarySession:
    """Which segments of indexes a session of the library may have something of. Shared by many threads.

    Parameters
    ----------
    segments : frozenset of UUID
        The segments of the version that the session begins with.

    Examples
    --------
    >>> from uuid import uuid4
    >>> session = LibrarySession(frozenset([uuid4()]))
    >>> for _ in range(8):
    ...     session.meet(frozenset([uuid4()]))
    >>> session.is_stale_at(frozenset())
    True
    """

    __slots__ = ("_met",)

    def __init__(self, segments: frozenset[UUID]) -> None:
        self._met = segments

    def meet(self, segments: frozenset[UUID]) -> None:
        """Note the segments of another version that is read through the session."""
        self._met |= segments

    def is_stale_at(self, segments: frozenset[UUID]) -> bool:
        """Whether a new session would hold much less for a version with these segments.

        A new session has to reopen everything in the version, so it is started once an equal amount is
        obsolete.
        """
        return len(self._met - segments) >= max(_MOST_GONE, len(segments))

"""The library's cache of a table's indexes across versions, and when to start a new one.

Datasets that are checked out of each other share a session of the library: what it has opened of indexes,
and what it has read of files. It lets go of something only when it is full, by a nominal size in bytes. Every
merge makes other indexes, so what a session has of those that no version has any more, open files among it,
would grow for as long as the process runs.
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
        Of the version that the session begins with.

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
        """Whether a session of its own would hold much less for a version with these segments.

        To begin anew, what the version has is opened once more: that is done once as much has gone.
        """
        return len(self._met - segments) >= max(_MOST_GONE, len(segments))

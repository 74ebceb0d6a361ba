"""Reading members of a stored JSON object, each with its type checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from weir.errors import CorruptionError, InputError
from weir.format.snapshot_token import SnapshotToken

__all__ = ["JsonMembers", "instant_text"]


def instant_text(instant: datetime) -> str:
    """Return a time as it is stored: RFC 3339 in UTC, to the microsecond.

    Examples
    --------
    >>> instant_text(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    '2026-01-02T03:04:05.000000Z'
    """
    return instant.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class JsonMembers:
    """The members of a stored JSON object.

    Parameters
    ----------
    what : str
        What the object is, for errors.
    members : mapping of str to value
        What it holds.
    where : str
        Its location.
    """

    what: str
    members: Mapping[str, Any]
    where: str

    def invalid(self, name: str) -> CorruptionError:
        """Return the error for a member that is missing or invalid."""
        return CorruptionError(
            f"the {self.what} has no valid {name}: {self.members.get(name)!r:.60}", where=self.where
        )

    def text(self, name: str) -> str:
        """Return a text."""
        value = self.members.get(name)
        if not isinstance(value, str):
            raise self.invalid(name)
        return value

    def flag(self, name: str) -> bool:
        """Return True or False."""
        value = self.members.get(name)
        if not isinstance(value, bool):
            raise self.invalid(name)
        return value

    def count(self, name: str) -> int:
        """Return a whole number of at least 0."""
        value = self.members.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self.invalid(name)
        return value

    def duration(self, name: str) -> timedelta:
        """Return a length of time, stored as seconds."""
        value = self.members.get(name)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or value < 0:
            raise self.invalid(name)
        try:
            return timedelta(seconds=value)
        except (OverflowError, ValueError) as error:
            raise self.invalid(name) from error

    def instant(self, name: str) -> datetime:
        """Return a time, in UTC."""
        try:
            found = datetime.fromisoformat(self.text(name))
            if found.tzinfo is None:
                raise self.invalid(name)
            return found.astimezone(UTC)
        except (ValueError, OverflowError) as error:
            raise self.invalid(name) from error

    def token(self, name: str) -> SnapshotToken:
        """Return a snapshot token, stored as its text."""
        try:
            return SnapshotToken.parse(self.text(name))
        except InputError as error:
            raise self.invalid(name) from error

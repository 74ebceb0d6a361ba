"""A finding of a verification."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from uuid import UUID

__all__ = ["Finding", "Findings", "Severity"]


class Severity(Enum):
    """How bad a finding is."""

    ERROR = "error"
    """Rows are lost or wrong, or reads, writes or services will fail."""

    WARNING = "warning"
    """Something is there that should not be, or missing that only helps; no row is at stake."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem in a table.

    Parameters
    ----------
    severity : Severity
        How bad it is.
    check : str
        Which check found it, such as ``"wal.gap"``.
    where : str
        The object or directory concerned.
    message : str
        What is wrong.
    shard_id : UUID or None
        The shard it is in.
    """

    severity: Severity
    check: str
    where: str
    message: str
    shard_id: UUID | None = None

    def __str__(self) -> str:
        """Return the finding as one line."""
        return " ".join(f"{self.severity.value} {self.check}: {self.message} [{self.where}]".split())

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as plain values that JSON can hold."""
        return {
            "severity": self.severity.value,
            "check": self.check,
            "where": self.where,
            "message": self.message,
            "shard_id": None if self.shard_id is None else str(self.shard_id),
        }


@dataclass(slots=True)
class Findings:
    """Collects findings about one part of a table.

    Parameters
    ----------
    root : str
        Location of the table.
    shard_id : UUID, optional
        The shard the part is in.
    """

    root: str
    shard_id: UUID | None = None
    found: list[Finding] = field(default_factory=list)

    def error(self, check: str, path: str, message: str) -> None:
        """Note that rows are at stake."""
        self._add(Severity.ERROR, check, path, message)

    def warning(self, check: str, path: str, message: str) -> None:
        """Note something that no row depends on."""
        self._add(Severity.WARNING, check, path, message)

    def _add(self, severity: Severity, check: str, path: str, message: str) -> None:
        where = f"{self.root}/{path}" if path else self.root
        self.found.append(Finding(severity, check, where, message, self.shard_id))

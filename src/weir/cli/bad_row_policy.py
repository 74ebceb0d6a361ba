"""The choices for rows that do not fit a table."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["BadRowPolicy"]


class BadRowPolicy(StrEnum):
    """What to do with a row that does not fit the table."""

    FAIL = "fail"
    SKIP = "skip"
    QUARANTINE = "quarantine"

"""What the checker reports."""

from __future__ import annotations

__all__ = ["Violation"]


class Violation(Exception):  # noqa: N818
    """An invariant does not hold."""

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(invariant, message)
        self.invariant = invariant

    def __str__(self) -> str:
        """Say which invariant, and how."""
        return ": ".join(self.args)

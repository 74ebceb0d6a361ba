"""Clocks that stand still until they are told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

__all__ = ["FakeClock"]


class FakeClock:
    """A wall clock that can be set, and an uptime that only grows."""

    def __init__(self) -> None:
        self._wall = datetime(2026, 1, 15, 10, tzinfo=UTC)
        self._uptime = 1000.0

    def now(self) -> datetime:
        return self._wall

    def uptime(self) -> float:
        return self._uptime

    def pass_time(self, seconds: float) -> None:
        """Let time pass, on both clocks."""
        self._wall += timedelta(seconds=seconds)
        self._uptime += seconds

    def set_wall(self, seconds: float) -> None:
        """Set the wall clock forward, or back."""
        self._wall += timedelta(seconds=seconds)

"""Options of a change feed: batches, limits and waiting."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from weir.errors import OptionError

__all__ = ["FeedOptions", "check_count"]


@dataclass(frozen=True, slots=True)
class FeedOptions:
    """How a feed is read.

    Parameters
    ----------
    before : bool
        Whether to yield the rows before the changes.
    batch_rows : int
        Rows after which a batch ends.
    max_rows : int, optional
        Rows that an iteration takes at a time.
    follow : bool
        Whether an iteration waits for more instead of ending.
    poll : timedelta
        How long to wait before looking again.
    timeout : timedelta, optional
        How long to wait for a change at all.
    """

    before: bool = False
    batch_rows: int = 65_536
    max_rows: int | None = None
    follow: bool = False
    poll: timedelta = timedelta(seconds=1)
    timeout: timedelta | None = None

    def __post_init__(self) -> None:
        """Check the options."""
        check_count(self.batch_rows, "batch_rows")
        if self.max_rows is not None:
            check_count(self.max_rows, "max_rows")
        if not isinstance(self.poll, timedelta) or self.poll <= timedelta(0):
            raise OptionError(f"poll must be a timedelta above 0, got {self.poll!r}", where="poll")
        if self.timeout is None:
            return
        if not isinstance(self.timeout, timedelta) or self.timeout < timedelta(0):
            raise OptionError(
                f"timeout must be a timedelta of at least 0, got {self.timeout!r}", where="timeout"
            )
        if not self.follow:
            raise OptionError(
                "timeout is how long a feed waits, but this one does not wait",
                where="timeout",
                hint="Pass follow=True",
            )


def check_count(value: object, name: str) -> None:
    """Refuse anything but an integer of at least 1.

    Raises
    ------
    OptionError
        Naming the option.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise OptionError(f"{name} must be a whole number of at least 1, got {value!r}", where=name)

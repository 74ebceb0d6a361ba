"""Cancellation of reads whose caller no longer waits: they end at their next step.

A call into a library cannot be interrupted. What a read is made of is short: a source of a search, a batch
of a scan; between these it looks whether anybody waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from weir.errors import ReadCancelledError

__all__ = ["Cancellation", "check_cancelled", "is_cancellable"]


class Cancellation:
    """Cancels what runs under it, on any threads.

    Examples
    --------
    >>> cancellation = Cancellation()
    >>> with cancellation.over():
    ...     check_cancelled()
    ...     cancellation.cancel()
    ...     check_cancelled()
    Traceback (most recent call last):
    weir.errors.ReadCancelledError: the caller no longer waits for the read
    """

    __slots__ = ("is_cancelled",)

    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        """Let what runs under it end."""
        self.is_cancelled = True

    @contextmanager
    def over(self) -> Iterator[None]:
        """Run the block, and its parts on other threads, under this."""
        before = _current.set(self)
        try:
            yield
        finally:
            _current.reset(before)


_current: ContextVar[Cancellation | None] = ContextVar("weir_cancellation", default=None)


def is_cancellable() -> bool:
    """Whether the caller runs under a cancellation."""
    return _current.get() is not None


def check_cancelled() -> None:
    """Continue, unless cancelled.

    Raises
    ------
    ReadCancelledError
        If that is so.
    """
    current = _current.get()
    if current is not None and current.is_cancelled:
        raise ReadCancelledError("the caller no longer waits for the read")

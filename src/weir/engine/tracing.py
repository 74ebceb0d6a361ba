"""Tracing spans: nested timed operations, for an optional recorder."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

__all__ = ["Begin", "begin", "trace_with"]

Begin = Callable[[str], AbstractContextManager[object]]
"""Begins a span of a name, inside that of the caller; the span ends with the context."""

begin: Begin | None = None
"""What begins spans; None while nothing is traced."""


def trace_with(begins: Begin | None) -> None:
    """Have spans begun by a function from now on, in the whole process; None: nothing is traced.

    Examples
    --------
    >>> from contextlib import nullcontext
    >>> from weir.engine import tracing
    >>> tracing.trace_with(lambda name: nullcontext(print("begins", name)))
    >>> with tracing.begin("storage.get"):
    ...     pass
    begins storage.get
    >>> tracing.trace_with(None)
    """
    global begin
    begin = begins

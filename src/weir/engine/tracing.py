"""Tracing spans: nested timed operations, for an optional recorder."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from weir.engine.cancellation import is_cancellable

__all__ = ["Begin", "begin", "carried", "trace_with"]

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


def carried(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs inside the span of the caller, on whichever thread, and ends with it."""
    if begin is None and not is_cancellable():
        return function
    context = contextvars.copy_context()
    return lambda *arguments, **named: context.run(function, *arguments, **named)

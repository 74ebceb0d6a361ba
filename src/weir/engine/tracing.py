"""Tracing spans: nested timed operations, for an optional recorder."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from weir.engine.cancellation import is_cancellable

__all__ = ["Begin", "carried", "span", "trace_with"]

Begin = Callable[[str], AbstractContextManager[object]]
"""Begins a span of a name, inside that of the caller; the span ends with the context."""

_NOTHING: AbstractContextManager[object] = nullcontext()
_begin: Begin | None = None


def trace_with(begin: Begin | None) -> None:
    """Have spans begun by a function from now on, in the whole process; None: nothing is traced.

    Examples
    --------
    >>> trace_with(lambda name: nullcontext(print("begins", name)))
    >>> with span("storage.get"):
    ...     pass
    begins storage.get
    >>> trace_with(None)
    """
    global _begin
    _begin = begin


def span(name: str) -> AbstractContextManager[object]:
    """Return a span, to be entered."""
    return _NOTHING if _begin is None else _begin(name)


def carried(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs inside the span of the caller, on whichever thread, and ends with it."""
    if _begin is None and not is_cancellable():
        return function
    context = contextvars.copy_context()
    return lambda *arguments, **named: context.run(function, *arguments, **named)

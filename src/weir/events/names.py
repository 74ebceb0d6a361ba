"""Validation of the names of types, fields, contexts and materialisations."""

from __future__ import annotations

import re

from weir.errors import InputError, SchemaError

__all__ = ["CORE_NAMES", "check_context", "check_field_name", "check_name"]

CORE_NAMES = ("event_id", "context_id", "event_type", "timestamp")
"""The columns of every event; no field can have these names."""

_MAX_NAME_LENGTH = 128
_MAX_NAME_BYTES = 200
"""Fewer than the name of a file may have: files are called as types and subscriptions."""
_MAX_CONTEXT_BYTES = 4096
_NAME = re.compile(r"[^\W\d](?:\w|-(?!-))*")


def check_name(name: object, what: str) -> str:
    """Return the name of a type or a materialisation.

    Raises
    ------
    InputError
        If it is too long, or not a letter or ``_``, followed by letters, digits, ``_`` and single ``-``.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(
            f"the name of {what} is a letter followed by letters, digits, _ and -, got {name!r:.150}",
            where=what,
        )
    if len(name) > _MAX_NAME_LENGTH or len(name.encode()) > _MAX_NAME_BYTES:
        raise InputError(
            f"the name of {what} has at most {_MAX_NAME_LENGTH} characters and {_MAX_NAME_BYTES} bytes, "
            f"got {name!r:.150}",
            where=what,
        )
    return name


def check_field_name(name: object, event: str) -> str:
    """Return the name of a field.

    Raises
    ------
    SchemaError
        If it is not valid, or is a column of every event.
    """
    if isinstance(name, str) and name in CORE_NAMES:
        raise SchemaError(
            f"event {event!r}: a field cannot be called {name!r}, which every event has",
            where=f"{event}.{name}",
            hint=f"Reserved names: {', '.join(CORE_NAMES)}",
        )
    if not isinstance(name, str) or len(name) > _MAX_NAME_LENGTH or not _NAME.fullmatch(name):
        raise SchemaError(
            f"event {event!r}: the name of a field is a letter followed by letters, digits, _ and -, "
            f"got {name!r:.150}",
            where=event,
        )
    return name


def check_context(context: object) -> str:
    """Return the name of a context.

    Raises
    ------
    InputError
        If it is not a text, is empty or too long, or cannot be encoded as UTF-8.
    """
    if not isinstance(context, str) or not context:
        raise InputError(
            f"the name of a context is a text that is not empty, got {context!r:.80}", where="context"
        )
    try:
        size = len(context.encode())
    except UnicodeEncodeError:
        raise InputError(f"the name of a context is no text: {context!r:.80}", where="context") from None
    if size > _MAX_CONTEXT_BYTES:
        raise InputError(
            f"the name of a context has at most {_MAX_CONTEXT_BYTES:,} bytes, this one {size:,}",
            where="context",
        )
    return context

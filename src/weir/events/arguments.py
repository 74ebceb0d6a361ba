"""Arguments of calls, as the language has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weir.errors import InputError, QueryError
from weir.events.event_types import EventType
from weir.events.instants import from_micros, parse_instant
from weir.events.language import tree
from weir.events.language.scanner import Place
from weir.events.names import check_context

__all__ = ["field_of", "micros_of", "names_of", "query_of_call"]

_HERE = Place(1, 1)


def names_of(given: Any, where: str) -> tuple[Any, ...]:
    """Return a sequence of names.

    Raises
    ------
    InputError
        If it is none.
    """
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise InputError(f"{where} are a sequence of names, got {given!r:.80}", where=where)
    return tuple(given)


def micros_of(value: Any, where: str) -> int | None:
    """Return a bound of times in microseconds.

    Raises
    ------
    QueryError
        If it is no time.
    """
    if value is None:
        return None
    try:
        return parse_instant(value)
    except InputError as error:
        raise QueryError(error.message, where=where, hint=error.hint) from None


def field_of(name: Any) -> tree.FieldName | None:
    """Return a field that a call names, if it does."""
    return None if name is None else tree.FieldName(str(name), _HERE)


def query_of_call(
    kind: EventType, columns: Any, context: Any, since: Any, until: Any, using: Any
) -> tree.Query:
    """Return the query that a call asks for.

    Raises
    ------
    InputError
        If there is no such column, or the context is not valid.
    QueryError
        If a bound is no time.
    """
    for name in columns or ():
        if name not in kind.schema.names:
            raise InputError(
                f"event {kind.name!r} has no field {name!r:.150}",
                where="columns",
                hint=f"Its columns are {', '.join(kind.schema.names)}",
            )
    return tree.Query(
        tree.Name(kind.name, _HERE),
        context=None if context is None else tree.Name(check_context(context), _HERE),
        since=_time(since, "since"),
        until=_time(until, "until"),
        using=field_of(using),
        # No columns but those that every event has: asked for by one of them.
        returns=None
        if columns is None
        else tuple(tree.FieldName(name, _HERE) for name in columns or ("event_id",)),
    )


def _time(value: Any, where: str) -> tree.Value | None:
    micros = micros_of(value, where)
    if micros is None:
        return None
    return tree.Value("text", from_micros(micros).isoformat(), str(value), _HERE)

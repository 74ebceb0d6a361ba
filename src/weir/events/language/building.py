"""Turns the parse tree of the grammar into the syntax tree, and checks what the grammar cannot express."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeAlias

from lark import Tree

from weir.errors import InputError
from weir.events.durations import parse_duration
from weir.events.language import tree
from weir.events.language.scanner import Place, Scanned, place_error

__all__ = ["UNITS", "build"]

Node: TypeAlias = Any
"""A tree of the parser, whose children are trees, tokens or None."""

UNITS = ("minute", "hour", "day", "week", "month", "year")
"""The units of PER."""


def build(node: Node) -> tree.Command:
    """Return the syntax tree of a parse tree.

    Raises
    ------
    QueryError
        If a clause is repeated, or a number, unit or duration is not valid.
    """
    command: tree.Command = _BUILDERS[node.data](node)
    return command


def _piece(node: Node) -> Scanned:
    piece: Scanned = node.children[0].value
    return piece


def _name(node: Node) -> tree.Name:
    piece = _piece(node)
    return tree.Name(piece.text if piece.kind == "NUMBER" else piece.value, piece.place)


def _field(node: Node) -> tree.FieldName:
    first = node.children[0].value
    second = node.children[1].value if len(node.children) > 1 and node.children[1] is not None else None
    if second is not None:
        return tree.FieldName(second.value, first.place, first.value)
    if first.kind == "TEXT" and "." in first.value:
        kind, name = first.value.split(".", 1)
        return tree.FieldName(name, first.place, kind)
    return tree.FieldName(first.value, first.place)


def _value(node: Node) -> tree.Value:
    piece = _piece(node)
    return tree.Value(piece.kind.lower(), piece.value, piece.text, piece.place)


def _count(piece: Scanned, what: str, least: int = 0) -> int:
    if not isinstance(piece.value, int) or piece.value < least or piece.value >= 1 << 63:
        raise place_error(f"{what} is a whole number of at least {least}, got {piece.text}", piece.place)
    return piece.value


def _duration(node: Node) -> timedelta:
    piece = _piece(node)
    try:
        return parse_duration(piece.value)
    except InputError as error:
        raise place_error(error.message, piece.place, error.hint) from None


def _list(node: Node, make: Callable[[Node], Any]) -> tuple[Any, ...]:
    return tuple(make(child) for child in node.children if child is not None)


# --- Conditions ----------------------------------------------------------------------------------


def _condition(node: Node) -> tree.Condition:
    kind, children = node.data, node.children
    if kind in ("or_condition", "and_condition"):
        parts = tuple(_condition(child) for child in children)
        if len(parts) == 1:
            return parts[0]
        return tree.AnyOf(parts) if kind == "or_condition" else tree.All(parts)
    if kind == "negated":
        return tree.Not(_condition(children[0]))
    field = _field(children[0])
    if kind == "bare":
        return tree.Bare(field)
    if kind == "compare_values":
        operator = children[1].value.value
        return tree.Comparison(field, "!=" if operator == "<>" else operator, _value(children[2]))
    if kind in ("is_in", "is_not_in"):
        return tree.IsIn(field, tuple(_value(child) for child in children[1:]), kind == "is_not_in")
    if kind in ("between", "not_between"):
        return tree.Between(field, _value(children[1]), _value(children[2]), kind == "not_between")
    if kind in ("like", "not_like"):
        return tree.Like(field, _value(children[1]), kind == "not_like")
    return tree.IsNull(field, kind == "is_not_null")


# --- Queries -------------------------------------------------------------------------------------


def _aggregate(node: Node) -> tree.Aggregate:
    kind = "count" if node.data == "count_all" else str(node.data)
    return tree.Aggregate(kind, _field(node.children[0]) if node.children else None)


def _aggregates(node: Node) -> tuple[tree.Aggregate, ...]:
    return _list(node, _aggregate)


def _ordering(node: Node) -> tree.Ordering:
    direction = node.children[1]
    return tree.Ordering(_field(node.children[0]), direction is not None and direction.type == "DESC")


def _per(node: Node) -> dict[str, Any]:
    piece = _piece(node.children[0])
    unit = piece.value.lower()
    if unit not in UNITS:
        raise place_error(f"{piece.text!r} is no unit of time", piece.place, f"Expected {' or '.join(UNITS)}")
    zone = node.children[1]
    return {"per": unit, "zone": None if zone is None else _name(zone)}


_CLAUSES: dict[str, Callable[[Node], dict[str, Any]]] = {
    "for_context": lambda node: {"context": _name(node.children[0])},
    "since": lambda node: {"since": _value(node.children[0])},
    "until": lambda node: {"until": _value(node.children[0])},
    "using": lambda node: {"using": _field(node.children[0])},
    "where": lambda node: {"where": _condition(node.children[0])},
    "returns": lambda node: {"returns": _list(node, _field)},
    "aggregates": lambda node: {"aggregates": _aggregates(node)},
    "per": _per,
    "by": lambda node: {"by": _list(node, _field)},
    "order_by": lambda node: {"order_by": _list(node, _ordering)},
    "limit": lambda node: {"limit": _count(node.children[0].value, "LIMIT")},
    "offset": lambda node: {"offset": _count(node.children[0].value, "OFFSET")},
    "linked_by": lambda node: {"linked_by": _field(node.children[0])},
    "using_time": lambda node: {"using_time": _field(node.children[0])},
    "within": lambda node: {"within": _duration(node.children[0])},
}
_WRITTEN = {
    "for_context": "FOR",
    "returns": "RETURN",
    "aggregates": "aggregates",
    "order_by": "ORDER BY",
    "linked_by": "LINKED BY",
    "using_time": "USING TIME",
}


def _clauses(nodes: list[Any], place: Place) -> dict[str, Any]:
    found: dict[str, Any] = {}
    seen: set[str] = set()
    for node in nodes:
        if node.data in seen:
            word = _WRITTEN.get(node.data, node.data.upper())
            raise place_error(
                f"{word} occurs twice",
                _place(node) or place,
                "Each clause may stand once; aggregates by commas",
            )
        seen.add(node.data)
        found.update(_CLAUSES[node.data](node))
    return found


def _place(node: Any) -> Any:
    """Return the position of the first token below a node."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Tree):
            waiting.extend(reversed(one.children))
        elif one is not None:
            return one.value.place
    return None


def _query(node: Node) -> tree.Query:
    first, *rest = node.children
    steps = [one for one in rest if one.data in ("followed_by", "preceded_by")]
    clauses = _clauses(
        [one for one in rest if one.data not in ("followed_by", "preceded_by")], _name(first).place
    )
    query = tree.Query(
        _name(first),
        tuple(tree.Step(_name(one.children[0]), one.data == "preceded_by") for one in steps),
        **clauses,
    )
    _check_query(query)
    return query


def _check_query(query: tree.Query) -> None:
    place = query.type.place
    if query.steps and query.linked_by is None:
        raise place_error(
            "a sequence needs LINKED BY", place, "Name the field that its events have in common"
        )
    if not query.aggregates and (query.per or query.by):
        raise place_error(
            "PER and BY group what an aggregate counts", place, "Expected an aggregate, such as COUNT"
        )


def _replay(node: Node) -> tree.Replay:
    kind, context, *rest = node.children
    clauses = _clauses(rest, _name(context.children[0]).place)
    return tree.Replay(_name(context.children[0]), None if kind is None else _name(kind), **clauses)


# --- Other commands ------------------------------------------------------------------------------


def _define(node: Node) -> tree.Define:
    name, version, fields = node.children
    number = None if version is None else _count(version.value, "a version", 1)
    return tree.Define(_name(name), number, fields.value.value)


def _store(node: Node) -> tree.Store:
    kind, context, at, expected, payload = node.children
    return tree.Store(
        _name(kind),
        _name(context),
        payload.value.value,
        None if at is None else _value(at),
        None if expected is None else _count(expected.value, "a version"),
    )


def _batch(node: Node) -> tree.Batch:
    events = _list(node, _store)
    first = events[0]
    for event in events[1:]:
        if event.context.text != first.context.text:
            raise place_error(
                f"a batch is of one context: {event.context.text!r} is not {first.context.text!r}",
                event.context.place,
            )
        if event.expected is not None:
            raise place_error("EXPECT stands with the first event of a batch", event.type.place)
    return tree.Batch(events)


def _remember(node: Node) -> tree.Remember:
    query, name, *keeps = node.children
    found: dict[str, Any] = {}
    for keep in keeps:
        if keep.data in found:
            raise place_error("KEEP and FOR may stand once each", _place(keep))
        if keep.data == "keep_rows":
            found["keep_rows"] = _count(keep.children[0].value, "KEEP", 1)
        else:
            found["keep_age"] = _duration(keep.children[0])
    return tree.Remember(_query(query), _name(name), **found)


def _explain(node: Node) -> tree.Explain:
    of = node.children[0]
    return tree.Explain(_query(of) if of.data == "query" else _replay(of))


_BUILDERS: dict[str, Callable[[Node], Any]] = {
    "define": _define,
    "store": _store,
    "batch": _batch,
    "query": _query,
    "explain": _explain,
    "compare": lambda node: tree.Compare(_query(node.children[0]), _query(node.children[1])),
    "plot": lambda node: tree.Plot(_query(node.children[0])),
    "replay": _replay,
    "remember": _remember,
    "show": lambda node: tree.Show(_name(node.children[0])),
    "drop": lambda node: tree.Drop(_name(node.children[0])),
    "show_types": lambda node: tree.ShowTypes(),
    "show_materializations": lambda node: tree.ShowMaterializations(),
    "retain_for": lambda node: tree.Retain(_name(node.children[0]), _duration(node.children[1])),
    "retain_ever": lambda node: tree.Retain(_name(node.children[0]), None),
    "forget": lambda node: tree.Forget(_name(node.children[0])),
    "flush": lambda node: tree.Flush(),
    "ping": lambda node: tree.Ping(),
}

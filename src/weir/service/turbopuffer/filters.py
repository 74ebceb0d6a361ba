"""Filters in JSON, as values: ``["And", [["n", "Gt", 5], ["tags", "Contains", "sea"]]]``."""

from __future__ import annotations

from typing import Any

from weir.errors import InputError
from weir.namespaces.filter.expression import (
    And,
    Comparison,
    Filter,
    NewValue,
    Not,
    Operator,
    Or,
    check_size,
)
from weir.namespaces.names import check_attribute_name
from weir.service.fields import flag, known_only, mapping, sequence, whole

__all__ = ["MOST_DEPTH", "parse_filter"]

MOST_DEPTH = 32
"""Largest nesting depth of filters."""

_MOST_PARTS = 10_000
_MOST_FUZZY = 1_024
_NEGATED = {
    "NotEq": Operator.EQ,
    "NotIn": Operator.IN,
    "NotContains": Operator.CONTAINS,
    "NotContainsAny": Operator.CONTAINS_ANY,
    "NotGlob": Operator.GLOB,
    "NotIGlob": Operator.IGLOB,
}
_SEVERAL = frozenset({Operator.IN, Operator.CONTAINS_ANY})
_TOKENS = frozenset({Operator.ALL_TOKENS, Operator.ANY_TOKEN, Operator.TOKEN_SEQUENCE})


def parse_filter(value: object, depth: int = MOST_DEPTH) -> Filter:
    """Parse a filter in JSON.

    Parameters
    ----------
    value : object
        The decoded value.
    depth : int
        Largest nesting depth.

    Raises
    ------
    InputError
        If it is not a filter, nested too deeply, or too large.

    Examples
    --------
    >>> parse_filter(["Not", ["n", "Lt", 5]]).part.operator
    <Operator.LT: 'Lt'>
    """
    return check_size(_parsed(value, depth))


def _parsed(value: object, depth: int) -> Filter:
    if depth <= 0:
        raise InputError("the filter is nested too deeply")
    if not isinstance(value, list) or not value or not isinstance(value[0], str):
        raise InputError("a filter is a list: an attribute, an operator and a value, or And, Or or Not")
    if len(value) == 2:
        return _combined(value[0], value[1], depth)
    if len(value) not in (3, 4) or not isinstance(value[1], str):
        raise InputError("a comparison is a list of an attribute, an operator and a value")
    attribute, operator = check_attribute_name(value[0]), value[1]
    if operator in _NEGATED:
        return Not(_comparison(attribute, _NEGATED[operator], value))
    if operator not in Operator.__members__.values():
        raise InputError(f"there is no operator {operator!r:.80}")
    return _comparison(attribute, Operator(operator), value)


def _combined(kind: str, part: object, depth: int) -> Filter:
    if kind == "Not":
        return Not(_parsed(part, depth - 1))
    if kind not in ("And", "Or"):
        raise InputError(f"a filter of two elements is And, Or or Not, and not {kind!r:.80}")
    if not isinstance(part, list) or len(part) > _MOST_PARTS:
        raise InputError(f"{kind} takes a list of up to {_MOST_PARTS:,} filters")
    parts = tuple(_parsed(one, depth - 1) for one in part)
    return And(parts) if kind == "And" else Or(parts)


def _comparison(attribute: str, operator: Operator, given: list[Any]) -> Comparison:
    value = given[2]
    if operator is Operator.FUZZY:
        return _fuzzy(attribute, given)
    if isinstance(value, dict):
        return Comparison(attribute, operator, _new_value(value))
    prefix = False
    if len(given) == 4:
        options = given[3]
        if operator not in _TOKENS or not isinstance(options, dict) or {*options} - {"last_as_prefix"}:
            raise InputError(f"{operator} takes no such options")
        prefix = bool(options.get("last_as_prefix", False))
    if operator in _SEVERAL:
        if not isinstance(value, list) or len(value) > _MOST_PARTS:
            raise InputError(f"{operator} takes a list of up to {_MOST_PARTS:,} values")
        return Comparison(attribute, operator, _flat(value))
    if isinstance(value, list):
        value = _flat(value)
    return Comparison(attribute, operator, value, prefix)


def _fuzzy(attribute: str, given: list[Any]) -> Comparison:
    options = mapping(given[3] if len(given) == 4 else None, "the options of Fuzzy")
    known_only(options, frozenset({"max_edit_distance", "case_sensitive"}), "Fuzzy")
    text = given[2]
    if not isinstance(text, str) or len(text) > _MOST_FUZZY:
        raise InputError(f"Fuzzy compares with a text of at most {_MOST_FUZZY:,} characters")
    edits: int | None = None
    steps = sequence(options.get("max_edit_distance"), "max_edit_distance of Fuzzy")
    for step in steps:
        known_only(mapping(step, "a step of Fuzzy"), frozenset({"min_query_chars", "distance"}), "Fuzzy")
        distance = whole(step, "distance", 0, 10, 0)
        least = whole(step, "min_query_chars", 3 * (distance + 1), 10_000, 3 * (distance + 1))
        if len(text) >= least:
            edits = max(distance, edits or 0)
    return Comparison(
        attribute, Operator.FUZZY, text, edits=edits, case_sensitive=flag(options, "case_sensitive", True)
    )


def _flat(values: list[Any]) -> tuple[Any, ...]:
    if any(isinstance(value, list | dict) for value in values):
        raise InputError("a filter compares with values, and not with lists of lists")
    return tuple(values)


def _new_value(value: dict[str, Any]) -> NewValue:
    attribute = value.get("$ref_new")
    if len(value) != 1 or not isinstance(attribute, str):
        raise InputError("a filter compares with a value or, in a condition, with {'$ref_new': attribute}")
    return NewValue(check_attribute_name(attribute))

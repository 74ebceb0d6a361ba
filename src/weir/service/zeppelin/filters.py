"""Filters of the dialect, as values: ``{"op": "eq", "field": "category", "value": "alpha"}``."""

from __future__ import annotations

from typing import Any

from weir.errors import InputError
from weir.namespaces.filter.expression import And, Comparison, Filter, Not, Operator, Or, check_size
from weir.namespaces.names import check_attribute_name
from weir.service.fields import known_only, mapping, sequence

__all__ = ["parse_filter"]

_RANGE = {"gte": Operator.GTE, "lte": Operator.LTE, "gt": Operator.GT, "lt": Operator.LT}
_MEMBERS = {
    "eq": {"value"},
    "not_eq": {"value"},
    "contains": {"value"},
    "in": {"values"},
    "not_in": {"values"},
    "range": {*_RANGE},
    "contains_all_tokens": {"tokens"},
    "contains_token_sequence": {"tokens"},
}


def parse_filter(value: object, depth: int) -> Filter:
    """Parse a filter in JSON.

    Raises
    ------
    InputError
        If it is not a filter, nested too deeply, or too large.

    Examples
    --------
    >>> parse_filter({"op": "not", "filter": {"op": "eq", "field": "a", "value": 1}}, 8).part.attribute
    'a'
    """
    return check_size(_parsed(value, depth))


def _parsed(value: object, depth: int) -> Filter:
    if depth <= 0:
        raise InputError("the filter is nested too deeply")
    asked = mapping(value, "a filter")
    op = asked.get("op")
    if op in ("and", "or"):
        known_only(asked, frozenset({"op", "filters"}), f"the filter {op}")
        parts = tuple(_parsed(one, depth - 1) for one in sequence(asked.get("filters"), "filters"))
        return And(parts) if op == "and" else Or(parts)
    if op == "not":
        known_only(asked, frozenset({"op", "filter"}), "the filter not")
        return Not(_parsed(asked.get("filter"), depth - 1))
    if not isinstance(op, str) or op not in _MEMBERS:
        raise InputError(f"there is no filter {op!r:.40}")
    known_only(asked, frozenset({"op", "field", *_MEMBERS[op]}), f"the filter {op}")
    return _comparison(op, check_attribute_name(asked.get("field")), asked)


def _comparison(op: str, field: str, asked: dict[str, Any]) -> Filter:
    if op == "range":
        bounds = [
            Comparison(field, sign, asked[name])
            for name, sign in _RANGE.items()
            if asked.get(name) is not None
        ]
        if not bounds:
            raise InputError("a range has at least one bound")
        return And(tuple(bounds))
    if op in ("in", "not_in"):
        found = Comparison(field, Operator.IN, tuple(sequence(asked.get("values"), "values")))
        return Not(found) if op == "not_in" else found
    if op in ("contains_all_tokens", "contains_token_sequence"):
        tokens = tuple(sequence(asked.get("tokens"), "tokens"))
        operator = Operator.ALL_TOKENS if op == "contains_all_tokens" else Operator.TOKEN_SEQUENCE
        return Comparison(field, operator, tokens)
    if asked.get("value") is None:
        raise InputError(f"the filter {op} has a value")
    value = asked["value"]
    if op == "contains":
        return Comparison(field, Operator.CONTAINS, value)
    equal = Comparison(field, Operator.EQ, tuple(value) if isinstance(value, list) else value)
    return Not(equal) if op == "not_eq" else equal

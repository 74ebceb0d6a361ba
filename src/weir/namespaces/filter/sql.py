"""Filters as SQL conditions for Lance and DataFusion: quoted names, literal values, two-valued logic.

SQL has three values: a comparison with null is neither true nor false, and so is its negation. Here every
negation is pushed down to the comparisons, where its meaning for a missing value is spelled out; what remains
are ``AND`` and ``OR`` over conditions that are true exactly for matching documents.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from weir.errors import InputError
from weir.namespaces.attributes import AttributeType, Kind
from weir.namespaces.filter.expression import And, Comparison, Filter, NewValue, Not, Operator
from weir.namespaces.filter.literals import identifier, literal, text_literal
from weir.namespaces.filter.patterns import glob_pattern, token_pattern, tokens
from weir.namespaces.names import ID, column_of

__all__ = ["NEW_ROW", "NOTHING", "Columns", "condition_sql", "filter_sql"]

NOTHING = "false"
"""The condition of no row."""
_EVERY_VALUE = "true"
"""The condition of every row that has a value."""

NEW_ROW = "new."
"""Prefix of columns of the row to write, in conditions evaluated by the table."""

Types = Callable[[str], AttributeType | None]

_ORDER = {Operator.LT: "<", Operator.LTE: "<=", Operator.GT: ">", Operator.GTE: ">="}
_TOKENS = (Operator.ALL_TOKENS, Operator.ANY_TOKEN, Operator.TOKEN_SEQUENCE)
# The first element of a sorted list is the minimum: array_min fails on a batch without rows.
_ANY = {
    Operator.ANY_LT: (1, "<"),
    Operator.ANY_LTE: (1, "<="),
    Operator.ANY_GT: (-1, ">"),
    Operator.ANY_GTE: (-1, ">="),
}


@dataclass(frozen=True, slots=True)
class Columns:
    """How the columns of the documents, and of their new versions, are called in a condition.

    Parameters
    ----------
    type_of : callable
        Returns the type of an attribute; None for one that no document has.
    present : str
        Prefix of the column of a document. Default: none.
    new : str, optional
        Prefix of the column of its new version; None if there is none.
    is_filterable : callable
        Returns whether filters may name an attribute. Default: every one.
    """

    type_of: Types
    present: str = ""
    new: str | None = None
    is_filterable: Callable[[str], bool] = lambda _: True

    def column(self, attribute: str) -> str:
        """Return the column of an attribute as SQL."""
        return identifier(self.present + column_of(attribute))

    def new_column(self, attribute: str) -> str:
        """Return the column of the new value of an attribute as SQL.

        Raises
        ------
        InputError
            If it is no condition of a write.
        """
        if self.new is None:
            raise InputError("$ref_new is for the conditions of writes that bring new values")
        column = column_of(attribute)
        return f"{NEW_ROW}{identifier(column)}" if self.new == NEW_ROW else identifier(self.new + column)


def filter_sql(
    filter: Filter, type_of: Types, is_filterable: Callable[[str], bool] = lambda _: True
) -> str | None:
    """Return a filter as a condition; None if it takes every document.

    Parameters
    ----------
    filter : Filter
        The filter.
    type_of : callable
        Returns the type of an attribute; None for one that no document has.
    is_filterable : callable
        Returns whether filters may name an attribute. Default: every one.

    Raises
    ------
    InputError
        If a value does not fit its attribute, or an operator its type, or the attribute is not filterable.

    Examples
    --------
    >>> from weir.namespaces.attributes import parse_type
    >>> types = {"n": parse_type("int"), "t": parse_type("[]string")}.get
    >>> filter_sql(Not(Comparison("n", Operator.LT, 5)), types)
    '(`n` IS NULL OR NOT (`n` < 5))'
    >>> filter_sql(And((Comparison("n", Operator.EQ, None), Comparison("t", Operator.CONTAINS, "x'"))), types)
    "((`n` IS NULL) AND (coalesce(array_has(`t`, 'x'''), false)))"
    """
    sql = condition_sql(filter, Columns(type_of, is_filterable=is_filterable))
    return None if sql == "true" else sql


def condition_sql(filter: Filter, columns: Columns) -> str:
    """Return a filter as a condition, over columns that are called as ``columns`` says."""
    return _compiled(filter, columns, negated=False)


def _compiled(filter: Filter, columns: Columns, *, negated: bool) -> str:
    if isinstance(filter, Not):
        return _compiled(filter.part, columns, negated=not negated)
    if isinstance(filter, Comparison):
        return _comparison(filter, columns, negated=negated)
    joined = isinstance(filter, And) != negated
    parts = [_compiled(part, columns, negated=negated) for part in filter.parts]
    neutral, absorbing = ("true", "false") if joined else ("false", "true")
    if absorbing in parts:
        return absorbing
    parts = [part for part in parts if part != neutral]
    if not parts:
        return neutral
    if len(parts) == 1:
        return parts[0]
    return "(" + (" AND " if joined else " OR ").join(f"({part})" for part in parts) + ")"


def _comparison(one: Comparison, columns: Columns, *, negated: bool) -> str:
    type = columns.type_of(one.attribute)
    if type is not None and not columns.is_filterable(one.attribute):
        raise InputError(f"attribute {one.attribute!r} is not filterable")
    if isinstance(one.value, NewValue):
        return _against_new(one, columns, type, negated=negated)
    if type is None:
        return "true" if _holds_for_missing(one) != negated else "false"
    column = columns.column(one.attribute)
    holds_for_missing, sql = _present(one, column, type)
    if one.attribute == ID:  # which no document lacks
        sql = NOTHING if sql is None else sql
        return f"NOT ({sql})" if negated else sql
    if sql == _EVERY_VALUE:  # as the words of a text without any
        return f"{column} IS NULL" if negated else f"{column} IS NOT NULL"
    if sql is None:  # all that counts is whether it is missing
        return f"{column} IS NULL" if holds_for_missing != negated else f"{column} IS NOT NULL"
    if not negated:
        return f"({column} IS NULL OR {sql})" if holds_for_missing else sql
    return (
        f"({column} IS NOT NULL AND NOT ({sql}))"
        if holds_for_missing
        else f"({column} IS NULL OR NOT ({sql}))"
    )


def _holds_for_missing(one: Comparison) -> bool:
    if one.operator is Operator.EQ:
        return one.value is None
    return one.operator is Operator.IN and isinstance(one.value, tuple) and None in one.value


def _present(one: Comparison, column: str, type: AttributeType) -> tuple[bool, str | None]:
    """Return whether a comparison holds for a missing value, and its condition for an existing one."""
    operator, value = one.operator, one.value
    if operator is Operator.EQ:
        return (True, None) if value is None else (False, _equal(one, column, type, value))
    if type.is_vector:
        raise InputError(f"attribute {one.attribute!r} is {type}, which can only be tested for being missing")
    if operator is Operator.IN:
        return _in(one, column, type)
    if value is None:
        raise InputError(f"{operator} of attribute {one.attribute!r} takes a value, got null")
    if operator in _ORDER:
        _refuse_lists(one, type)
        if type.kind is Kind.BOOL:
            raise InputError(f"attribute {one.attribute!r} is bool, which has no order")
        return (
            False,
            f"{column} {_ORDER[operator]} {literal(one.attribute, type, _bound(operator, type, value))}",
        )
    if operator in (Operator.CONTAINS, Operator.CONTAINS_ANY, *_ANY):
        return False, _of_list(one, column, type)
    return False, _of_text(one, column, type)


def _bound(operator: Operator, type: AttributeType, value: object) -> object:
    """Return a bound as whole numbers have it: more than 1.5 is more than 1."""
    if type.kind not in (Kind.INT, Kind.UINT) or not isinstance(value, float) or not math.isfinite(value):
        return value
    return math.floor(value) if operator in (Operator.GT, Operator.LTE) else math.ceil(value)


def _equal(one: Comparison, column: str, type: AttributeType, value: object) -> str:
    if type.is_vector:
        raise InputError(f"attribute {one.attribute!r} is {type}, which can only be tested for being missing")
    if not type.is_list:
        return f"{column} = {literal(one.attribute, type, value)}"
    if not isinstance(value, tuple):
        raise InputError(f"attribute {one.attribute!r} is {type}, it is compared with a list")
    elements = [literal(one.attribute, type, element) for element in value]
    same = [f"array_element({column}, {at}) = {element}" for at, element in enumerate(elements, start=1)]
    # An empty list has no length, as a missing one.
    length = f"{column} IS NOT NULL AND coalesce(array_length({column}), 0) = {len(elements)}"
    return "(" + " AND ".join([length, *same]) + ")"


def _in(one: Comparison, column: str, type: AttributeType) -> tuple[bool, str | None]:
    _refuse_lists(one, type)
    assert isinstance(one.value, tuple)
    known = [literal(one.attribute, type, value) for value in one.value if value is not None]
    missing = len(known) < len(one.value)
    if not known:
        return missing, None if missing else NOTHING
    return missing, f"{column} IN ({', '.join(dict.fromkeys(known))})"


def _of_list(one: Comparison, column: str, type: AttributeType) -> str:
    if not type.is_list:
        raise InputError(f"{one.operator} is for lists, attribute {one.attribute!r} is {type}")
    if one.operator is Operator.CONTAINS:
        return f"coalesce(array_has({column}, {literal(one.attribute, type, one.value)}), false)"
    if one.operator is Operator.CONTAINS_ANY:
        assert isinstance(one.value, tuple)
        if not one.value:
            return NOTHING
        values = ", ".join(literal(one.attribute, type, value) for value in one.value)
        return f"coalesce(array_has_any({column}, make_array({values})), false)"
    extreme, sign = _ANY[one.operator]
    value = literal(one.attribute, type, one.value)
    return f"coalesce(array_element(array_sort({column}), {extreme}) {sign} {value}, false)"


def _of_text(one: Comparison, column: str, type: AttributeType) -> str:
    if type.kind is Kind.STRING and type.is_list and one.operator in _TOKENS:
        # As it is searched for words: its elements are one text.
        return _of_tokens(one, f"array_to_string({column}, ' ')")
    if type.kind is not Kind.STRING or type.is_list:
        raise InputError(f"{one.operator} is for texts, attribute {one.attribute!r} is {type}")
    if one.operator in (Operator.GLOB, Operator.IGLOB):
        text = _text(one)
        stem = text.removesuffix("*")
        if one.operator is Operator.GLOB and stem != text and not any(sign in stem for sign in "*?[\\"):
            return f"starts_with({column}, {text_literal(stem)})"
        flags = "(?si)" if one.operator is Operator.IGLOB else "(?s)"
        return f"regexp_like({column}, {text_literal(flags + glob_pattern(text))})"
    if one.operator is Operator.FUZZY:
        text = _text(one)
        if one.edits is None:
            return NOTHING
        compared = (column, text) if one.case_sensitive else (f"lower({column})", text.lower())
        return f"levenshtein({compared[0]}, {text_literal(compared[1])}) <= {one.edits}"
    if one.operator is Operator.REGEX:
        return f"regexp_like({column}, {text_literal(_text(one))})"
    return _of_tokens(one, column)


def _of_tokens(one: Comparison, column: str) -> str:
    words = tokens(one.value)
    if not words:
        return _EVERY_VALUE if one.operator is not Operator.ANY_TOKEN else NOTHING
    if one.operator is Operator.TOKEN_SEQUENCE:
        return f"regexp_like({column}, {text_literal(token_pattern(words, prefix=one.last_as_prefix))})"
    conditions = [
        f"regexp_like({column}, {text_literal(token_pattern([word], prefix=one.last_as_prefix and last))})"
        for word, last in zip(words, [False] * (len(words) - 1) + [True], strict=True)
    ]
    return "(" + (" OR " if one.operator is Operator.ANY_TOKEN else " AND ").join(conditions) + ")"


def _text(one: Comparison) -> str:
    if not isinstance(one.value, str):
        raise InputError(f"{one.operator} of attribute {one.attribute!r} takes a text")
    return one.value


def _refuse_lists(one: Comparison, type: AttributeType) -> None:
    if type.is_list:
        raise InputError(f"{one.operator} is not for lists, attribute {one.attribute!r} is {type}")


def _against_new(one: Comparison, columns: Columns, type: AttributeType | None, *, negated: bool) -> str:
    assert isinstance(one.value, NewValue)
    new_type = columns.type_of(one.value.attribute)
    new = columns.new_column(one.value.attribute)
    if type is None or new_type is None:
        # What no document has is missing on that side: equal to a missing value, and nothing else.
        if one.operator is not Operator.EQ or (type is None and new_type is None):
            return "true" if (one.operator is Operator.EQ) != negated else "false"
        left = new if type is None else columns.column(one.attribute)
        return f"{left} IS NOT NULL" if negated else f"{left} IS NULL"
    if type.is_list or type.is_vector or new_type != type:
        raise InputError(
            f"attributes {one.attribute!r} ({type}) and {one.value.attribute!r} ({new_type}) cannot be "
            "compared"
        )
    column = columns.column(one.attribute)
    if one.operator is Operator.EQ:
        return f"{column} IS {'' if negated else 'NOT '}DISTINCT FROM {new}"
    if one.operator not in _ORDER:
        raise InputError(f"{one.operator} is not for $ref_new")
    sql = f"{column} {_ORDER[one.operator]} {new}"
    return f"({column} IS NULL OR {new} IS NULL OR NOT ({sql}))" if negated else sql

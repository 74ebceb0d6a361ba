"""Filters that have a value for every row, whatever is in it.

Such a filter may be shown dead rows too, which are left out of what it finds. That is faster than telling the
library beforehand which rows are dead. Others, as ``CAST(name AS INT) > 5``, may fail on a row, and
that must not be a dead one.
"""

from __future__ import annotations

import re
from functools import lru_cache

import pyarrow as pa
from datafusion import DataFrame, Expr

from weir.errors import FilterError
from weir.lsm.filter_form import filter_form
from weir.schema.sql_nesting import on_a_deep_stack, refuse_unsafe
from weir.sharding.sql import empty_frame, named_fields, parse

__all__ = ["is_total"]

_TEXT = re.compile("'(?:[^']|'')*'")
_LONGEST = 4_000
_DEEPEST = 25
"""Characters and levels beyond which a filter is not looked into."""

_LOGIC = frozenset({"AND", "OR"})
_OPERATORS = _LOGIC | {"=", "!=", "<", "<=", ">", ">="}
_COMPARISONS = frozenset({"Between", "BinaryExpr", "InList", "Like"})
_OF_CONDITIONS = frozenset(
    {*("IsFalse", "IsNotFalse", "IsNotTrue", "IsNotUnknown", "IsTrue", "IsUnknown", "Not")}
)
_OF_ANYTHING = frozenset({"IsNotNull", "IsNull"})
_OF_CONSTANTS = frozenset({"Cast", "Negative", "arrow_cast", "-"})
"""What literals are written with; a cast that fails does so for the filter as a whole."""


def is_total(text: str, schema: pa.Schema) -> bool:
    """Return whether a filter has a value for every row, which is certain if so.

    Parameters
    ----------
    text : str
        The filter, with literals that fit the columns (:mod:`weir.lsm.fitted_filter`).
    schema : Schema
        The columns.

    Examples
    --------
    >>> schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    >>> is_total("id BETWEEN 3 AND 9 AND name LIKE 'A%'", schema)
    True
    >>> is_total("CAST(name AS INT) > 5", schema)
    False
    """
    # Lance takes "x" for text, DataFusion for a column.
    if len(text) > _LONGEST or '"' in _TEXT.sub("", text):
        return False
    # Such filters have other literals of the same kinds, which cannot fail either.
    form = filter_form(text, schema)
    return _is_total(form, named_fields(form, schema))


@lru_cache(maxsize=1024)
def _is_total(text: str, columns: tuple[tuple[str, pa.DataType], ...]) -> bool:
    depth = refuse_unsafe(text, "the filter", where="filter", error=FilterError)
    return depth <= _DEEPEST and on_a_deep_stack(depth, _is_total_when_parsed, text, columns)


def _is_total_when_parsed(text: str, columns: tuple[tuple[str, pa.DataType], ...]) -> bool:
    try:
        frame = empty_frame(columns)
        return _never_fails(parse(frame, text), frame)
    except Exception:  # DataFusion raises nothing more specific
        return False


def _never_fails(condition: Expr, frame: DataFrame) -> bool:
    """Whether a condition only compares values, and casts none of a row but to a wider number."""
    left = [condition]
    while left:
        one = left.pop()
        form = one.variant_name()
        if form in ("Column", "Literal"):
            if _type(one, frame) != pa.bool_():
                return False
            continue
        operands = one.rex_call_operands()
        if form in _OF_CONDITIONS or (form == "BinaryExpr" and one.rex_call_operator() in _LOGIC):
            left += operands
        elif form in _OF_ANYTHING:
            if operands[0].variant_name() != "Column":
                return False
        elif form not in _COMPARISONS or not _is_of_one_kind(one, operands, frame):
            return False
    return True


def _is_of_one_kind(comparison: Expr, operands: list[Expr], frame: DataFrame) -> bool:
    if comparison.variant_name() == "BinaryExpr" and comparison.rex_call_operator() not in _OPERATORS:
        return False
    if not all(one.variant_name() == "Column" or _is_constant(one) for one in operands):
        return False
    # Of a number and a text either may be made what the other is.
    return len({_kind(_type(one, frame)) for one in operands} - {_kind(pa.null())}) < 2


def _is_constant(expression: Expr) -> bool:
    """Whether an expression is a value that fails nowhere, or before any row is read.

    ``1 / 0`` fails on the first row that it is looked at for, which may be a dead one.
    """
    left = [expression]
    while left:
        one = left.pop()
        form = one.variant_name()
        if form == "Literal":
            continue
        operator = one.rex_call_operator() if form in ("BinaryExpr", "ScalarFunction") else form
        if operator not in _OF_CONSTANTS:
            return False
        left += one.rex_call_operands()
    return True


def _type(expression: Expr, frame: DataFrame) -> pa.DataType:
    return frame.select(expression).schema().field(0).type


def _kind(of: pa.DataType) -> str:
    if pa.types.is_string(of) or pa.types.is_large_string(of):
        return "text"
    if pa.types.is_timestamp(of):
        # The library makes the literal what the column is.
        return f"timestamp {of.tz}"
    return "number" if pa.types.is_integer(of) or pa.types.is_floating(of) else str(of)

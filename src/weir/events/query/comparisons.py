"""Comparisons of a field with a literal: exact, in the type of the field.

A comparison with null is null, also under NOT. So a comparison that no value of the field meets, or every
value meets, still checks for null.
"""

from __future__ import annotations

import re
from decimal import Decimal, localcontext
from math import floor

import pyarrow as pa
from datafusion import Expr, functions, lit

from weir.errors import InputError
from weir.events.field_types import INSTANT, FieldType
from weir.events.instants import parse_date, parse_instant
from weir.events.language.tree import Value
from weir.events.query.scope import failure
from weir.events.visibility import text_literal

__all__ = ["compared", "is_one_of", "matches"]

_BOOLS = {"true": True, "false": False}


def compared(column: Expr, kind: FieldType, operator: str, value: Value) -> Expr:
    """Return a comparison.

    Raises
    ------
    QueryError
        If the value is not of the field's type.
    """
    if kind.kind == "bool" and operator not in ("=", "!="):
        raise failure(f"a bool is = or != to a value, not {operator}", value.place)
    literal, operator = _literal(kind, operator, value)
    if literal is None:
        # Which of them does not depend on the value: only on whether there is one.
        return column != column if operator == "never" else column == column
    return _operated(column, operator, literal)


def _operated(column: Expr, operator: str, literal: Expr) -> Expr:
    if operator == "=":
        return column == literal
    if operator == "!=":
        return column != literal
    if operator == "<":
        return column < literal
    if operator == "<=":
        return column <= literal
    return column > literal if operator == ">" else column >= literal


def is_one_of(column: Expr, kind: FieldType, values: tuple[Value, ...]) -> Expr:
    """Return the condition that a field has one of several values.

    Raises
    ------
    QueryError
        If a value is not of the field's type.
    """
    literals = [_literal(kind, "=", value)[0] for value in values]
    known = [one for one in literals if one is not None]
    if not known:
        return column != column
    return column == known[0] if len(known) == 1 else functions.in_list(column, known)


def matches(column: Expr, kind: FieldType, pattern: Value) -> Expr:
    r"""Return the condition that a text is like a pattern.

    In it ``%`` is any characters, ``_`` any one, and ``\`` takes the next literally.

    Raises
    ------
    QueryError
        If field or pattern is not a text.
    """
    if kind.kind not in ("string", "enum"):
        raise failure(f"LIKE is for texts, not for {kind}", pattern.place)
    if pattern.kind == "number":
        raise failure("LIKE takes a text", pattern.place, "Put the pattern in double quotes")
    written, expression, at = str(pattern.value), [], 0
    while at < len(written):
        one = written[at]
        if one == "\\" and at + 1 < len(written):
            at += 1
            expression.append(_literally(written[at]))
        else:
            expression.append({"%": ".*", "_": "."}.get(one) or _literally(one))
        at += 1
    return functions.regexp_like(column, lit(f"(?s)\\A{''.join(expression)}\\z"))


def _literally(one: str) -> str:
    # The engine's regular expressions know other escapes than Python's.
    return one if one.isalnum() or not one.isascii() else f"\\x{{{ord(one):x}}}"


def _literal(kind: FieldType, operator: str, value: Value) -> tuple[Expr | None, str]:
    """Return a literal and its operator; no literal and ``never`` or ``always`` if it does not matter."""
    if kind.kind in ("string", "enum") and value.kind != "number":
        return text_literal(str(value.value)), operator
    if kind.kind == "bool" and value.kind == "word" and str(value.value).lower() in _BOOLS:
        return lit(pa.scalar(_BOOLS[str(value.value).lower()])), operator
    if kind.kind == "date" and value.kind != "number":
        return _instant_or_date(kind, value), operator
    if kind.kind == "datetime":
        return _instant_or_date(kind, value), operator
    if kind.is_number and value.kind == "number":
        assert not isinstance(value.value, str)
        return _number(kind, operator, value.value)
    if kind.kind == "decimal" and value.kind == "text":
        number = _decimal_text(str(value.value))
        if number is not None:
            return _number(kind, operator, number)
    raise failure(f"{value.text:.80} is no {kind}", value.place)


def _instant_or_date(kind: FieldType, value: Value) -> Expr:
    try:
        if kind.kind == "date":
            return lit(pa.scalar(parse_date(value.value), pa.date32()))
        return lit(pa.scalar(parse_instant(value.value), INSTANT))
    except InputError as error:
        raise failure(error.message, value.place, error.hint) from None


def _decimal_text(text: str) -> Decimal | None:
    return Decimal(text) if re.fullmatch(r"-?\d{1,80}(\.\d{1,80})?", text, re.ASCII) else None


def _number(kind: FieldType, operator: str, number: int | Decimal) -> tuple[Expr | None, str]:
    if kind.kind == "float":
        try:
            literal = float(number) + 0.0
        except OverflowError:
            literal = float("inf") if number > 0 else float("-inf")
        return lit(pa.scalar(literal)), operator
    scale = kind.scale if kind.kind == "decimal" else 0
    with localcontext() as context:
        context.prec = 1000
        scaled = Decimal(number).scaleb(scale)
        whole = floor(scaled)
        if whole != scaled:
            # Between two values that the field can have.
            if operator in ("=", "!="):
                return None, "never" if operator == "=" else "always"
            operator = "<=" if operator in ("<", "<=") else ">="
            whole += operator == ">="
        least, most = -(1 << 63), (1 << 63) - 1
        if kind.kind == "decimal":
            least, most = -(10**kind.precision) + 1, 10**kind.precision - 1
        if not least <= whole <= most:
            holds = operator == "!=" or (operator in ("<", "<=")) == (whole > most)
            return None, "always" if holds and operator != "=" else "never"
        if kind.kind == "int":
            return lit(pa.scalar(whole, pa.int64())), operator
        # Written out, the decimal itself would be a float.
        return lit(f"{Decimal(whole).scaleb(-scale):f}").cast(kind.arrow), operator

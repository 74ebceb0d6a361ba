"""Floats as Spark compares them: the two zeros are one, NaN has no sign, decimals beside them are doubles."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from weir.spark.statements.alike import Kind, kind_of
from weir.spark.statements.expressions import COMPARISONS

__all__ = ["floats_compared"]

_LITERALS = (exp.Literal, exp.Null, exp.Var)


def floats_compared(expression: exp.Expr, schema: pa.Schema) -> exp.Expr:
    """Return an expression that compares floats as Spark does.

    What adds zero to a float makes one zero of both. Columns that are compared with literals stay as they
    are: filters know them, and find them by their indexes.

    Parameters
    ----------
    expression : Expression
        An expression over columns of the schema.
    schema : Schema
        Columns.

    Examples
    --------
    >>> import sqlglot
    >>> schema = pa.schema([("x", pa.float64()), ("y", pa.float64())])
    >>> floats_compared(sqlglot.parse_one("x = 0 OR x < y", read="spark"), schema).sql("spark")
    'x = 0 OR x + 0.0 < y + 0.0'
    """
    # A node that is replaced needs one above it.
    whole = exp.Paren(this=expression.copy())
    for negated in reversed(list(whole.find_all(exp.Neg))):
        if not _is_literal(negated) and kind_of(negated.this, schema) is Kind.FLOAT:
            negated.replace(exp.Paren(this=exp.Sub(this=_zero(), expression=negated.this.copy())))
    for division in list(whole.find_all(exp.Div, exp.Mod, exp.IntDiv)):
        # What is divided by is null if it is zero.
        by = division.expression.this if isinstance(division.expression, exp.Nullif) else division.expression
        if not _is_literal(by) and kind_of(by, schema) is Kind.FLOAT:
            by.replace(exp.Add(this=by.copy(), expression=_zero()))
    for one in list(whole.find_all(*COMPARISONS, exp.In, exp.Between, exp.Nullif, exp.Case)):
        compared = [one.this] if isinstance(one, exp.Case) else list(one.iter_expressions())
        sides = [side for side in compared if side is not None and not _is_literal(side)]
        if isinstance(one, exp.Nullif) and isinstance(one.parent, exp.Mod | exp.IntDiv):
            continue
        if len(sides) == 1 and not isinstance(one, exp.Nullif | exp.Case):
            literals = [side for side in compared if side is not sides[0]]
            if isinstance(sides[0], exp.Column) or not any(map(_is_zero, literals)):
                continue
        kinds = [kind_of(side, schema) for side in sides]
        for side, kind in zip(sides, kinds, strict=True):
            if kind is Kind.FLOAT:
                side.replace(exp.Add(this=side.copy(), expression=_zero()))
            elif kind is Kind.DECIMAL and Kind.FLOAT in kinds:
                side.replace(exp.cast(side.copy(), exp.DataType.Type.DOUBLE))
    inside = whole.this
    assert isinstance(inside, exp.Expr)
    return inside


def _zero() -> exp.Expr:
    return exp.Literal.number("0.0")


def _is_literal(side: exp.Expr) -> bool:
    return isinstance(side.this if isinstance(side, exp.Neg) else side, _LITERALS)


def _is_zero(side: exp.Expr) -> bool:
    """Whether a literal may be zero."""
    number = side.this if isinstance(side, exp.Neg) else side
    return not isinstance(number, exp.Literal) or not number.name.lower().partition("e")[0].strip("0.")

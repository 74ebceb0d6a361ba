"""Floats as Spark compares them: the two zeros are one, NaN has no sign, decimals beside them are doubles."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from weir.spark.statements.alike import Kind, kind_of
from weir.spark.statements.expressions import COMPARISONS

__all__ = ["floats_compared"]

_OTHER_COMPARISONS = (exp.Nullif, exp.Case, exp.Greatest, exp.Least)
_LITERALS = (exp.Literal, exp.Null, exp.Var)


def floats_compared(expression: exp.Expr, schema: pa.Schema) -> exp.Expr:
    """Return an expression that compares floats as Spark does.

    What adds zero to a float makes one zero of both, and ``nanvl`` one NaN: processors set the sign of that
    of infinity less infinity, and filters then take it for less than any number. Columns that are compared
    with literals stay as they are, but for NaN: filters know them, and find them by their indexes.

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
    >>> floats_compared(sqlglot.parse_one("x = 0 OR x * y > 1", read="spark"), schema).sql("spark")
    "x = 0 OR NANVL(x * y + 0.0, CAST('NaN' AS DOUBLE)) > 1"
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
    # From the innermost: what is replaced is copied.
    for one in reversed(list(whole.find_all(*COMPARISONS, exp.In, exp.Between, *_OTHER_COMPARISONS))):
        compared = [one.this] if isinstance(one, exp.Case) else list(one.iter_expressions())
        sides = [side for side in compared if side is not None and not _is_literal(side)]
        if isinstance(one, exp.Nullif) and isinstance(one.parent, exp.Mod | exp.IntDiv):
            continue
        if len(sides) == 1 and isinstance(sides[0], exp.Column) and not isinstance(one, _OTHER_COMPARISONS):
            if kind_of(sides[0], schema) is Kind.FLOAT and not any(map(_is_null, compared)):
                _place_nan(one, sides[0])
            continue
        kinds = [kind_of(side, schema) for side in sides]
        for side, kind in zip(sides, kinds, strict=True):
            if kind is Kind.FLOAT:
                side.replace(_one_of_its_kind(side))
            elif kind is Kind.DECIMAL and Kind.FLOAT in kinds:
                side.replace(exp.cast(side.copy(), exp.DataType.Type.DOUBLE))
    inside = whole.this
    assert isinstance(inside, exp.Expr)
    return inside


def _one_of_its_kind(side: exp.Expr) -> exp.Expr:
    """Return a float without the sign of a zero or of NaN."""
    added = exp.Add(this=side.copy(), expression=_zero())
    return exp.Anonymous(this="NANVL", expressions=[added, exp.var("CAST('NaN' AS DOUBLE)")])


def _place_nan(one: exp.Expr, column: exp.Column) -> None:
    """Have NaN be larger than the literals that a column is compared with, whatever its sign."""
    is_left = one.this is column
    larger, smaller = (exp.GT, exp.GTE), (exp.LT, exp.LTE)
    is_nan = exp.Anonymous(this="ISNAN", expressions=[column.copy()])
    if isinstance(one, larger if is_left else smaller):
        one.replace(exp.paren(exp.or_(one.copy(), is_nan)))
    elif isinstance(one, smaller if is_left else larger) or (isinstance(one, exp.Between) and is_left):
        one.replace(exp.paren(exp.and_(one.copy(), exp.not_(is_nan))))


def _is_null(side: exp.Expr) -> bool:
    return isinstance(side, exp.Null) or (isinstance(side, exp.Var) and side.name == "NULL")


def _zero() -> exp.Expr:
    return exp.Literal.number("0.0")


def _is_literal(side: exp.Expr) -> bool:
    return isinstance(side.this if isinstance(side, exp.Neg) else side, _LITERALS)

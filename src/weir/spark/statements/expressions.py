"""Translation of Spark SQL expressions to Weir's filters, with the same values as in Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import pyarrow as pa
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.generator import Generator as PlainGenerator
from sqlglot.tokens import Tokenizer as PlainTokenizer

__all__ = ["ARITHMETIC", "COMPARISONS", "column_type", "explicit", "filter_text", "renamed"]

COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)
ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv)


class _Filters(Dialect):
    """The dialect of Weir's filters: names in backticks where needed, quotation marks in texts doubled."""

    class Tokenizer(PlainTokenizer):
        IDENTIFIERS: ClassVar = ["`"]

    class Generator(PlainGenerator):
        def trycast_sql(self, expression: exp.TryCast) -> str:
            """Return a cast: only Spark's ``try_cast`` turns values that do not fit into null."""
            return self.cast_sql(expression, safe_prefix="TRY_" if expression.args.get("safe") else None)

        def nullsafeeq_sql(self, expression: exp.NullSafeEQ) -> str:
            """Return a comparison in parentheses, or an ``AND`` after it would be part of its right side."""
            return f"({super().nullsafeeq_sql(expression)})"

        def nullsafeneq_sql(self, expression: exp.NullSafeNEQ) -> str:
            """Return a comparison in parentheses, as :meth:`nullsafeeq_sql`."""
            return f"({super().nullsafeneq_sql(expression)})"

        def concat_sql(self, expression: exp.Concat) -> str:
            """Return an expression that is null if a part is, for a function that otherwise skips nulls."""
            return f"({' || '.join(self.sql(part) for part in expression.expressions)})"


def filter_text(expression: exp.Expr) -> str:
    r"""Return an expression in the syntax of Weir's filters and conditions.

    Examples
    --------
    >>> import sqlglot
    >>> filter_text(sqlglot.parse_one(r"`a b` = 'it\'s' AND n <=> 1", read="spark"))
    "`a b` = 'it''s' AND (n IS NOT DISTINCT FROM 1)"
    >>> filter_text(sqlglot.parse_one("concat(a, b) = CAST(n AS STRING)", read="spark"))
    '(a || b) = CAST(n AS TEXT)'
    """
    return expression.sql(_Filters)


def renamed(expression: exp.Expression, new: Callable[[exp.Column], exp.Expression | None]) -> exp.Expression:
    """Return an expression with its columns replaced by other expressions; None keeps a column."""

    def replace(node: exp.Expression) -> exp.Expression:
        found = new(node) if isinstance(node, exp.Column) else None
        return node if found is None else found

    return expression.copy().transform(replace)


def explicit(expression: exp.Expr, schema: pa.Schema) -> exp.Expr:
    """Return an expression that spells out Spark's operators where Weir's mean something else.

    In Spark, ``/`` of integers gives a fraction, and ``[0]`` is the first element of a list. Sums of small
    integers use 64 bits: fewer would overflow. Floats beside other types are doubles, and a
    fractional literal multiplied by a decimal is a decimal. ``ILIKE`` is ``LIKE`` in lower case. What is left
    of a division by zero is null, like its result, and so is the size of null, unless a setting says -1.

    Parameters
    ----------
    expression : Expression
        An expression over columns of the schema; a qualifier that is not part of the schema says which row is
        meant.
    schema : Schema
        Columns.

    Examples
    --------
    >>> import sqlglot
    >>> schema = pa.schema([("n", pa.int32()), ("x", pa.float32()), ("v", pa.list_(pa.int32()))])
    >>> filter_text(explicit(sqlglot.parse_one("n / 2 > x / 2 OR v[0] = 1", read="spark"), schema))
    'CAST(n AS DOUBLE) / NULLIF(2, 0) > CAST(x AS DOUBLE) / NULLIF(2, 0) OR v[1] = 1'
    """
    # A node that is replaced needs one above it.
    whole = exp.Paren(this=expression.copy())
    for one in list(whole.find_all(exp.Div)):
        if not any(_has_fraction(part, schema) for part in one.walk()):
            one.left.replace(exp.cast(one.left.copy(), exp.DataType.Type.DOUBLE))
    for operation in list(whole.find_all(*ARITHMETIC, exp.Neg)):
        is_decimal = any(_is(pa.types.is_decimal, part, schema) for part in operation.walk())
        for side in list(operation.iter_expressions()):
            if _is(_is_small, side, schema) and not isinstance(operation, exp.Div):
                side.replace(exp.cast(side.copy(), exp.DataType.Type.BIGINT))
            elif is_decimal and isinstance(side, exp.Literal) and not (side.is_string or side.is_int):
                side.replace(_as_decimal(side))
    # From the innermost.
    for outer in reversed(list(whole.find_all(*ARITHMETIC))):
        singles = [side for side in outer.iter_expressions() if _is_float32(side, schema)]
        for side in singles if len(singles) < 2 or isinstance(outer, exp.Div) else ():
            side.replace(exp.cast(side.copy(), exp.DataType.Type.DOUBLE))
    for rest in list(whole.find_all(exp.Mod, exp.IntDiv)):
        by = rest.expression
        if not (isinstance(by, exp.Literal) and by.name.strip("0.")):
            by.replace(exp.Nullif(this=by.copy(), expression=exp.Literal.number(0)))
    for size in list(whole.find_all(exp.ArraySize)):
        # Settings of the session say which size null has.
        none = exp.ArraySize(this=exp.cast(exp.Null(), exp.DataType.build("ARRAY<INT>", dialect="spark")))
        size.replace(exp.Coalesce(this=size.copy(), expressions=[none]))
    for like in list(whole.find_all(exp.ILike)):
        like.replace(
            exp.Like(**{**like.args, "this": _lower(like.this), "expression": _lower(like.expression)})
        )
    for comparison in list(whole.find_all(*COMPARISONS, exp.In, exp.Between)):
        sides = list(comparison.iter_expressions())
        small = [side for side in sides if _is(pa.types.is_float32, side, schema)]
        for side in small if len(small) < len(sides) else ():
            side.replace(exp.cast(side.copy(), exp.DataType.Type.DOUBLE))
    for element in list(whole.find_all(exp.Bracket)):
        of = element.this
        kind = column_type(of, schema) if isinstance(of, exp.Column) else None
        if len(element.expressions) == 1 and not (kind is not None and pa.types.is_map(kind)):
            # What element_at makes has an offset.
            index = _later(element.expressions[0], 1 - element.args.get("offset", 0))
            element.set("expressions", [index])
            element.set("offset", None)
    inside = whole.this
    assert isinstance(inside, exp.Expr)
    return inside


def _lower(text: exp.Expr) -> exp.Expr:
    return exp.Literal.string(text.name.lower()) if text.is_string else exp.Lower(this=text.copy())


def _later(index: exp.Expr, by: int) -> exp.Expr:
    if by == 0:
        return index
    is_number = isinstance(index, exp.Literal) and index.is_int
    return exp.Literal.number(int(index.name) + by) if is_number else exp.Paren(this=index) + by


def _is(test: Callable[[pa.DataType], bool], part: exp.Expr, schema: pa.Schema) -> bool:
    """Whether an expression is a column of a type."""
    kind = column_type(part, schema) if isinstance(part, exp.Column) else None
    return kind is not None and test(kind)


def _is_float32(part: exp.Expr, schema: pa.Schema) -> bool:
    """Whether an expression is a float of 32 bits: a column, a cast, or arithmetic of nothing else."""
    if isinstance(part, exp.Cast):
        return bool(part.to.this == exp.DataType.Type.FLOAT)
    if isinstance(part, (exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.Paren, exp.Neg, exp.Abs)):
        return {_is_float32(side, schema) for side in part.iter_expressions()} == {True}
    return _is(pa.types.is_float32, part, schema)


def _is_small(kind: pa.DataType) -> bool:
    """Whether values are integers of fewer than 64 bits."""
    return bool(pa.types.is_integer(kind) and kind.bit_width < 64)


def _as_decimal(number: exp.Literal) -> exp.Expr:
    """Return a number literal with the type Spark gives it; one with an exponent is a double."""
    whole, _, fraction = number.name.partition(".")
    if not (whole + fraction).isdigit():
        return number.copy()
    digits = max(len(whole.lstrip("0")) + len(fraction), 1)
    return exp.var(f"CAST('{number.name}' AS DECIMAL({digits}, {len(fraction)}))")


def _has_fraction(part: exp.Expr, schema: pa.Schema) -> bool:
    if isinstance(part, exp.Column):
        kind = column_type(part, schema)
        return kind is not None and (pa.types.is_floating(kind) or pa.types.is_decimal(kind))
    if isinstance(part, exp.Cast):
        return part.to.this not in exp.DataType.INTEGER_TYPES
    return isinstance(part, exp.Literal) and not part.is_string and not part.is_int


def column_type(column: exp.Column, schema: pa.Schema) -> pa.DataType | None:
    """Return the type of a column, or of a field of one; None if the schema lacks it."""
    names = [part.name for part in column.parts]
    if len(names) > 1 and names[0] not in schema.names:
        del names[0]
    fields: pa.Schema | pa.StructType = schema
    kind: pa.DataType | None = None
    for name in names:
        number = -1 if fields is None else fields.get_field_index(name)
        if number < 0:
            return None
        kind = fields.field(number).type
        fields = kind if pa.types.is_struct(kind) else None
    return kind

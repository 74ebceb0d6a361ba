"""The expressions that Spark and Weir's filters evaluate alike; all others are refused.

Functions of the same name may treat null, NaN, negative numbers, white space or repeated matches differently,
and nobody would notice: a ``DELETE`` would remove other rows than Spark's. So the permitted expressions are
listed here, and have been compared with Spark's.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NoReturn

import pyarrow as pa
from sqlglot import exp

from weir.errors import UnsupportedError
from weir.spark.statements.expressions import ARITHMETIC, COMPARISONS, column_type

__all__ = ["Kind", "kind_of", "refuse_unlike"]

_TEXTS = (exp.Lower, exp.Upper, exp.Concat, exp.DPipe, exp.Replace)
_OF_ITS_PARTS = (exp.Coalesce, exp.Nullif, exp.Greatest, exp.Least, exp.Paren, exp.Neg, exp.Abs, exp.Round)
_LET_THROUGH = {
    *(exp.Column, exp.Identifier, exp.Dot, exp.Bracket, exp.Literal, exp.Boolean, exp.Null, exp.Var),
    *(exp.And, exp.Or, exp.Not, exp.Is, exp.In, exp.Between, exp.Like, exp.ILike, exp.Array),
    *(exp.Case, exp.If, exp.Length, exp.ArraySize, exp.ArrayContains, exp.StartsWith, exp.EndsWith),
    *(exp.Contains, exp.Cast, exp.TryCast, exp.DataType, exp.DataTypeParam),
    *(*COMPARISONS, *ARITHMETIC, *_TEXTS, *_OF_ITS_PARTS),
}
"""Exactly these classes, not subclasses: ``concat_ws`` is a subclass of ``concat``."""
_HINT = "Have Spark evaluate it: MERGE INTO, with a query that finds the keys as its source"


class Kind(Enum):
    """Kinds of values, as far as casts and operators distinguish them."""

    BOOLEAN = auto()
    WHOLE = auto()
    DECIMAL = auto()
    FLOAT = auto()
    TEXT = auto()
    DATE = auto()
    LOCAL = auto()
    """Times without a zone."""
    INSTANT = auto()
    OTHER = auto()


_CASTS = {
    Kind.BOOLEAN: {Kind.BOOLEAN, Kind.WHOLE, Kind.TEXT},
    Kind.WHOLE: {Kind.WHOLE, Kind.DECIMAL, Kind.FLOAT, Kind.TEXT},
    Kind.DECIMAL: {Kind.FLOAT, Kind.TEXT},
    Kind.FLOAT: {Kind.WHOLE, Kind.FLOAT},
    Kind.TEXT: {Kind.WHOLE, Kind.FLOAT, Kind.DATE, Kind.TEXT},
    Kind.DATE: {Kind.DATE, Kind.TEXT, Kind.LOCAL},
    Kind.LOCAL: {Kind.LOCAL, Kind.DATE},
    Kind.INSTANT: {Kind.INSTANT},
}
"""Casts with the same result: not those where decimals lose digits or the session time zone matters."""


_SAME_AS_TEXT = frozenset({Kind.TEXT, Kind.WHOLE, Kind.BOOLEAN, None})
"""Kinds whose values are written alike."""


def refuse_unlike(expression: exp.Expr, schema: pa.Schema) -> None:
    """Check that an expression means the same in Weir's filters as in Spark.

    Parameters
    ----------
    expression : Expression
        An expression over columns of the schema, with literals as constant parts.
    schema : Schema
        Columns.

    Raises
    ------
    UnsupportedError
        If a part of it does not, or has not been compared.
    """
    for part in expression.walk():
        if type(part) not in _LET_THROUGH:
            _refuse(part)
        if isinstance(part, exp.Cast):
            _check_cast(part, schema)
        elif isinstance(part, ARITHMETIC):
            _check_arithmetic(part, schema)
        elif isinstance(part, (*COMPARISONS, exp.In, exp.Between)):
            kinds = {kind_of(side, schema) for side in part.iter_expressions()}
            if {Kind.LOCAL, Kind.INSTANT} <= kinds:
                _refuse(part, "Times with a time zone and times without are compared in that of the session")
        elif isinstance(part, exp.Concat | exp.DPipe | exp.Length):
            if not {kind_of(side, schema) for side in part.iter_expressions()} <= _SAME_AS_TEXT:
                _refuse(part, "Numbers with a fraction, times and bytes are written or counted another way")
        elif isinstance(part, exp.Replace):
            of = part.args["expression"]
            if not (isinstance(of, exp.Literal) and of.is_string and of.name):
                # Spark takes no text for nothing, and others for a place between any two characters.
                _refuse(part)
        elif isinstance(part, exp.Round) and part.args.get("decimals") is not None:
            _refuse(part)
        elif isinstance(part, exp.ArrayContains) and not _is_plain_condition(part):
            # Of a list with a null among others it is null to Spark.
            _refuse(part)


def _refuse(part: exp.Expr, hint: str = _HINT) -> NoReturn:
    text = part.sql("spark")
    raise UnsupportedError(f"weir.spark.sql cannot evaluate {text:.200} as Spark does", where=text, hint=hint)


def _check_cast(part: exp.Cast, schema: pa.Schema) -> None:
    of, to = kind_of(part.this, schema), _kind_of_name(part.to)
    is_alike = of is None or to in _CASTS.get(of, ())
    # Spark takes white space around numbers for nothing.
    if not is_alike or (isinstance(part, exp.TryCast) and of is Kind.TEXT and part.args.get("safe")):
        _refuse(part)


def _check_arithmetic(part: exp.Expr, schema: pa.Schema) -> None:
    kinds = {kind_of(side, schema) for side in part.iter_expressions()} - {None}
    if not kinds <= {Kind.WHOLE, Kind.DECIMAL, Kind.FLOAT}:
        _refuse(part)
    if isinstance(part, exp.Div | exp.IntDiv) and Kind.DECIMAL in kinds and Kind.FLOAT not in kinds:
        _refuse(part, "Decimals are divided with other digits: write CAST(... AS DOUBLE)")


def _is_plain_condition(part: exp.Expr) -> bool:
    """Whether only the truth of the expression matters, so that null is as good as false."""
    above = part.parent
    while isinstance(above, exp.And | exp.Or | exp.Paren):
        above = above.parent
    return above is None


def kind_of(part: exp.Expr, schema: pa.Schema) -> Kind | None:
    """Return the kind of values of an expression; None for null and for literals of any kind."""
    if isinstance(part, exp.Column):
        found = column_type(part, schema)
        return Kind.OTHER if found is None else _kind_of_type(found)
    if isinstance(part, exp.Cast):
        return _kind_of_name(part.to)
    if isinstance(part, exp.Literal):
        return Kind.TEXT if part.is_string else Kind.WHOLE if part.is_int else Kind.FLOAT
    if isinstance(part, exp.Null | exp.Var):
        return None
    if isinstance(part, exp.Boolean | exp.Not | exp.And | exp.Or | exp.Is | exp.In | exp.Between):
        return Kind.BOOLEAN
    if isinstance(part, (*COMPARISONS, exp.Like, exp.ILike)):
        return Kind.BOOLEAN
    if isinstance(part, _TEXTS):
        return Kind.TEXT
    if isinstance(part, exp.Length | exp.ArraySize | exp.IntDiv):
        return Kind.WHOLE
    if isinstance(part, (*ARITHMETIC, *_OF_ITS_PARTS)):
        kinds = [kind_of(one, schema) for one in part.iter_expressions()]
        ordered = sorted((one for one in kinds if one is not None), key=lambda one: one.value)
        return ordered[-1] if ordered else None
    if isinstance(part, exp.Case):
        results = [one.args["true"] for one in part.args["ifs"]]
        return next((one for one in (kind_of(result, schema) for result in results) if one is not None), None)
    return Kind.OTHER


def _kind_of_name(kind: exp.DataType) -> Kind:
    names = {
        Kind.BOOLEAN: {exp.DataType.Type.BOOLEAN},
        Kind.WHOLE: exp.DataType.INTEGER_TYPES,
        Kind.DECIMAL: {exp.DataType.Type.DECIMAL},
        Kind.FLOAT: exp.DataType.FLOAT_TYPES,
        Kind.TEXT: exp.DataType.TEXT_TYPES,
        Kind.DATE: {exp.DataType.Type.DATE},
        Kind.LOCAL: {exp.DataType.Type.TIMESTAMPNTZ},
        Kind.INSTANT: {
            exp.DataType.Type.TIMESTAMP,
            exp.DataType.Type.TIMESTAMPLTZ,
            exp.DataType.Type.TIMESTAMPTZ,
        },
    }
    return next((one for one, known in names.items() if kind.this in known), Kind.OTHER)


def _kind_of_type(kind: pa.DataType) -> Kind:
    known = {
        Kind.BOOLEAN: pa.types.is_boolean,
        Kind.WHOLE: pa.types.is_integer,
        Kind.DECIMAL: pa.types.is_decimal,
        Kind.FLOAT: pa.types.is_floating,
        Kind.TEXT: lambda one: pa.types.is_string(one) or pa.types.is_large_string(one),
        Kind.DATE: pa.types.is_date,
        Kind.LOCAL: lambda one: pa.types.is_timestamp(one) and one.tz is None,
        Kind.INSTANT: lambda one: pa.types.is_timestamp(one) and one.tz is not None,
    }
    return next((one for one, is_it in known.items() if is_it(kind)), Kind.OTHER)

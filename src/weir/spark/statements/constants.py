"""Constant parts of a condition, evaluated by Spark.

``current_date()``, ``TIMESTAMP '2026-01-31 12:00:00'`` and ``now() - INTERVAL 7 DAYS`` depend on the session,
above all on its time zone, and Weir's filters have no session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from sqlglot import exp

from weir.errors import FilterError
from weir.lsm.literals import literals
from weir.schema.sql_nesting import refuse_deep
from weir.spark.statements.alike import refuse_unlike
from weir.spark.statements.dialect import PassedOn, is_known, understood
from weir.spark.statements.expressions import COMPARISONS, column_type, explicit, filter_text
from weir.spark.statements.floats import floats_compared

__all__ = ["Evaluate", "condition_text", "evaluated_by"]

Evaluate = Callable[[Sequence[exp.Expr]], pa.Table]
"""Returns one row with the values of some expressions."""

_COMPARISONS = (*COMPARISONS, exp.Between, exp.In)
_VARYING = (
    *(exp.Column, exp.Identifier, exp.Select),
    *(exp.Rand, exp.Randn, exp.Randstr, exp.Shuffle, exp.Uniform, exp.Uuid),
)
_VARYING_NAMES = frozenset({"RAND", "RANDOM", "RANDN", "RANDSTR", "SHUFFLE", "UNIFORM", "UUID"})
_PLAIN = (exp.Literal, exp.Boolean, exp.Null)


def evaluated_by(spark: SparkSession) -> Evaluate:
    """Return an evaluator of expressions that uses a session."""

    def evaluate(expressions: Sequence[exp.Expr]) -> pa.Table:
        texts = [one.sql(PassedOn) for one in expressions]
        columns = ", ".join(f"{text} AS c{number}" for number, text in enumerate(texts))
        try:
            return spark.sql(f"SELECT {columns}").toArrow()
        except PySparkException as error:
            said = " ".join(str(error).split())
            raise FilterError(
                f"Spark cannot evaluate {', '.join(texts):.200}: {said:.400}", where="weir.spark.sql"
            ) from error

    return evaluate


def condition_text(
    expression: exp.Expr, schema: pa.Schema, evaluate: Evaluate, *, of: str | None = None
) -> str:
    """Return an expression in Weir's form, with its constant parts replaced by their values.

    Texts that are compared with instants are read in the session's time zone.

    Parameters
    ----------
    expression : Expression
        An expression over columns of the schema.
    schema : Schema
        Columns.
    evaluate : callable
        Evaluates the parts, all in one call.
    of : str, optional
        The column to be set to the value of the expression.

    Raises
    ------
    FilterError
        If it is nested too deeply, a part cannot be evaluated, or dates are compared with an instant.
    UnsupportedError
        If Weir's filters would give other values than Spark.
    """
    # Before it is rewritten, which takes time with the square of its depth.
    refuse_deep(expression.sql("spark"), "the condition", where="weir.spark.sql", error=FilterError)
    whole = exp.Paren(this=explicit(understood(expression, _is_constant), schema))
    if of is not None:
        kind = schema.field(of).type
        if pa.types.is_decimal(kind) and (whole.this.is_number or _is_constant(whole.this)):
            whole.this.replace(exp.cast(whole.this.copy(), exp.DataType.build(_decimal_type(kind))))
        _cast([whole.this], "DATE" if pa.types.is_date(kind) else _instant_type(kind))
    for comparison in list(whole.find_all(*_COMPARISONS)):
        sides = list(comparison.iter_expressions())
        for column in [side for side in sides if isinstance(side, exp.Column)]:
            _cast(sides, _instant_type(column_type(column, schema)))
    found = list(_constants(whole.this))
    if found:
        values = evaluate(found)
        for one, value in zip(found, values.columns, strict=True):
            _refuse_instant_as_date(one, value.type, schema)
            text = _literal(value)
            if text is not None:
                one.replace(exp.var(text))
    refuse_unlike(whole.this, schema)
    whole.set("this", floats_compared(whole.this, schema))
    if of is not None and pa.types.is_decimal(schema.field(of).type) and not isinstance(whole.this, exp.Var):
        # With other digits than the column has, as Spark rounds what it stores.
        return f"CAST({filter_text(whole.this)} AS {_decimal_type(schema.field(of).type)})"
    return filter_text(whole.this)


def _decimal_type(kind: pa.DataType) -> str:
    return f"DECIMAL({kind.precision}, {kind.scale})"


def _instant_type(kind: pa.DataType | None) -> str | None:
    """Return the Spark type of instants, with or without a zone; None for other types."""
    if kind is None or not pa.types.is_timestamp(kind):
        return None
    return "TIMESTAMP_NTZ" if kind.tz is None else "TIMESTAMP"


def _cast(sides: Sequence[exp.Expr], to: str | None) -> None:
    """Cast constants, including texts, to the type they are compared with or assigned to."""
    if to is None:
        return
    for side in sides:
        if side.is_string or _is_constant(side):
            side.replace(exp.cast(side.copy(), exp.DataType.build(to, dialect="spark")))


def _constants(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the largest constant parts that are not literals."""
    # A WHEN of a CASE is no expression of its own.
    if _is_constant(node) and not (isinstance(node, exp.If) and isinstance(node.parent, exp.Case)):
        yield node
        return
    for child in node.iter_expressions():
        yield from _constants(child)


def _is_constant(node: exp.Expr) -> bool:
    if not isinstance(node, exp.Condition) or isinstance(node.unnest(), _PLAIN):
        return False
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal):
        return False
    return not any(_varies(part) for part in node.walk())


def _varies(part: exp.Expr) -> bool:
    if isinstance(part, exp.Anonymous):
        # A function that nobody knows may be one of the user's own.
        return not is_known(part) or part.name.upper() in _VARYING_NAMES
    return isinstance(part, _VARYING)


def _refuse_instant_as_date(node: exp.Expr, kind: pa.DataType, schema: pa.Schema) -> None:
    """Refuse to compare instants with dates, which begin at a different instant in every time zone."""
    if not (pa.types.is_timestamp(kind) and isinstance(node.parent, _COMPARISONS)):
        return
    for side in node.parent.iter_expressions():
        found = column_type(side, schema) if isinstance(side, exp.Column) else None
        if found is not None and pa.types.is_date(found):
            raise FilterError(
                f"{side.sql('spark')} is a date, and is compared with an instant: {node.sql('spark')}",
                where=side.sql("spark"),
                hint=f"Write CAST({node.sql('spark')} AS DATE)",
            )


def _literal(value: pa.ChunkedArray) -> str | None:
    if value.null_count:
        return "NULL"
    found = literals(value.combine_chunks())
    return None if found is None else found[0]

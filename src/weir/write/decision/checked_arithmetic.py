"""Overflow checks for integer addition, subtraction and multiplication.

DataFusion lets them wrap around: 9223372036854775807 + 1 is -9223372036854775808, without a word. So whatever
such an operator of an expression gets is given once more to Arrow's checked ones, for exactly those rows for
which DataFusion asks it: a ``CASE`` guards its branches here too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from datafusion import Expr

from weir.sharding.sql import parse, session

__all__ = ["WrappedError", "refuse_wrapped"]

_CHECKED: Mapping[str, Callable[..., pa.Array]] = {
    "Negative": pc.negate_checked,
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
}
_FIRST_THAT_IS = frozenset({"coalesce", "ifnull", "nvl"})


def _may_wrap(expression: Expr) -> bool:
    """Whether there is an operator in an expression whose result may wrap around."""
    form = expression.variant_name()
    if form == "Negative" or (form == "BinaryExpr" and expression.rex_call_operator() in _CHECKED):
        return True
    if form in ("Column", "Literal"):
        return False
    return any(_may_wrap(operand) for operand in expression.rex_call_operands())


def refuse_wrapped(expression: Expr, rows: pa.RecordBatch) -> None:
    """Make sure that no part of an expression wraps around on a row.

    Parameters
    ----------
    expression : Expr
        It has a value for each of the rows.
    rows : RecordBatch
        The columns that it names.

    Raises
    ------
    WrappedError
        One does. It is named.
    """
    if rows.num_rows and _may_wrap(expression):
        _check(expression, rows)


class WrappedError(ArithmeticError):
    """A number is beyond those of its type."""


def _check(expression: Expr, rows: pa.RecordBatch) -> pa.Array | None:
    """Check an expression; return its values if they are known from that."""
    form = expression.variant_name()
    operands = expression.rex_call_operands()
    operator = expression.rex_call_operator() if form in ("BinaryExpr", "ScalarFunction") else form
    if operator == "Negative" or (form == "BinaryExpr" and operator in _CHECKED):
        return _arithmetic(expression, operator, [_value(one, rows) for one in operands])
    if form == "Case":
        _check_case(operands, rows)
        return None
    for operand in operands:
        refuse_wrapped(operand, rows)
        if operator == "AND":
            rows = _those(rows, ~_is(operand, rows, False))
        elif operator == "OR":
            rows = _those(rows, ~_is(operand, rows, True))
        elif operator in _FIRST_THAT_IS:
            rows = _those(rows, _evaluate(operand, rows).is_null().to_numpy(zero_copy_only=False))
    return None


def _check_case(branches: Sequence[Expr], rows: pa.RecordBatch) -> None:
    """Check conditions and values in turn, each for the rows that reach it; the last one may be ELSE."""
    for when, then in zip(branches[::2], branches[1::2], strict=False):
        refuse_wrapped(when, rows)
        chosen = _is(when, rows, True)
        refuse_wrapped(then, _those(rows, chosen))
        rows = _those(rows, ~chosen)
    if len(branches) % 2:
        refuse_wrapped(branches[-1], rows)


def _value(expression: Expr, rows: pa.RecordBatch) -> pa.Array:
    values = _check(expression, rows) if rows.num_rows and _may_wrap(expression) else None
    return _evaluate(expression, rows) if values is None else values


def _arithmetic(expression: Expr, operator: str, given: list[pa.Array]) -> pa.Array | None:
    kind = given[0].type if len(given) == 1 else _kind(operator, given[0].type, given[1].type)
    if not pa.types.is_integer(kind):
        return None
    try:
        return _CHECKED[operator](*(one.cast(kind) for one in given))
    except pa.ArrowInvalid as error:
        raise WrappedError(f"{expression.canonical_name()} is out of range for its type, {kind}") from error


@cache
def _kind(operator: str, left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Return the type that an operator of DataFusion makes of two."""
    columns = pa.schema([("one", left), ("other", right)])
    frame = session().read_batch(pa.RecordBatch.from_pylist([], schema=columns))
    return frame.select(parse(frame, f"one {operator} other").alias("value")).schema().field(0).type


def _is(expression: Expr, rows: pa.RecordBatch, truth: bool) -> npt.NDArray[np.bool_]:
    """Return for which rows a condition is true, or false; null is neither."""
    same = pc.equal(_evaluate(expression, rows).cast(pa.bool_()), truth)
    found: npt.NDArray[np.bool_] = pc.fill_null(same, False).to_numpy(zero_copy_only=False)
    return found


def _those(rows: pa.RecordBatch, chosen: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    return rows if chosen.all() else rows.filter(pa.array(chosen))


def _evaluate(expression: Expr, rows: pa.RecordBatch) -> pa.Array:
    found = session().read_batch(rows).select(expression.alias("value"))
    parts = [part.column(0) for part in found.collect()]
    return pa.chunked_array(parts, found.schema().field(0).type).combine_chunks()

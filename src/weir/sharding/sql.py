"""The DataFusion session for shard expressions and filters, and what is stable in it.

Names are case-sensitive, as in Lance, and rows keep their order.
"""

from __future__ import annotations

from functools import cache, lru_cache

import pyarrow as pa
from datafusion import DataFrame, Expr, SessionConfig, SessionContext

__all__ = ["empty_frame", "named_fields", "parse", "session", "why_not_of_a_row", "why_unstable"]

_FORMS = frozenset(
    {
        *("Alias", "Between", "BinaryExpr", "Case", "Cast", "InList", "Like", "Negative", "Not", "RLike"),
        *("SimilarTo", "TryCast"),
        *("IsFalse", "IsNotFalse", "IsNotNull", "IsNotTrue", "IsNotUnknown", "IsNull", "IsTrue", "IsUnknown"),
    }
)
_LEAVES = frozenset({"Column", "Literal"})


@cache
def session() -> SessionContext:
    """Return the session that shard expressions and filters are planned in; one per process."""
    config = SessionConfig().set("datafusion.sql_parser.enable_ident_normalization", "false")
    # With one partition no operator shuffles rows.
    return SessionContext(config.with_target_partitions(1).with_information_schema(True))


@cache
def _stable_functions() -> frozenset[str]:
    rows = session().sql(
        "SELECT DISTINCT routine_name FROM information_schema.routines "
        "WHERE is_deterministic AND function_type = 'SCALAR'"
    )
    names = rows.to_arrow_table().column(0).to_pylist()
    # The version of DataFusion is the same for a whole process, but not for ever.
    return frozenset(names) - {"version"}


def named_fields(text: str, schema: pa.Schema) -> tuple[tuple[str, pa.DataType], ...]:
    """Return the columns that an expression may name, each with its type.

    A column counts as named if its name occurs anywhere in the text: too many cost time, too few would be
    an error.

    Examples
    --------
    >>> named_fields("ID = 'name'", pa.schema([("id", pa.int8()), ("name", pa.string()), ("n", pa.int8())]))
    (('id', DataType(int8)), ('name', DataType(string)), ('n', DataType(int8)))
    """
    lowered = text.lower()
    names = enumerate(schema.names)
    return tuple((name, schema.field(at).type) for at, name in names if name.lower() in lowered)


@lru_cache(64)
def empty_frame(columns: tuple[tuple[str, pa.DataType], ...]) -> DataFrame:
    """Return a frame without rows, against which expressions over some columns are parsed.

    Raises
    ------
    ValueError
        DataFusion cannot take the columns.
    """
    schema = pa.schema(list(columns))
    batch = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
    try:
        # Without a name: under one, the session would keep it for as long as the process lives.
        return session().read_batch(batch)
    except Exception as error:  # DataFusion raises nothing more specific
        raise ValueError(f"DataFusion cannot take the columns of the table: {error}") from error


def parse(frame: DataFrame, text: str) -> Expr:
    """Parse one SQL expression over the columns of ``frame``.

    Raises
    ------
    ValueError
        The text is not a single expression, or names unknown columns.
    """
    try:
        return frame.parse_sql_expr(text)
    except Exception as error:  # DataFusion raises nothing more specific
        raise ValueError(str(error).removeprefix("DataFusion error: ")) from error


def why_unstable(expression: Expr) -> str | None:
    """Return what keeps an expression from being a function of its columns alone, or None if nothing does.

    Functions are stable if DataFusion's catalog calls them deterministic; subqueries, aggregates, window
    functions and forms not known here are not.
    """
    form = expression.variant_name()
    if form in _LEAVES:
        return None
    if form == "ScalarFunction":
        function = expression.rex_call_operator()
        if function not in _stable_functions():
            return f"{function}() does not depend on the columns alone"
    elif form not in _FORMS:
        return f"it contains a form that is not a function of the row ({form})"
    for operand in expression.rex_call_operands():
        reason = why_unstable(operand)
        if reason is not None:
            return reason
    return None


def why_not_of_a_row(expression: Expr) -> str | None:
    """Return what keeps an expression from having a value for a single row, or None if nothing does.

    Functions may depend on the time; subqueries, aggregates and window functions may not be.
    """
    form = expression.variant_name()
    if form in _LEAVES:
        return None
    if form != "ScalarFunction" and form not in _FORMS:
        return f"it contains {form}"
    reasons = (why_not_of_a_row(operand) for operand in expression.rex_call_operands())
    return next((reason for reason in reasons if reason is not None), None)

"""Translation of pushed-down Spark filters to Lance SQL.

A filter is translated only if Lance then keeps exactly the rows that Spark would: the literal must be a value
of the column's type, and nulls and NaN must behave the same. All other filters are left to Spark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as pushed
from pyspark.sql.pandas.types import to_arrow_type

from weir.errors import FilterError, SchemaError
from weir.lsm.filters import check_filter
from weir.lsm.literals import literals
from weir.spark.types import spark_schema

__all__ = ["PushedFilters", "push_filters"]

_COMPARISONS = {
    pushed.EqualTo: "=",
    pushed.GreaterThan: ">",
    pushed.GreaterThanOrEqual: ">=",
    pushed.LessThan: "<",
    pushed.LessThanOrEqual: "<=",
}
_OF_TEXT = {
    pushed.StringStartsWith: "starts_with",
    pushed.StringEndsWith: "ends_with",
    pushed.StringContains: "contains",
}


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """The division of the filters of a query.

    Parameters
    ----------
    conditions : tuple of str
        Those that Lance evaluates, as SQL.
    left : tuple of Filter
        Those that Spark has to evaluate.
    """

    conditions: tuple[str, ...]
    left: tuple[pushed.Filter, ...]


def push_filters(filters: Iterable[pushed.Filter], schema: pa.Schema) -> PushedFilters:
    """Divide filters into those that Lance evaluates exactly as Spark would, and the others.

    Parameters
    ----------
    filters : iterable of Filter
        The filters that Spark pushes down; rows must pass all of them.
    schema : Schema
        The table's columns.

    Examples
    --------
    >>> filters = [pushed.EqualTo(("name",), "it's"), pushed.GreaterThan(("x",), float("nan"))]
    >>> push_filters(filters, pa.schema([("name", pa.string()), ("x", pa.float32())]))
    PushedFilters(conditions=("`name` = 'it''s'",), left=(GreaterThan(attribute=('x',), value=nan),))
    """
    conditions, left = [], []
    for one in filters:
        condition = _condition(one, schema)
        if condition is not None and _is_accepted(condition, schema):
            conditions.append(condition)
        else:
            left.append(one)
    return PushedFilters(tuple(conditions), tuple(left))


def _is_accepted(condition: str, schema: pa.Schema) -> bool:
    """Whether Lance understands a condition on the table's columns."""
    try:
        check_filter(schema, condition)
    except FilterError:
        return False
    return True


def _condition(one: pushed.Filter, schema: pa.Schema) -> str | None:
    """Return a filter as SQL with the same three-valued result, or None."""
    if isinstance(one, pushed.Not):
        child = _condition(one.child, schema)
        return None if child is None else f"NOT ({child})"
    column = _Column.find(getattr(one, "attribute", ()), schema)
    if column is None:
        return None
    if isinstance(one, pushed.IsNull):
        return f"{column.sql} IS NULL"
    if isinstance(one, pushed.IsNotNull):
        return f"{column.sql} IS NOT NULL"
    if isinstance(one, pushed.EqualNullSafe):
        if one.value is None:
            return f"{column.sql} IS NULL"
        equal = column.compared("=", one.value)
        return None if equal is None else f"({column.sql} IS NOT NULL AND {equal})"
    if isinstance(one, pushed.In):
        return column.among(one.value)
    value = getattr(one, "value", None)
    function = _OF_TEXT.get(type(one))
    if function is not None:
        return column.of_text(function, value)
    operator = _COMPARISONS.get(type(one))
    return None if operator is None else column.compared(operator, value)


@dataclass(frozen=True, slots=True)
class _Column:
    """The column of a filter, or a field of one."""

    sql: str
    kind: pa.DataType

    @classmethod
    def find(cls, path: Sequence[str], schema: pa.Schema) -> _Column | None:
        fields: Iterable[pa.Field] = schema
        kind: pa.DataType | None = None
        for name in path:
            found = next((field for field in fields if field.name == name), None)
            if found is None or "`" in name or "." in name:
                return None
            kind = found.type
            fields = kind if pa.types.is_struct(kind) else ()
        if kind is None:
            return None
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        return cls(".".join(f"`{name}`" for name in path), kind)

    def compared(self, operator: str, value: Any) -> str | None:
        literal = self._literal(value)
        if literal is None:
            return None
        condition = f"{self.sql} {operator} {literal}"
        if pa.types.is_floating(self.kind):
            # In Spark every NaN is larger than every number; in Lance one with its sign bit set is smaller.
            if operator in (">", ">="):
                return f"({condition} OR isnan({self.sql}))"
            if operator in ("<", "<="):
                return f"({condition} AND NOT isnan({self.sql}))"
        return condition

    def among(self, values: Sequence[Any]) -> str | None:
        texts = [self._literal(value) for value in values]
        if not texts or None in texts:
            return None
        return f"{self.sql} IN ({', '.join(map(str, texts))})"

    def of_text(self, function: str, value: Any) -> str | None:
        if not (pa.types.is_string(self.kind) or pa.types.is_large_string(self.kind)):
            return None
        literal = self._literal(value)
        return None if literal is None else f"{function}({self.sql}, {literal})"

    def _literal(self, value: Any) -> str | None:
        """Return a value as SQL, or None if it is not of the column's type."""
        # To a date64 there is more than the day, and to a float16 the literals of Spark are rounded.
        if value is None or pa.types.is_date64(self.kind) or pa.types.is_float16(self.kind):
            return None
        if isinstance(value, float) and not math.isfinite(value):
            return None
        try:
            of_spark = spark_schema(pa.schema([("value", self.kind)]))["value"].dataType
            exact = pa.array([value], to_arrow_type(of_spark, timezone="UTC")).cast(self.kind)
        except (SchemaError, pa.ArrowException, TypeError, ValueError, OverflowError):
            return None
        found = literals(exact)
        return None if found is None else found[0]

"""The constraints of a filter on single columns: SQL text as a tree of value sets.

The text is parsed, type-checked and simplified by DataFusion: its optimiser pushes negations down, folds
constants, brings literals to the type of the column they are compared with and turns
``date_part('year', ts) = 2024`` and the like into plain comparisons, all with the meaning the filter has when
it is evaluated. What remains here is to read comparisons of one column with literals. A filter that has
nothing else from the start is read as it is. Everything else becomes :data:`ANYTHING`, which never excludes a
row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

import numpy as np
import pyarrow as pa
from datafusion import Expr
from datafusion.expr import Between, BinaryExpr, EmptyRelation, Filter, InList, Like, TableScan

from weir.errors import FilterError
from weir.schema.sql_nesting import on_a_deep_stack, refuse_unsafe
from weir.sharding.date_parts import PARTS
from weir.sharding.promotion import plain_type
from weir.sharding.sql import empty_frame, named_fields, parse, why_unstable
from weir.sharding.value_set import (
    NO_VALUE,
    NOT_NULL,
    ONLY_NULL,
    Ordinal,
    ValueSet,
    is_discrete,
    ordinal,
)

__all__ = ["ANYTHING", "NEVER", "AllOf", "AnyOf", "Anything", "Place", "Predicate", "Where", "read_filter"]


@dataclass(frozen=True, slots=True)
class Place:
    """What a condition is about: a column, or a part of a date column.

    Parameters
    ----------
    column : str
        The column.
    part : str or None, default None
        ``"year"``, ``"month"``, ``"day"`` or ``"hour"`` for ``date_part(part, column)``.
    """

    column: str
    part: str | None = None


@dataclass(frozen=True, slots=True)
class Where:
    """True only where the value at ``place`` is in ``values``."""

    place: Place
    values: ValueSet


@dataclass(frozen=True, slots=True)
class AllOf:
    """True only where every part may be."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """True only where one of the parts may be; never if there are none."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Anything:
    """May be true anywhere."""


Predicate = Where | AllOf | AnyOf | Anything

ANYTHING = Anything()
"""A condition that is not understood, or always true."""
NEVER = AnyOf(())
"""A condition that is true nowhere."""

_TEXT = re.compile("'(?:[^']|'')*'")
_NANOSECONDS = re.compile(r":[0-9]{2}\.[0-9]{7}")
_PLAIN_TYPES = frozenset({pa.int64(), pa.string()})
_DEEPEST = 25
"""Levels, or tens of conditions in a row, beyond which reading a filter costs more than pruning may save."""


def read_filter(text: str, schema: pa.Schema) -> Predicate:
    """Return a predicate that is true wherever the filter is, and perhaps elsewhere.

    Parameters
    ----------
    text : str
        The filter.
    schema : pyarrow.Schema
        The columns it may name.

    Raises
    ------
    ValueError
        The text is not understood as a whole; the message says why.
    FilterError
        It is nested too deep.

    Examples
    --------
    >>> import pyarrow as pa
    >>> read_filter("id >= 3 AND id < 9", pa.schema([("id", pa.int32())])).parts[1].values.upper
    8
    """
    code = _TEXT.sub("", text)
    if '"' in code:
        # Lance takes "x" for text, DataFusion for a column.
        raise ValueError("double quotes are read differently by Lance and by DataFusion")
    if _NANOSECONDS.search(text) and "timestamp" in code.lower():
        raise ValueError("of a TIMESTAMP Lance keeps microseconds, DataFusion nanoseconds")
    return _read_filter(text, named_fields(text, schema))


@lru_cache(maxsize=1024)
def _read_filter(text: str, columns: tuple[tuple[str, pa.DataType], ...]) -> Predicate:
    # Those who ask again and again have the same few filters; parsing one takes longer than a small scan.
    depth = refuse_unsafe(text, "the filter", where="filter", error=FilterError)
    if depth > _DEEPEST:
        return ANYTHING
    return on_a_deep_stack(depth, _parsed, text, columns)


def _parsed(text: str, columns: tuple[tuple[str, pa.DataType], ...]) -> Predicate:
    frame, schema = empty_frame(columns), pa.schema(list(columns))
    condition = parse(frame, text)
    if _is_plain(condition, dict(columns)):
        return _read(condition, schema)
    stable = [part for part in _conjuncts(condition) if why_unstable(part) is None]
    if not stable:
        # now() and the like have another value when the filter is evaluated.
        return ANYTHING
    try:
        for part in stable:
            frame = frame.filter(part)
        plan = frame.optimized_logical_plan()
    except Exception as error:  # DataFusion raises nothing more specific
        raise ValueError(str(error).removeprefix("DataFusion error: ")) from error
    conditions: list[Predicate] = []
    while True:
        node = plan.to_variant()
        if isinstance(node, EmptyRelation):
            return NEVER
        if isinstance(node, TableScan):
            return _all_of(conditions)
        inputs = plan.inputs()
        if len(inputs) != 1:
            return ANYTHING
        if isinstance(node, Filter):
            conditions.append(_read(node.predicate(), schema))
        plan = inputs[0]


def _is_plain(condition: Expr, types: Mapping[str, pa.DataType]) -> bool:
    """Whether it has only comparisons of columns with literals of their type: nothing to be simplified."""
    left = [condition]
    while left:
        one = left.pop()
        form = one.variant_name()
        if form not in ("Between", "BinaryExpr", "InList"):
            return False
        operator = one.rex_call_operator() if form == "BinaryExpr" else ""
        of, *others = one.rex_call_operands()
        if operator in ("AND", "OR"):
            left += [of, *others]
            continue
        if (operator and operator not in _MIRRORED) or of.variant_name() != "Column":
            return False
        if form == "InList" and one.to_variant().negated():
            # Of two on a column the libraries make what is true of null too.
            return False
        kind = types.get(of.to_variant().name())
        if kind not in _PLAIN_TYPES or not all(_is_literal(other, kind) for other in others):
            return False
    return True


def _is_literal(expression: Expr, kind: pa.DataType) -> bool:
    return expression.variant_name() == "Literal" and bool(expression.python_value().type == kind)


def _conjuncts(expression: Expr) -> Iterable[Expr]:
    if expression.variant_name() == "BinaryExpr" and expression.rex_call_operator() == "AND":
        for operand in expression.rex_call_operands():
            yield from _conjuncts(operand)
    else:
        yield expression


def _all_of(parts: Iterable[Predicate]) -> Predicate:
    useful: list[Predicate] = []
    for part in parts:
        if part is not ANYTHING:
            useful.extend(part.parts if isinstance(part, AllOf) else (part,))
    if not useful:
        return ANYTHING
    return useful[0] if len(useful) == 1 else AllOf(tuple(useful))


def _any_of(parts: Iterable[Predicate]) -> Predicate:
    listed: dict[Place, ValueSet] = {}
    others: list[Predicate] = []
    for part in parts:
        if part is ANYTHING:
            return ANYTHING
        for one in part.parts if isinstance(part, AnyOf) else (part,):
            if isinstance(one, Where) and one.values.values is not None:
                # A long list of values is one set, not as many conditions.
                known = listed.get(one.place)
                listed[one.place] = one.values if known is None else known.union(one.values)
            else:
                others.append(one)
    choices = (*(Where(place, values) for place, values in listed.items()), *others)
    return choices[0] if len(choices) == 1 else AnyOf(choices)


# ------------------------------------------------------------------------------------------------
# Reading DataFusion's expressions
# ------------------------------------------------------------------------------------------------

_LONGEST_LIST = 1_000
"""Values in an ``IN`` beyond which reading them costs more than the pruning is likely to save."""

_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _read(expression: Expr, schema: pa.Schema) -> Predicate:
    try:
        return _read_form(expression, schema)
    except (TypeError, ValueError, OverflowError, ArithmeticError, pa.ArrowException):
        # A literal or a type without an order here: nothing can be said.
        return ANYTHING


def _read_form(expression: Expr, schema: pa.Schema) -> Predicate:
    form = expression.variant_name()
    if form == "BinaryExpr":
        return _read_binary(expression.to_variant(), schema)
    if form == "Literal":
        return ANYTHING if expression.python_value().as_py() is True else NEVER
    if form == "Like":
        return _read_like(expression, schema)
    operands = expression.rex_call_operands()
    if form == "InList":
        return _read_in_list(expression.to_variant(), schema)
    if form == "Between":
        return _read_between(expression.to_variant(), schema)
    if form == "Column":
        return _read_boolean(expression, schema, {1}, null=False)
    if form == "Not":
        return _read_boolean(operands[0], schema, {0}, null=False)
    if form == "IsTrue":
        return _read(operands[0], schema)
    if form == "IsFalse":
        return _read_boolean(operands[0], schema, {0}, null=False)
    if form == "IsNotTrue":
        return _read_boolean(operands[0], schema, {0}, null=True)
    if form == "IsNotFalse":
        return _read_boolean(operands[0], schema, {1}, null=True)
    if form in ("IsNull", "IsUnknown"):
        return _where_column(operands[0], schema, ONLY_NULL)
    if form in ("IsNotNull", "IsNotUnknown"):
        return _where_column(operands[0], schema, NOT_NULL)
    return ANYTHING


def _read_binary(node: BinaryExpr, schema: pa.Schema) -> Predicate:
    operator = node.op()
    left, right = node.left(), node.right()
    if operator == "AND":
        return _all_of([_read(left, schema), _read(right, schema)])
    if operator == "OR":
        return _any_of([_read(left, schema), _read(right, schema)])
    if left.variant_name() == "Literal":
        left, right = right, left
        operator = _MIRRORED.get(operator, operator)
    if right.variant_name() != "Literal":
        return ANYTHING
    literal = right.python_value()
    if operator == "IS NOT DISTINCT FROM":
        if not literal.is_valid:
            return _where_column(left, schema, ONLY_NULL)
        operator = "="
    if operator not in _MIRRORED:
        return ANYTHING
    return _compare(left, operator, literal, schema) if literal.is_valid else NEVER


def _read_between(node: Between, schema: pa.Schema) -> Predicate:
    of, low, high = node.expr(), node.low().python_value(), node.high().python_value()
    if node.negated():
        return _any_of([_compare(of, "<", low, schema), _compare(of, ">", high, schema)])
    return _all_of([_compare(of, ">=", low, schema), _compare(of, "<=", high, schema)])


def _read_in_list(node: InList, schema: pa.Schema) -> Predicate:
    if len(node.list()) > _LONGEST_LIST:
        return ANYTHING
    if node.negated():
        return _all_of(_compare_each(node, "!=", schema))
    return _any_of(_compare_each(node, "=", schema))


def _compare_each(node: InList, operator: str, schema: pa.Schema) -> Iterable[Predicate]:
    for item in node.list():
        if item.variant_name() != "Literal":
            yield ANYTHING
            continue
        literal = item.python_value()
        yield _compare(node.expr(), operator, literal, schema) if literal.is_valid else NEVER


def _read_like(expression: Expr, schema: pa.Schema) -> Predicate:
    node: Like = expression.to_variant()
    column, pattern = node.expr(), node.pattern()
    if expression.rex_call_operator() != "like" or node.negated() or pattern.variant_name() != "Literal":
        return ANYTHING
    text = pattern.python_value().as_py()
    if not isinstance(text, str) or node.escape_char() is not None or "\\" in text:
        return ANYTHING
    kind = _type_of(column, schema)
    if kind is None or not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return ANYTHING
    prefix = text[: min((text + "%_").index(wildcard) for wildcard in "%_")].encode()
    if not prefix:
        return _where_column(column, schema, NOT_NULL)
    # No UTF-8 byte is 0xff, so the last one has a successor.
    last = prefix[:-1] + bytes([prefix[-1] + 1])
    return _where_column(column, schema, ValueSet(lower=prefix, upper=last))


def _read_boolean(expression: Expr, schema: pa.Schema, values: Iterable[int], *, null: bool) -> Predicate:
    kind = _type_of(expression, schema)
    if kind is None or not pa.types.is_boolean(kind):
        return ANYTHING
    return _where_column(expression, schema, ValueSet.of(values, null=null))


def _where_column(expression: Expr, schema: pa.Schema, values: ValueSet) -> Predicate:
    if _type_of(expression, schema) is None:
        return ANYTHING
    return Where(Place(expression.to_variant().name()), values)


def _type_of(expression: Expr, schema: pa.Schema) -> pa.DataType | None:
    """Return the type of a column of the table; None for any other expression."""
    if expression.variant_name() != "Column":
        return None
    at = schema.get_field_index(expression.to_variant().name())
    return None if at < 0 else plain_type(schema.field(at).type)


# ------------------------------------------------------------------------------------------------
# Comparisons
# ------------------------------------------------------------------------------------------------


def _compare(expression: Expr, operator: str, literal: pa.Scalar, schema: pa.Schema) -> Predicate:
    """Read ``expression operator literal``, the literal not being null."""
    kind = _type_of(expression, schema)
    if kind is not None:
        return _where_column(expression, schema, _column_values(kind, operator, literal))
    form = expression.variant_name()
    if form == "Cast":
        inner = expression.rex_call_operands()[0]
        kind = _type_of(inner, schema)
        if kind is not None:
            return _where_column(inner, schema, _cast_values(kind, operator, literal))
    if form == "ScalarFunction" and expression.rex_call_operator() == "date_part":
        part, inner = expression.rex_call_operands()
        kind = _type_of(inner, schema)
        if kind is not None and _in_utc(kind) and part.variant_name() == "Literal":
            name = str(part.python_value().as_py()).lower()
            if name in PARTS:
                values = _column_values(pa.int32(), operator, literal)
                return Where(Place(inner.to_variant().name(), name), values)
    return ANYTHING


def _column_values(kind: pa.DataType, operator: str, literal: pa.Scalar) -> ValueSet:
    """Return the values of a column of type ``kind`` for which ``column operator literal`` is true."""
    value = ordinal(literal)
    other = plain_type(literal.type)
    if not _comparable(kind, other) or value is None:
        return NOT_NULL
    if isinstance(value, float):
        return _float_values(operator, value)
    return _values(operator, value, discrete=is_discrete(kind))


def _comparable(kind: pa.DataType, other: pa.DataType) -> bool:
    """Whether ordinals of the two types mean the same."""
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(other):
        return kind.unit == other.unit and (kind.tz is None) == (other.tz is None)
    for same in (
        pa.types.is_integer,
        pa.types.is_decimal,
        lambda one: pa.types.is_string(one) or pa.types.is_large_string(one),
        lambda one: pa.types.is_binary(one) or pa.types.is_large_binary(one),
        pa.types.is_floating,
    ):
        if same(kind) and same(other):
            return True
    return bool(kind == other)


def _values(operator: str, value: Ordinal, *, discrete: bool) -> ValueSet:
    if operator == "=":
        return ValueSet.of([value])
    if operator == "!=":
        return ValueSet(excluded=frozenset([value]))
    if operator in ("<", ">") and discrete and isinstance(value, int):
        return ValueSet(upper=value - 1) if operator == "<" else ValueSet(lower=value + 1)
    excluded = frozenset([value]) if operator in ("<", ">") else frozenset()
    if operator in ("<", "<="):
        return ValueSet(upper=value, excluded=excluded)
    return ValueSet(lower=value, excluded=excluded)


def _float_values(operator: str, value: float) -> ValueSet:
    """Return values for floats, wide enough for all engines.

    Lance compares ``float32`` columns with the literal rounded to ``float32``, DataFusion with the literal
    itself; whether -0.0 is less than 0.0 differs from release to release; NaN is the greatest of all values.
    So bounds are inclusive and cover both forms of the literal, and NaN is never excluded.
    """
    if math.isnan(value):
        return NOT_NULL
    with np.errstate(over="ignore"):
        rounded = float(np.float32(value))
    if operator == "=":
        return ValueSet.of([value, rounded])
    if operator in ("<", "<="):
        return ValueSet(upper=max(value, rounded))
    if operator in (">", ">="):
        return ValueSet(lower=min(value, rounded))
    return NOT_NULL


def _cast_values(kind: pa.DataType, operator: str, literal: pa.Scalar) -> ValueSet:
    """Return the values of a column for which ``CAST(column AS literal's type) operator literal`` is true.

    Only casts that keep the order of values are read; after others, all that is known is that the column
    is not null.
    """
    target = plain_type(literal.type)
    value = ordinal(literal)
    if pa.types.is_integer(kind):
        if isinstance(value, int) and pa.types.is_integer(target):
            return _values(operator, value, discrete=True)
        if isinstance(value, Decimal):
            return _scaled(operator, value.as_integer_ratio())
        if isinstance(value, float) and pa.types.is_float64(target) and math.isfinite(value):
            # Large integers are rounded on their way to float64, by less than the next float.
            low, high = math.nextafter(value, -math.inf), math.nextafter(value, math.inf)
            if operator == "!=":
                return NOT_NULL
            return ValueSet(
                lower=None if operator in ("<", "<=") else math.ceil(low),
                upper=None if operator in (">", ">=") else math.floor(high),
            )
    if pa.types.is_floating(kind) and pa.types.is_floating(target) and isinstance(value, float):
        return _float_values(operator, value) if target.bit_width > kind.bit_width else NOT_NULL
    if pa.types.is_decimal(kind) and pa.types.is_decimal(target) and isinstance(value, Decimal):
        return _values(operator, value, discrete=False) if target.scale >= kind.scale else NOT_NULL
    if isinstance(value, int) and pa.types.is_temporal(kind) and pa.types.is_temporal(target):
        return _temporal_values(kind, target, operator, value)
    return NOT_NULL


def _temporal_values(kind: pa.DataType, target: pa.DataType, operator: str, value: int) -> ValueSet:
    if pa.types.is_date32(target) and pa.types.is_timestamp(kind) and _in_utc(kind):
        # The cast drops the time of day.
        per_day = _per_second(kind) * 86_400
        first, last = value * per_day, (value + 1) * per_day - 1
        if value <= 0:
            # Before 1970 some engines round up, others down.
            first, last = first - per_day, last + per_day
        if operator == "!=":
            return NOT_NULL
        return ValueSet(
            lower=None if operator in ("<", "<=") else first,
            upper=None if operator in (">", ">=") else last,
        )
    if not pa.types.is_timestamp(target):
        return NOT_NULL
    if pa.types.is_date32(kind) and _in_utc(target):
        return _scaled(operator, (value, _per_second(target) * 86_400))
    if not pa.types.is_timestamp(kind) or _per_second(target) < _per_second(kind):
        return NOT_NULL
    if (kind.tz is None) == (target.tz is None) or (_in_utc(kind) and _in_utc(target)):
        return _scaled(operator, (value, _per_second(target) // _per_second(kind)))
    return NOT_NULL


def _scaled(operator: str, ratio: tuple[int, int]) -> ValueSet:
    """Return the integers for which ``n operator numerator/denominator`` is true."""
    numerator, denominator = ratio
    floor, rest = divmod(numerator, denominator)
    if rest == 0:
        return _values(operator, floor, discrete=True)
    if operator == "=":
        return NO_VALUE
    if operator == "!=":
        return NOT_NULL
    return ValueSet(upper=floor) if operator in ("<", "<=") else ValueSet(lower=floor + 1)


def _per_second(data_type: pa.DataType) -> int:
    return {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[data_type.unit]


def _in_utc(data_type: pa.DataType) -> bool:
    """Whether the dates and times of a type read the same in UTC."""
    return not pa.types.is_timestamp(data_type) or data_type.tz in (None, "UTC", "+00:00", "Z", "Etc/UTC")

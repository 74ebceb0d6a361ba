"""Inference of decimal types from Python decimals, which carry only their own digits."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["DECIMAL", "roomy"]

_SCALE = 18
"""Digits after the point that a column has room for, as Spark gives them to the same numbers."""
DECIMAL = pa.decimal128(38, _SCALE)
"""The type of a column without a known value."""

_WIDTHS = ((38, pa.decimal128), (76, pa.decimal256))


def roomy(kind: pa.DataType) -> pa.DataType:
    """Return a type, at any depth of lists and structs, whose decimals have room for other numbers too.

    The digits of the first prices say little of those that follow: 1.50 has three, and 100.25 five. So a
    column gets 38 digits, 18 of them after the point; more of these where the first numbers have more, fewer
    where they need the room before it.

    Parameters
    ----------
    kind : DataType
        As Arrow infers it: with as many digits as the values have.

    Examples
    --------
    >>> roomy(pa.decimal128(3, 2))
    Decimal128Type(decimal128(38, 18))
    >>> roomy(pa.list_(pa.decimal128(30, 2)))
    ListType(list<item: decimal128(38, 10)>)
    """
    types = pa.types
    if types.is_decimal(kind):
        whole = kind.precision - kind.scale
        for digits, make in _WIDTHS:
            if kind.precision <= digits:
                return make(digits, max(kind.scale, min(_SCALE, digits - whole)))
        return kind
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(roomy(kind.value_type)))
    if types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(roomy(kind.value_type)))
    if types.is_struct(kind):
        return pa.struct([field.with_type(roomy(field.type)) for field in kind])
    return kind

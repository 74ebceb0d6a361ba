"""Sets of possible values of a column, as constrained by a filter or a shard.

Values are *ordinals*: Python values that compare as the column's values do. Integers, dates, times and
timestamps are their integers, text is its UTF-8 bytes, decimals are :class:`~decimal.Decimal`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from weir.format.arrow_scalar import has_bytes
from weir.sharding.promotion import plain_type

__all__ = ["ANY_VALUE", "NOT_NULL", "NO_VALUE", "ONLY_NULL", "Ordinal", "ValueSet", "is_discrete"]
__all__ += ["ordinal", "ordinals_to_array"]

Ordinal = int | float | Decimal | bytes


@dataclass(frozen=True, slots=True)
class ValueSet:
    """A set that holds at least the values in question, and perhaps more.

    Parameters
    ----------
    values : frozenset of ordinals or None, default None
        The values that are not null, one by one; None if they are an interval.
    lower, upper : ordinal or None, default None
        The interval's ends, both inclusive; None where it has none.
    excluded : frozenset of ordinals, default empty
        Values missing from the interval.
    null : bool, default False
        Whether null is in the set.

    Examples
    --------
    >>> ValueSet(lower=1, upper=5).intersect(ValueSet(lower=4, null=True))
    ValueSet(values=None, lower=4, upper=5, excluded=frozenset(), null=False)
    """

    values: frozenset[Ordinal] | None = None
    lower: Ordinal | None = None
    upper: Ordinal | None = None
    excluded: frozenset[Ordinal] = frozenset()
    null: bool = False

    @staticmethod
    def of(values: Iterable[Ordinal], *, null: bool = False) -> ValueSet:
        """Return the set of exactly these values."""
        return ValueSet(frozenset(values), null=null)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is in the set."""
        if self.null:
            return False
        if self.values is not None:
            return not self.values
        if self.lower is None or self.upper is None:
            return False
        return _less(self.upper, self.lower) or (self.lower == self.upper and self.lower in self.excluded)

    def holds(self, value: Ordinal) -> bool:
        """Whether a value that is not null is in the set. NaN is in every interval."""
        if self.values is not None:
            return value in self.values
        if self.lower is not None and _less(value, self.lower):
            return False
        if self.upper is not None and _less(self.upper, value):
            return False
        return value not in self.excluded

    def intersect(self, other: ValueSet) -> ValueSet:
        """Return the values in both sets."""
        null = self.null and other.null
        if self.values is not None:
            return ValueSet.of((value for value in self.values if other.holds(value)), null=null)
        if other.values is not None:
            return other.intersect(self)
        return ValueSet(
            lower=_later(self.lower, other.lower),
            upper=_earlier(self.upper, other.upper),
            excluded=self.excluded | other.excluded,
            null=null,
        )

    def union(self, other: ValueSet) -> ValueSet:
        """Return a set that holds the values of both (and those between, if either is an interval)."""
        null = self.null or other.null
        if self.values is not None and other.values is not None:
            return ValueSet(self.values | other.values, null=null)
        mine, theirs = self._as_interval(), other._as_interval()
        if mine is None or theirs is None:
            interval = mine or theirs
            assert interval is not None
            return ValueSet(None, interval.lower, interval.upper, interval.excluded, null)
        lower = None if mine.lower is None or theirs.lower is None else _earlier(mine.lower, theirs.lower)
        upper = None if mine.upper is None or theirs.upper is None else _later(mine.upper, theirs.upper)
        excluded = {value for value in mine.excluded if not other.holds(value)}
        excluded |= {value for value in theirs.excluded if not self.holds(value)}
        return ValueSet(lower=lower, upper=upper, excluded=frozenset(excluded), null=null)

    def _as_interval(self) -> ValueSet | None:
        if self.values is None:
            return self
        if not self.values:
            return None
        ordered = sorted(self.values)
        return ValueSet(lower=ordered[0], upper=ordered[-1])


ANY_VALUE = ValueSet(null=True)
"""Every value, and null."""
NOT_NULL = ValueSet()
"""Every value but null."""
ONLY_NULL = ValueSet.of((), null=True)
"""Null alone."""
NO_VALUE = ValueSet.of(())
"""The empty set."""


def ordinal(scalar: pa.Scalar) -> Ordinal | None:
    """Return the ordinal of an Arrow scalar, None for null.

    Raises
    ------
    TypeError
        Values of the type have no order here (lists, structs, ...).
    """
    if not scalar.is_valid:
        return None
    kind = plain_type(scalar.type)
    value: Any
    if pa.types.is_boolean(kind):
        return int(scalar.as_py())
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        value = scalar.as_py()
    elif pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        value = scalar.value
    elif pa.types.is_dictionary(scalar.type):
        value = ordinal(scalar.value)
    elif has_bytes(kind):
        value = scalar.as_buffer().to_pybytes()
    else:
        raise TypeError(f"values of type {kind} have no order")
    return value  # type: ignore[no-any-return]


def ordinals_to_array(ordinals: Sequence[Ordinal | None], data_type: pa.DataType) -> pa.Array:
    """Return the values of ordinals, as a column of ``data_type``.

    Raises
    ------
    pyarrow.ArrowInvalid
        A value does not fit the type.
    """
    values: Sequence[Any] = ordinals
    if pa.types.is_boolean(data_type):
        values = [None if value is None else bool(value) for value in ordinals]
    elif pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
        values = [value.decode() if isinstance(value, bytes) else None for value in ordinals]
    return pa.array(values, data_type)


def is_discrete(data_type: pa.DataType) -> bool:
    """Whether every ordinal of the type is an integer, so that ``x > 3`` is ``x >= 4``."""
    return bool(
        pa.types.is_integer(data_type)
        or pa.types.is_boolean(data_type)
        or (pa.types.is_temporal(data_type) and not pa.types.is_interval(data_type))
    )


def _less(left: Ordinal, right: Ordinal) -> bool:
    return left < right  # type: ignore[operator]  # ordinals of one column compare


def _later(left: Ordinal | None, right: Ordinal | None) -> Ordinal | None:
    if left is None or right is None:
        return left if right is None else right
    return right if _less(left, right) else left


def _earlier(left: Ordinal | None, right: Ordinal | None) -> Ordinal | None:
    if left is None or right is None:
        return left if right is None else right
    return right if _less(right, left) else left

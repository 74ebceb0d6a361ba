from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.sharding.value_set import (
    ANY_VALUE,
    NO_VALUE,
    NOT_NULL,
    ONLY_NULL,
    ValueSet,
    is_discrete,
    ordinal,
    ordinals_to_array,
)

SMALL = range(-3, 4)
NUMBERS = st.integers(-3, 3)
SETS = st.one_of(
    st.builds(ValueSet, values=st.frozensets(NUMBERS), null=st.booleans()),
    st.builds(
        ValueSet,
        lower=st.none() | NUMBERS,
        upper=st.none() | NUMBERS,
        excluded=st.frozensets(NUMBERS, max_size=2),
        null=st.booleans(),
    ),
)


def held(values: ValueSet) -> set[int]:
    return {number for number in SMALL if values.holds(number)}


@given(SETS, SETS)
def test_intersections_hold_what_both_hold(one: ValueSet, other: ValueSet) -> None:
    both = one.intersect(other)
    assert held(both) == held(one) & held(other)
    assert both.null == (one.null and other.null)


@given(SETS, SETS)
def test_unions_hold_what_either_holds(one: ValueSet, other: ValueSet) -> None:
    either = one.union(other)
    assert held(either) >= held(one) | held(other)
    assert either.null == (one.null or other.null)
    if one.values is not None and other.values is not None:
        assert held(either) == held(one) | held(other)


@given(SETS)
def test_empty_sets_hold_nothing(values: ValueSet) -> None:
    if values.is_empty:
        assert held(values) == set()
        assert not values.null
    if values.values is not None or (values.lower is not None and values.lower == values.upper):
        assert values.is_empty == (not held(values) and not values.null)


def test_the_named_sets() -> None:
    assert ANY_VALUE.holds(0)
    assert ANY_VALUE.null
    assert NOT_NULL.holds(0)
    assert not NOT_NULL.null
    assert not ONLY_NULL.holds(0)
    assert ONLY_NULL.null
    assert NO_VALUE.is_empty
    assert not any(one.is_empty for one in (ANY_VALUE, NOT_NULL, ONLY_NULL))


@pytest.mark.parametrize(
    ("column", "ordinals"),
    [
        (pa.array([True, False, None]), [1, 0, None]),
        (pa.array([-5, None], pa.int8()), [-5, None]),
        (pa.array([1.5, None], pa.float32()), [1.5, None]),
        (pa.array(["é", "", None]), ["é".encode(), b"", None]),
        (pa.array(["é", None], pa.large_string()), ["é".encode(), None]),
        (pa.array([b"\xff", None]), [b"\xff", None]),
        (pa.array([b"ab", None], pa.binary(2)), [b"ab", None]),
        (pa.array([3, None], pa.date32()), [3, None]),
        (pa.array([86_400_000, None], pa.date64()), [86_400_000, None]),
        (pa.array([3, None], pa.time32("ms")), [3, None]),
        (pa.array([3, None], pa.time64("ns")), [3, None]),
        (pa.array([-3, None], pa.timestamp("ns", "Europe/Berlin")), [-3, None]),
        (pa.array([-3, None], pa.duration("s")), [-3, None]),
        (pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)), [Decimal("1.50"), None]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_ordinals_stand_for_values(column: pa.Array, ordinals: list[object]) -> None:
    found = [ordinal(scalar) for scalar in column]
    assert found == ordinals
    assert ordinals_to_array(found, column.type).equals(column)
    assert is_discrete(column.type) == all(one is None or isinstance(one, int) for one in found)


@pytest.mark.parametrize(
    "data_type", [pa.string(), pa.decimal128(5, 2), pa.timestamp("us"), pa.binary()], ids=str
)
def test_ordinals_are_in_the_order_of_the_values(data_type: pa.DataType) -> None:
    examples: dict[pa.DataType, list[Any]] = {
        pa.string(): ["", "a", "aa", "b", "é", "日", "👩"],
        pa.decimal128(5, 2): [Decimal(-3), Decimal("0.5"), Decimal(7)],
        pa.timestamp("us"): [-5, 0, 7],
        pa.binary(): [b"", b"\x00", b"\x01", b"\xff", b"\xff\x00"],
    }
    values = examples[data_type]
    column = pa.array(values, data_type)
    in_order = column.take(pa.compute.array_sort_indices(column))
    found = [one for one in map(ordinal, in_order) if one is not None]
    assert len(found) == len(values)
    assert found == sorted(found)


def test_lists_have_no_order() -> None:
    with pytest.raises(TypeError, match="no order"):
        ordinal(pa.scalar([1]))

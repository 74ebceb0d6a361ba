"""The order of integers, against Python's sort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.format.integer_order import integer_order

TYPES = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]


@given(data=st.data(), kind=st.sampled_from(TYPES))
def test_as_a_stable_sort_has_it(data: st.DataObject, kind: type[np.integer]) -> None:
    bounds = np.iinfo(kind)
    # Few different values: some are equal, and the differences take any number of passes.
    chosen = data.draw(st.lists(st.integers(bounds.min, bounds.max), min_size=1, max_size=8))
    values = data.draw(st.lists(st.sampled_from([*chosen, bounds.min, bounds.max]), max_size=40))
    expected = sorted(range(len(values)), key=lambda row: (values[row], row))
    assert integer_order(np.array(values, kind)).tolist() == expected


@pytest.mark.parametrize("bits", [1, 15, 16, 17, 31, 33, 47, 49, 63])
def test_many_that_differ_in_so_many_bits(bits: int) -> None:
    values = np.random.default_rng(bits).integers(-(2 ** (bits - 1)), 2 ** (bits - 1), 5_000)
    assert np.array_equal(integer_order(values), np.argsort(values, kind="stable"))


@pytest.mark.parametrize("parts", [1, 2, 8])
def test_in_order_by_parts(parts: int) -> None:
    values = np.random.default_rng(parts).integers(-100, 100, 5_000)
    values = np.concatenate([np.sort(part) for part in np.array_split(values, parts)])
    assert np.array_equal(integer_order(values), np.argsort(values, kind="stable"))

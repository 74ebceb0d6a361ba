"""Which row of each key is the newest, against a dict."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.format.newest import newest_rows

Columns = Callable[[list[int]], list[pa.Array]]

KEYS: dict[str, Columns] = {
    "int64": lambda keys: [pa.array(keys, pa.int64())],
    "uint64 beyond int64": lambda keys: [pa.array([key + 2**63 for key in keys], pa.uint64())],
    "int8 of both signs": lambda keys: [pa.array([key - 2 for key in keys], pa.int8())],
    "null among them": lambda keys: [pa.array([key or None for key in keys], pa.int32())],
    "string": lambda keys: [pa.array([f"key {key}" for key in keys])],
    "two columns": lambda keys: [pa.array([key // 2 for key in keys]), pa.array([key % 2 for key in keys])],
}


@pytest.mark.parametrize("columns", KEYS.values(), ids=KEYS)
@given(keys=st.lists(st.integers(0, 5), max_size=30), cut=st.integers(0, 30))
def test_the_last_row_of_every_key(columns: Columns, keys: list[int], cut: int) -> None:
    last = {key: row for row, key in enumerate(keys)}
    arrays = columns(keys)
    chunked = [pa.chunked_array([array[:cut], array[cut:]], array.type) for array in arrays]
    for given_as in (arrays, chunked):
        assert newest_rows(given_as).tolist() == sorted(last.values())

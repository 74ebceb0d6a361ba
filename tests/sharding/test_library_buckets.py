from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.sharding.library_buckets import buckets_of_text
from weir.sharding.murmur3 import buckets, murmur3
from weir.sharding.transforms import Bucket

TEXTS = st.lists(st.none() | st.text(max_size=40), max_size=30)


@given(values=TEXTS, start=st.integers(0, 29), count=st.sampled_from([1, 7, 1024]), large=st.booleans())
@settings(max_examples=5 * settings().max_examples, deadline=None)
def test_they_are_those_of_our_own_hash(
    values: list[str | None], start: int, count: int, large: bool
) -> None:
    column = pa.array(values, pa.large_string() if large else pa.string()).slice(start)
    expected = pa.array(buckets(murmur3(column), count))
    assert buckets_of_text(column, count).equals(expected)
    assert Bucket(count).evaluate([column], [column.type]).equals(expected)


def test_texts_in_batches_are_left_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weir.sharding.transforms.murmur3", lambda *_, **__: pytest.fail("hashed here"))
    column = pa.array(["a", None, "b"])
    assert Bucket(8).evaluate([column], [column.type]).to_pylist() == [1, 0, 5]

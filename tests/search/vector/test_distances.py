"""Distances and the nearest by them, against the plain formulas."""

from __future__ import annotations

import warnings
from typing import Any

import hypothesis.strategies as st
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from tests.search.search_model import distance

from weir.search.vector.distances import METRICS, distances, nearest


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_nearest_is_the_sorted_distances(metric: str, kind: type) -> None:
    generator = np.random.default_rng(3)
    vectors: npt.NDArray[Any] = generator.standard_normal((500, 7)).astype(kind)
    query: npt.NDArray[Any] = generator.standard_normal(7).astype(kind)
    rows, found = nearest(vectors, np.vecdot(vectors, vectors), query, 20, metric)
    expected = np.sort([distance(vector, query, metric) for vector in vectors])[:20]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    own = np.array([distance(vectors[row], query, metric) for row in rows])
    np.testing.assert_allclose(found, own, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("k", [1, 10, 60])
@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_nearest_of_very_many_is_exact(metric: str, k: int) -> None:
    generator = np.random.default_rng(4)
    for vectors in (
        generator.standard_normal((20_011, 3)),
        generator.integers(-3, 4, (20_011, 3)),  # most are as near as others
        np.sort(generator.standard_normal((7_000, 3)), axis=0),  # those that are near follow one another
    ):
        narrow = vectors.astype(np.float32)
        query = generator.standard_normal(3).astype(np.float32)
        rows, found = nearest(narrow, np.vecdot(narrow, narrow), query, k, metric)
        exact = distances(narrow, query, metric)
        exact[np.isnan(exact)] = np.inf
        assert rows.tolist() == np.lexsort((np.arange(len(exact)), exact))[:k].tolist()
        assert found.tolist() == exact[rows].tolist()


@given(st.integers(1, 12), st.integers(1, 15), st.integers(0, 2**32 - 1))
def test_hamming_counts_differing_bits(dimension: int, k: int, seed: int) -> None:
    vectors = np.random.default_rng(seed).integers(0, 256, (10, dimension), dtype=np.uint8)
    rows, found = nearest(vectors, np.zeros(10), vectors[3], k, "hamming")
    expected = sorted((distance(vector, vectors[3], "hamming"), row) for row, vector in enumerate(vectors))
    assert list(zip(found.tolist(), rows.tolist(), strict=True)) == expected[:k]


def test_near_vectors_far_from_the_origin_keep_their_order() -> None:
    # Lengths around 1e8, differences around 1: the inner products alone could not tell them apart.
    vectors = np.full((2_000, 4), 1e4, dtype=np.float32)
    vectors[:, 0] += np.random.default_rng(0).permutation(2_000).astype(np.float32) * np.float32(0.01)
    query = np.full(4, 1e4, dtype=np.float32)
    rows, found = nearest(vectors, np.vecdot(vectors, vectors), query, 10, "l2")
    exact = distances(vectors, query, "l2")
    assert found.tolist() == sorted(exact.tolist())[:10]
    assert exact[rows].tolist() == found.tolist()


@pytest.mark.parametrize("metric", [name for name in METRICS if name != "hamming"])
def test_vectors_without_a_distance_are_left_out(metric: str) -> None:
    vectors = np.array(
        [[np.nan, 1], [1, 0], [0, 0], [np.inf, 0], [2, 2], [np.inf, -np.inf]], dtype=np.float32
    )
    lengths = np.vecdot(vectors, vectors)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows, found = nearest(vectors, lengths, np.array([1, 1], dtype=np.float32), 6, metric)
    assert 0 not in rows
    assert (2 in rows) == (metric != "cosine")
    assert not np.isnan(found).any()

"""Places among ascending values, against NumPy's search for one after the other."""

from __future__ import annotations

import numpy as np
import pytest

from weir.format import ascending_search
from weir.format.ascending_search import first_places


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.uint64])
@pytest.mark.parametrize("seed", range(8))
def test_as_numpy_finds_them(monkeypatch: pytest.MonkeyPatch, kind: type[np.integer], seed: int) -> None:
    monkeypatch.setattr(ascending_search, "_LARGE", 1)
    monkeypatch.setattr(ascending_search, "_MANY", 1)
    random = np.random.default_rng(seed)
    bounds = np.iinfo(kind)
    ends = np.array([bounds.min, bounds.max], kind)
    for count in (1, 4_095, 4_096, 4_097, 8_192, 20_001):
        # Few different values repeat over pages; many are spread unevenly.
        few = random.integers(bounds.min, bounds.max, 1 + seed, dtype=kind, endpoint=True)
        many = random.integers(bounds.min, bounds.max, count, dtype=kind, endpoint=True)
        for drawn in (random.choice(few, count), many, many // kind(1 + 7 * seed)):
            values = np.sort(drawn.astype(kind))
            near = values[random.integers(0, count, 200)]
            wanted = np.concatenate([near, near + kind(1), near - kind(1), few, ends])
            random.shuffle(wanted)
            assert np.array_equal(first_places(values, wanted), values.searchsorted(wanted))


def test_among_values_that_no_cache_holds() -> None:
    values = 3 * np.arange(1_500_001)
    wanted = np.random.default_rng(0).integers(-5, 4_500_010, 1_000)
    assert np.array_equal(first_places(values, wanted), values.searchsorted(wanted))

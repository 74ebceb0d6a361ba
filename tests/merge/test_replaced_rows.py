"""Finding the rows that have one of some keys, among rows in any order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from weir.lsm.keys import KeySet
from weir.merge.replaced_rows import _Sieve

RANDOM = np.random.default_rng(3)
WANTED = RANDOM.choice(np.arange(-3_000, 3_000), 900, replace=False)


def refuse(*_: object) -> None:
    pytest.fail("a bitmap was made")


@pytest.mark.parametrize(
    "there",
    [
        np.arange(0, 4_000, 2),
        np.arange(-4_000, -1, 3),
        np.arange(-2_000, 2_000),
        np.arange(2_000, 0, -1),
        np.array([0, 2_999]),
        np.array([5_000, 6_000]),
        np.array([17]),
        np.array([], dtype=np.int64),
        RANDOM.permutation(np.arange(-3_500, 3_500)),
        np.repeat(np.arange(100), 2),
    ],
    ids=lambda there: f"{len(there)} rows",
)
def test_rows_with_wanted_keys_are_found_in_any_order(there: np.ndarray) -> None:
    offsets, which = _Sieve(KeySet([pa.array(WANTED)])).match([pa.array(there)])
    assert sorted(offsets.tolist()) == np.flatnonzero(np.isin(there, WANTED)).tolist()
    assert WANTED[which].tolist() == there[offsets].tolist()


def test_of_keys_that_ascend_no_bitmap_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Sieve, "_place", refuse)
    offsets, which = _Sieve(KeySet([pa.array([7, 3, 5])])).match([pa.array([1, 3, 4, 7, None])])
    assert (offsets.tolist(), which.tolist()) == ([1, 3], [1, 0])

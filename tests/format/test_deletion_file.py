"""The rows in deletion files that the library has written."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from weir.format.deletion_file import deleted_offsets, deleted_rows, is_whole_deletion_file

ROWS = 300_000


def _some(seed: int, share: float) -> npt.NDArray[np.int64]:
    return np.flatnonzero(np.random.default_rng(seed).random(ROWS) < share)


DELETED = {
    "one": np.array([0]),
    "the last": np.array([ROWS - 1]),
    "few": _some(1, 0.001),
    "a twentieth": _some(2, 0.05),
    "half": _some(3, 0.5),
    "nearly all": _some(4, 0.999),
    "a run": np.arange(1_000, 250_000),
    "two runs and few": np.concatenate([np.arange(5, 70_000), [80_000, 80_002], np.arange(140_000, 190_000)]),
    "the second container": np.arange(65_536, 131_072),
    "around the limit of an array": np.concatenate([np.arange(0, 8_192, 2), 65_536 + np.arange(0, 8_194, 2)]),
}


@pytest.fixture(params=DELETED)
def written(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[bytes, str, npt.NDArray[np.int64]]:
    """Return a deletion file of the library, its name, and the rows that were deleted."""
    deleted = DELETED[request.param]
    gone = np.zeros(ROWS, dtype=bool)
    gone[deleted] = True
    lance.write_dataset(pa.table({"gone": gone}), tmp_path / "t")
    lance.dataset(tmp_path / "t").delete("gone")
    (path,) = (tmp_path / "t" / "_deletions").iterdir()
    return path.read_bytes(), path.name, deleted


def test_offsets_are_those_that_were_deleted(written: tuple[bytes, str, npt.NDArray[np.int64]]) -> None:
    data, name, deleted = written
    found = deleted_offsets(data, name)
    assert found is not None
    assert found.tolist() == deleted.tolist()
    assert deleted_rows(data, name) == len(deleted)
    assert is_whole_deletion_file(data, name)


def test_a_file_that_was_cut_short_has_none(written: tuple[bytes, str, npt.NDArray[np.int64]]) -> None:
    data, name, _ = written
    for length in {0, 1, 7, 8, len(data) // 2, len(data) - 1}:
        assert deleted_offsets(data[:length], name) is None


@pytest.mark.parametrize("written", ["half", "a run"], indirect=True)
def test_rows_are_counted_without_their_numbers(written: tuple[bytes, str, npt.NDArray[np.int64]]) -> None:
    data, name, deleted = written
    tracemalloc.start()
    try:
        assert deleted_rows(data, name) == len(deleted)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < len(deleted)

"""Leaving dead rows out of a scan by their place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

import weir
from weir.lsm.deletion_mask import DeletionMask, without_places


def written(path: Path, rows: int = 1000, **options: Any) -> lance.LanceDataset:
    return lance.write_dataset(pa.table({"id": range(rows)}), str(path), max_rows_per_file=100, **options)


def row_ids(dataset: lance.LanceDataset) -> npt.NDArray[np.uint64]:
    found: npt.NDArray[np.uint64] = (
        dataset.scanner(columns=[], with_row_id=True, scan_in_order=True).to_table()["_rowid"].to_numpy()
    )
    return found


@pytest.mark.parametrize("compacted", [False, True])
def test_places_are_those_of_a_scan(tmp_path: Path, compacted: bool) -> None:
    dataset = written(tmp_path / "t")
    if compacted:
        dataset.delete("id < 10")
        dataset.optimize.compact_files(target_rows_per_fragment=100, materialize_deletions_threshold=0.01)
    ids = row_ids(dataset)
    dead = np.sort(np.random.default_rng(1).choice(ids, 300, replace=False))
    # One of a fragment that is not there, one behind the end of one that is.
    mask = DeletionMask(np.sort(np.concatenate([dead, np.array([77 << 32, (5 << 32) + 100], np.uint64)])))
    places = mask.places_in(dataset)
    assert places is not None
    assert places.tolist() == np.flatnonzero(np.isin(ids, dead)).tolist()


def test_a_mask_takes_no_more_memory_than_it_says(tmp_path: Path) -> None:
    dataset = written(tmp_path / "t")
    mask = DeletionMask(np.array([3], dtype=np.uint64))
    places = mask.places_in(dataset)
    assert places is not None
    assert mask.serialized is not None
    assert mask.row_ids.nbytes + places.nbytes <= mask.nbytes


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_batches_are_left_without_places(size: int) -> None:
    rows = pa.table({"n": np.arange(20)})
    places = np.array([0, 3, 4, 5, 13, 19])
    starts = range(0, 20, size)
    found = [
        without_places(batch, start, places)
        for start, batch in zip(starts, rows.to_batches(max_chunksize=size), strict=True)
    ]
    left = [number for one in found for number in one.column("n").to_pylist()]
    assert left == [number for number in range(20) if number not in places]


def test_ids_do_not_tell_places_where_rows_were_deleted_or_ids_are_stable(tmp_path: Path) -> None:
    deleted = written(tmp_path / "deleted")
    deleted.delete("id = 7")
    stable = written(tmp_path / "stable", enable_stable_row_ids=True)
    for dataset in (deleted, stable):
        assert DeletionMask(np.array([3], dtype=np.uint64)).places_in(dataset) is None


def test_rows_of_a_small_generation_are_remembered_until_something_replaces_them(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int32()), ("text", pa.string())])
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)

    def shown() -> dict[int, int]:
        found = [table.scan(columns=["id", "n"]).to_table() for _ in range(2)]
        assert found[0].equals(found[1])
        batches = pa.Table.from_batches(list(table.scan(columns=["id", "n"]).to_batches()), found[0].schema)
        assert batches.sort_by("id").equals(found[0].sort_by("id"))
        return {row["id"]: row["n"] for row in found[0].to_pylist()}

    with table.writer() as writer:
        writer.upsert([{"id": n, "n": n} for n in range(10)])
        writer.flush()
        assert shown() == {n: n for n in range(10)}
        writer.upsert([{"id": 3, "n": 30}])
        writer.delete([4])
        writer.flush()
        assert shown() == {n: n for n in range(10) if n != 4} | {3: 30}
        assert table.scan(columns=["id", "n"], limit=4).to_table().num_rows == 4
        assert table.scan(columns=["id"], filter="n = 30").to_pylist() == [{"id": 3}]
    table.alter(widen={"n": pa.int64()})
    assert table.scan(columns=["n"]).to_table().schema.field("n").type == pa.int64()
    assert shown()[3] == 30
    table.alter(drop=["n"])
    table.alter(add=[pa.field("n", pa.int64())])
    assert set(shown().values()) == {None}

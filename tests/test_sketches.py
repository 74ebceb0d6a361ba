"""Sketches of distinct values: made, united by a merge engine on every path, and estimated."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weir
from weir import sketches
from weir.errors import InputError, SchemaError
from weir.format.merge_engine import MergeEngine
from weir.lsm.fold import fold, settle

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("seen", pa.binary()), ("n", pa.int64())])
ENGINE = MergeEngine.aggregation(seen="distinct_sketch", n="sum")


def table_in(path: Path, **options: Any) -> weir.Table:
    return weir.create(path, SCHEMA, primary_key="id", merge_engine=ENGINE, fsync=False, **options)


def shown(table: weir.Table) -> dict[int, float | None]:
    found = table.scan().to_table()
    return dict(zip(found["id"].to_pylist(), sketches.estimates(found["seen"]).to_pylist(), strict=True))


@pytest.mark.parametrize(
    "values",
    [
        [1, 2, 2, None],
        ["a", "b", "a"],
        [1.5, 2.5],
        [True, False, True],
        [date(2026, 1, 1), date(2026, 1, 2)],
        [datetime(2026, 1, 1), datetime(2026, 1, 2)],
        np.array([7, 8, 7], dtype=np.uint8),
        pa.array(["a", "b", "a"]).dictionary_encode(),
        ["", "a", ""],
        # As doubles they would be one.
        pa.array([(1 << 63) + 1, (1 << 63) + 2], pa.uint64()),
        pa.chunked_array([[(1 << 64) - 1, None], [5]], pa.uint64()),
    ],
)
def test_a_sketch_counts_distinct_values(values: pa.Array) -> None:
    assert sketches.estimate(sketches.of(values)) == 2.0


def test_an_estimate_of_many_is_close_and_its_sketch_small() -> None:
    sketch = sketches.of(np.arange(100_000))
    assert abs(sketches.estimate(sketch) / 100_000 - 1) < 0.05
    assert len(sketch) <= 33 << 10


def test_a_number_is_the_same_with_a_sign_and_without() -> None:
    parts = [sketches.of(pa.array([5, 7], kind)) for kind in (pa.int64(), pa.uint64(), pa.uint8())]
    assert sketches.estimate(sketches.union(parts)) == 2.0


@pytest.mark.parametrize("values", [[[1]], [b"x"], [1, "a"], [10**30], 5, None])
def test_values_that_cannot_be_counted_are_refused(values: Any) -> None:
    with pytest.raises(InputError):
        sketches.of(values)


@pytest.mark.parametrize("sketch", [b"", b"x" * 50, None, "text"])
def test_what_is_no_sketch_has_no_estimate(sketch: Any) -> None:
    with pytest.raises(InputError, match="sketch"):
        sketches.estimate(sketch)
    with pytest.raises(InputError, match="sketch"):
        sketches.union([sketch])


@given(
    groups=st.lists(st.lists(st.integers(0, 9_000), max_size=4), min_size=1, max_size=5), at=st.integers(0, 5)
)
@settings(max_examples=30, deadline=None)
def test_a_union_has_the_same_bytes_in_any_order(groups: list[list[int]], at: int) -> None:
    # Large ones among them, whose union leaves values out.
    parts = [
        sketches.of(np.concatenate([group, np.arange(sum(group)) * (len(group) + 1)]).astype(np.int64))
        for group in groups
    ]
    whole = sketches.union(parts)
    assert sketches.union(parts[::-1]) == whole
    assert sketches.union([sketches.union(parts[:at]), *parts[at:]]) == whole


@pytest.mark.parametrize("cut", range(0, 12, 3))
def test_folding_in_parts_comes_to_the_same(cut: int) -> None:
    rows = [
        {"id": n % 4, "seen": None if n % 5 == 0 else sketches.of([n, n + 1]), "n": n, "_tombstone": n == 6}
        for n in range(12)
    ]
    versions = pa.Table.from_pylist(rows, SCHEMA.append(pa.field("_tombstone", pa.bool_())))
    parts = [fold(ENGINE, part, ["id"]) for part in (versions.slice(0, cut), versions.slice(cut))]
    whole = settle(ENGINE, versions, ["id"]).rows.sort_by("id")
    assert settle(ENGINE, pa.concat_tables(parts), ["id"]).rows.sort_by("id").equals(whole)
    # 0: 4, 5, 8, 9; 1: 1, 2, 9, 10; 2: nothing before the delete of 6 counts; 3: 3, 4, 7, 8, 11, 12
    assert sketches.estimates(whole["seen"]).to_pylist() == [4.0, 4.0, None, 6.0]


def test_every_read_shows_the_same_before_and_after_flush_and_merge(tmp_path: Path) -> None:
    table = table_in(tmp_path / "t", shard_by=weir.bucket("id", 2))
    with table.writer() as writer:
        for n in range(30):
            seen = sketches.of([n % 7, n % 11]) if n % 3 else None
            writer.upsert([{"id": n % 5, "seen": seen, "n": 1}])
            if n % 10 == 9:
                writer.flush()
        expected = table.scan().to_table().sort_by("id")
        assert table.get(range(5)).sort_by("id").equals(expected)
    assert table.scan().to_table().sort_by("id").equals(expected)
    token = table.snapshot()
    table.maintenance.merge()
    assert table.scan().to_table().sort_by("id").equals(expected)
    assert table.scan(at=token).to_table().sort_by("id").equals(expected)
    models = {
        key: {one for n in range(30) if n % 3 and n % 5 == key for one in (n % 7, n % 11)} for key in range(5)
    }
    assert shown(table) == {key: float(len(values)) for key, values in models.items()}


@pytest.mark.parametrize("value", [b"", b"no sketch", b"\x03" * 40])
def test_what_is_no_sketch_is_refused_before_it_is_written(tmp_path: Path, value: bytes) -> None:
    table = table_in(tmp_path / "t")
    with table.writer() as writer:
        writer.upsert([{"id": 1, "seen": sketches.of([1]), "n": 1}])
        with pytest.raises(SchemaError, match=r"no sketch in row 1"):
            writer.upsert([{"id": 2, "n": 1}, {"id": 1, "seen": value, "n": 1}])
    assert shown(table) == {1: 1.0}


def test_a_column_of_another_type_is_refused(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("seen", pa.string())])
    engine = MergeEngine.aggregation(seen="distinct_sketch")
    with pytest.raises(SchemaError, match="must be binary"):
        weir.create(tmp_path / "t", schema, primary_key="id", merge_engine=engine)


def test_a_table_with_the_same_columns_and_no_sketches_takes_any_bytes(tmp_path: Path) -> None:
    table_in(tmp_path / "sketches").upsert([{"id": 1, "seen": sketches.of([1])}])
    plain = weir.create(tmp_path / "plain", SCHEMA, primary_key="id", fsync=False)
    plain.upsert([{"id": 1, "seen": b"anything"}])
    assert plain.scan().to_pylist() == [{"id": 1, "seen": b"anything", "n": None}]

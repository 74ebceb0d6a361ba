"""Finding rows through the pages of the key index, compared with reading the whole table."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from weir.base.create import create_base_table
from weir.base.key_index import extend_key_index
from weir.base.key_pages import KeyPages, key_pages
from weir.base.key_segment import PageFile, Segment
from weir.base.table import BaseTable
from weir.engine.context import default_context
from weir.errors import CorruptionError, StorageError
from weir.storage.local import LocalStore

ROWS = 10_000

Numbers = npt.NDArray[np.int64]


def _keys(kind: pa.DataType, numbers: Numbers) -> pa.Array:
    if pa.types.is_integer(kind):
        return pa.array(numbers).cast(kind)
    return pa.array([f"key {number:06d}" for number in numbers.tolist()]).cast(kind)


def _rows(kind: pa.DataType, numbers: Numbers, value: int) -> pa.Table:
    schema = pa.schema([pa.field("id", kind, nullable=False), pa.field("value", pa.int64())])
    return pa.table([_keys(kind, numbers), pa.array(np.full(len(numbers), value))], schema=schema)


def _made(directory: Path, kind: pa.DataType, numbers: Numbers) -> BaseTable:
    rows = _rows(kind, numbers, 0)
    return create_base_table(LocalStore(directory, fsync=False), rows.schema, ("id",), initial_data=rows)


def _replace(base: BaseTable, rows: pa.Table) -> BaseTable:
    dataset = copy.copy(base.dataset)
    dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)
    return base.latest()


def _taken(pages: KeyPages, addresses: npt.NDArray[np.uint64], columns: list[str]) -> pa.Table:
    rows, left = pages.take(addresses, columns)
    return rows.append_column("_rowid", pa.array(left))


def _check(base: BaseTable, wanted: pa.Array) -> None:
    pages = key_pages(base)
    assert pages is not None
    which, addresses = pages.find(wanted)
    taken = _taken(pages, addresses, ["id", "value"])
    everything = base.dataset.to_table(with_row_id=True)
    expected = everything.filter(pc.is_in(everything["id"], value_set=wanted))
    assert sorted(taken.to_pylist(), key=str) == sorted(
        expected.select(["id", "value", "_rowid"]).to_pylist(), key=str
    )
    found = dict(zip(addresses.tolist(), which.tolist(), strict=True))
    for row in taken.to_pylist():
        assert wanted[found[row["_rowid"]]].as_py() == row["id"]


@pytest.fixture(params=[pa.int64(), pa.uint16(), pa.string(), pa.large_string(), pa.binary()], ids=str)
def kind(request: pytest.FixtureRequest) -> pa.DataType:
    return request.param


@pytest.mark.covering
@pytest.mark.parametrize("count", [1, 2, 300, 2_000])
def test_finds_what_a_scan_finds(tmp_path: Path, kind: pa.DataType, count: int) -> None:
    generator = np.random.default_rng(count)
    base = _made(tmp_path / "t", kind, generator.permutation(np.arange(0, 2 * ROWS, 2)))
    replaced = generator.choice(np.arange(3 * ROWS), 3_000, replace=False)
    base = extend_key_index(_replace(base, _rows(kind, replaced, 1)))
    dataset = copy.copy(base.dataset)
    dataset.delete("value = 1 AND _rowid % 3 = 0")
    base = base.latest()
    for _ in range(3):
        _check(base, _keys(kind, generator.choice(np.arange(3 * ROWS), count, replace=False)))
    default_context().cache.clear()
    _check(base, _keys(kind, np.arange(0, 3 * ROWS, 7)))


@pytest.mark.parametrize("share", [0.01, 0.5, 0.95])
def test_one_row_of_a_fragment_that_has_lost_rows(tmp_path: Path, share: float) -> None:
    generator = np.random.default_rng(5)
    base = _made(tmp_path / "t", pa.int64(), generator.permutation(ROWS))
    for part in np.array_split(generator.permutation(ROWS)[: int(share * ROWS)], 3):
        dataset = copy.copy(base.dataset)
        dataset.delete(f"id IN ({', '.join(map(str, part.tolist()))})")
        base = base.latest()
        for number in generator.permutation(ROWS)[:150].tolist():
            _check(base, pa.array([number]))


def test_tells_nothing_of_fragments_that_are_not_indexed_yet(tmp_path: Path) -> None:
    base = _made(tmp_path / "t", pa.int64(), np.arange(10))
    assert key_pages(base) is not None
    base = _replace(base, _rows(pa.int64(), np.arange(5, 15), 1))
    assert key_pages(base) is None
    base = extend_key_index(base)
    _check(base, pa.array([4, 5, 9, 14, 15]))


def test_fragments_that_are_gone_do_not_count(tmp_path: Path) -> None:
    base = _made(tmp_path / "t", pa.int64(), np.arange(100))
    base = extend_key_index(_replace(base, _rows(pa.int64(), np.arange(100), 1)))
    assert len(base.dataset.get_fragments()) == 1
    _check(base, pa.array(np.arange(100)))
    dataset = copy.copy(base.dataset)
    dataset.optimize.compact_files()
    _check(extend_key_index(base.latest()), pa.array(np.arange(50, 150)))


def test_a_key_that_a_segment_lists_more_than_once(tmp_path: Path) -> None:
    """As it does when segments are merged: the rows that were replaced stay in the index."""
    base = _made(tmp_path / "t", pa.int64(), np.arange(100))
    for value in range(1, 4):
        base = extend_key_index(_replace(base, _rows(pa.int64(), np.array([5, 50]), value)))
        (name,) = {index.name for index in base.dataset.describe_indices() if index.segments[0].fragment_ids}
        dataset = copy.copy(base.dataset)
        dataset.optimize.optimize_indices(index_names=[name], num_indices_to_merge=10)
        base = base.latest()
        _check(base, pa.array([5]))
        _check(base, pa.array([4, 5, 6, 50, 99, 100]))


def test_empty_table_and_composite_key(tmp_path: Path) -> None:
    base = _made(tmp_path / "empty", pa.int64(), np.arange(0))
    pages = key_pages(base)
    assert pages is None or not pages.find(pa.array([1]))[1].size
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.int64(), nullable=False)])
    store = LocalStore(tmp_path / "composite", fsync=False)
    assert key_pages(create_base_table(store, schema, ("a", "b"))) is None


@pytest.mark.parametrize("name", ["page_data.lance", "page_lookup.lance"])
def test_a_segment_that_is_cut_short_is_named(tmp_path: Path, name: str) -> None:
    """Left to the library, which uses the same files, it could end the process."""
    base = _made(tmp_path, pa.int64(), np.arange(ROWS))
    (path,) = tmp_path.glob(f"_indices/*/{name}")
    path.write_bytes(path.read_bytes()[:-20])
    default_context().cache.clear()
    with pytest.raises((CorruptionError, StorageError), match="key index") as caught:
        key_pages(BaseTable.open(base.store))
    assert "_indices" in str(caught.value.where)


@pytest.mark.parametrize("reads", [50, pytest.param(400, marks=pytest.mark.long)])
def test_many_threads_read_pages_of_one_file(tmp_path: Path, reads: int) -> None:
    numbers = np.arange(200_000, dtype=np.int64)
    base = _made(tmp_path, pa.int64(), numbers)
    pages = key_pages(base)
    assert pages is not None
    (segment,) = pages._segments

    def find(seed: int) -> None:
        wanted = np.sort(np.random.default_rng(seed).choice(numbers, 20, replace=False))
        default_context().cache.clear()
        which, addresses = pages.find(pa.array(wanted))
        assert which.tolist() == list(range(20))
        taken = _taken(pages, addresses, ["id", "value"])
        assert taken["id"].to_pylist() == wanted.tolist()
        assert len(segment.whole().values) == len(numbers)

    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(find, seed) for seed in range(reads)]:
            done.result()


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()], ids=str)
def test_keys_one_by_one_bring_the_whole_segment_into_memory(tmp_path: Path, kind: pa.DataType) -> None:
    numbers = np.arange(0, 2 * 100_000, 2)
    base = _made(tmp_path, kind, numbers)
    default_context().cache.clear()
    pages = key_pages(base)
    assert pages is not None
    (segment,) = pages._segments
    assert len(segment.low) > 16
    reads = []
    for number in np.random.default_rng(1).choice(2 * len(numbers), 100, replace=False):
        which, addresses = pages.find(_keys(kind, np.array([number])))
        assert which.tolist() == ([0] if number % 2 == 0 else [])
        if which.size:
            assert pages.take(addresses, ["id"])[0]["id"].combine_chunks() == _keys(kind, np.array([number]))
        reads.append(segment.file.reads)
    # A few pages are read for themselves, then all, and nothing from then on.
    assert max(reads) <= len(segment.low) // 8 + 1
    assert reads[-1] == 0
    assert reads.count(0) > 80
    assert segment.held() is segment.whole()


def test_a_large_segment_is_not_gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weir.base.key_segment._GATHERED_UP_TO_ROWS", 99_999)
    base = _made(tmp_path, pa.int64(), np.arange(100_000))
    default_context().cache.clear()
    pages = key_pages(base)
    assert pages is not None
    (segment,) = pages._segments
    for number in range(0, 100_000, 500):
        assert len(pages.find(pa.array([number]))[1]) == 1
    assert segment.file.reads == len(segment.low)
    assert segment.held() is None


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()], ids=str)
@pytest.mark.parametrize("has_room", [True, False], ids=["kept", "read again"])
def test_a_sweep_of_most_pages_keeps_them_where_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: pa.DataType, has_room: bool
) -> None:
    monkeypatch.setattr("weir.base.key_pages._SWEPT_PAGES", 2)
    monkeypatch.setattr("weir.base.key_segment._READ_PAGES", 3)
    if not has_room:
        monkeypatch.setattr(Segment, "_nbytes", 2**60)
        monkeypatch.setattr("weir.base.key_segment._GATHERED_UP_TO_ROWS", 0)
    base = _made(tmp_path, kind, np.arange(0, 2 * 100_000, 2))
    default_context().cache.clear()
    pages = key_pages(base)
    assert pages is not None
    (segment,) = pages._segments
    asked = np.arange(0, 2 * 100_000, 401)
    keys = _keys(kind, asked)
    order = pc.sort_indices(keys)
    for _ in range(2):
        swept = list(pages.sweep(keys.take(order)))
        which = asked[order.to_numpy()[np.concatenate([one for one, _ in swept])]]
        addresses = np.concatenate([one for _, one in swept])
        assert sorted(which.tolist()) == [number for number in asked.tolist() if number % 2 == 0]
        assert pages.take(addresses, ["id"])[0]["id"].combine_chunks() == _keys(kind, which)
        assert (segment.held() is not None) is has_room
        # Two keys alone are no reason to keep all pages.
        assert sum(len(one) for one, _ in pages.sweep(keys.take(order[:2]))) == 1


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()], ids=str)
def test_keys_of_most_pages_have_all_of_them_read_ahead(tmp_path: Path, kind: pa.DataType) -> None:
    base = _made(tmp_path, kind, np.arange(0, 2 * 100_000, 2))
    default_context().cache.clear()
    pages = key_pages(base)
    assert pages is not None
    (segment,) = pages._segments
    assert not pages.read_ahead(_keys(kind, np.arange(0, 4_000, 8)))
    assert not pages.read_ahead(_keys(kind, np.arange(0)))
    assert not pages.read_ahead(_keys(kind, np.arange(900_000, 999_000, 100)))
    assert segment.held() is None
    assert pages.read_ahead(_keys(kind, np.random.default_rng(0).permutation(np.arange(0, 200_000, 401))))
    assert segment.held() is not None
    _check(base, _keys(kind, np.arange(1, 200_000, 999)))


def test_nothing_is_read_ahead_that_has_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Segment, "_nbytes", 2**60)
    base = _made(tmp_path, pa.int64(), np.arange(100_000))
    default_context().cache.clear()
    pages = key_pages(base)
    assert pages is not None
    assert pages.read_ahead(pa.array(np.arange(0, 100_000, 101)))
    (segment,) = pages._segments
    assert segment.held() is None


def _spread(kind: pa.DataType, shape: str) -> Numbers:
    """Return keys that are spread evenly, far from evenly, or to the ends of what the type holds."""
    random = np.random.default_rng(5)
    limits = np.iinfo(kind.to_pandas_dtype())
    if shape == "even":
        return np.arange(-60_000, 60_000, 3)
    if shape == "clustered":
        return np.unique((np.exp(random.random(60_000) * 21) * random.choice([-1, 1], 60_000)).astype(int))
    ends = np.array([limits.min, limits.min + 1, -1, 0, 1, limits.max - 1, limits.max])
    return np.unique(np.concatenate([ends, random.integers(limits.min, limits.max, 40_000)]))


@pytest.mark.parametrize("shape", ["even", "clustered", "to the ends"])
@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()], ids=str)
def test_keys_are_found_where_they_probably_are_or_else_in_all_of_their_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: pa.DataType, shape: str
) -> None:
    monkeypatch.setattr("weir.base.key_segment._ROWS_PER_GUESS", 1)
    monkeypatch.setattr("weir.base.key_pages._GUESSED_AT_ONCE", 700)
    read: list[int] = []
    take = PageFile.take

    def counted(file: PageFile, rows: Numbers) -> Any:
        read.append(len(rows))
        return take(file, rows)

    monkeypatch.setattr(PageFile, "take", counted)
    numbers = _spread(kind, shape)
    base = _made(tmp_path, kind, np.random.default_rng(3).permutation(numbers))
    # The index keeps naming the rows that these replace.
    base = _replace(base, _rows(kind, numbers[::7], 1))
    base = extend_key_index(base)
    default_context().cache.clear()
    pages = key_pages(base)
    assert pages is not None
    there = base.dataset.to_table(columns=["id"], with_row_address=True)
    random = np.random.default_rng(4)
    for count in (1, 40, 3_000):
        some = np.concatenate([random.choice(numbers, count), random.choice(numbers[:-1], count) + 1])
        wanted = pa.array(np.unique(some)).cast(kind)
        parts = list(pages.sweep(wanted))
        which = np.concatenate([one for one, _ in parts])
        taken = _taken(pages, np.concatenate([one for _, one in parts]), ["id"])
        expected = there.filter(pc.is_in(there["id"], value_set=wanted))
        assert sorted(taken["_rowid"].to_pylist()) == sorted(expected["_rowaddr"].to_pylist())
        assert set(which.tolist()) == set(pc.index_in(expected["id"], value_set=wanted).to_pylist())
    assert read


def test_guessing_ends_when_it_has_cost_as_much_as_keeping_all_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weir.base.key_segment._ROWS_PER_GUESS", 200)
    monkeypatch.setattr("weir.base.key_segment._GATHERED_UP_TO_ROWS", 0)
    base = _made(tmp_path, pa.int64(), np.arange(0, 2 * 100_000, 2))
    default_context().cache.clear()
    pages = key_pages(base)
    assert pages is not None
    (segment,) = pages._segments
    asked = np.arange(0, 2 * 100_000, 1_001)
    held = []
    for _ in range(4):
        swept = list(pages.sweep(pa.array(asked)))
        assert [number for one, _ in swept for number in asked[one].tolist()] == asked[::2].tolist()
        held.append(segment.held() is not None)
    # 500 keys cost as much as all rows: twice 200, and then all pages.
    assert held == [False, False, True, True]

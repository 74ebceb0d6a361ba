"""The first scan of a table: keys, rows and base table are read at once, and give what later scans give."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import weir
from weir.base.key_pages import KeyPages, key_pages
from weir.base.table import BaseTable
from weir.engine.context import default_context
from weir.errors import CorruptionError
from weir.lsm import key_reads, superseded
from weir.lsm.generation import Generation
from weir.lsm.levels import ShardLevels
from weir.read import begun_scan, planner
from weir.read.begun_scan import BegunScan
from weir.snapshots.snapshot import ReadSnapshot

_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("label", pa.string()),
        ("vector", pa.list_(pa.float32(), 16)),
        ("n", pa.int32()),
    ]
)
_BASE = 30_000
_EACH = 3_000


def _rows(ids: np.ndarray[tuple[int], np.dtype[np.int64]], turn: int) -> pa.Table:
    count = len(ids)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(16 * count, np.float32)), 16)
    labels = pa.array([f"{turn} {one}" for one in ids])
    return pa.table(
        [pa.array(ids), labels, vectors, pa.array(np.full(count, turn, np.int32))], schema=_SCHEMA
    )


class Layered:
    """A table with generations above its base table, and a model of it."""

    def __init__(self, uri: Path) -> None:
        self.uri = str(uri)
        self.live: dict[int, int] = {}
        table = weir.create(self.uri, _SCHEMA, primary_key="id", fsync=False)
        generator = np.random.default_rng(3)
        with table.writer() as writer:
            writer.upsert(_rows(np.arange(_BASE) * 2, 0))
            self.live.update(dict.fromkeys(range(0, 2 * _BASE, 2), 0))
            writer.flush()
            table.maintenance.merge()
            for turn in range(1, 4):
                ids = generator.choice(2 * _BASE, _EACH, replace=False)
                writer.upsert(_rows(ids, turn))
                dead = [int(one) for one in ids[:100]]
                writer.delete(dead)
                writer.flush()
                self.live.update((int(one), turn) for one in ids)
                for one in dead:
                    del self.live[one]

    def first(self) -> weir.Table:
        default_context().cache.clear()
        return weir.open(self.uri, fsync=False)

    def check(self, rows: pa.Table) -> None:
        ids = rows["id"].to_pylist()
        assert len(ids) == len(self.live)
        assert dict(zip(ids, rows["n"].to_pylist(), strict=True)) == self.live
        if "label" in rows.column_names:
            assert rows["label"].to_pylist() == [f"{self.live[one]} {one}" for one in ids]


@pytest.fixture(scope="module")
def layered(tmp_path_factory: pytest.TempPathFactory) -> Layered:
    return Layered(tmp_path_factory.mktemp("layered") / "table")


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[BegunScan]:
    """Return the scans that were begun."""
    found: list[BegunScan] = []

    class Noted(BegunScan):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)  # type: ignore[arg-type]
            found.append(self)

    monkeypatch.setattr(planner, "BegunScan", Noted)
    return found


@pytest.mark.parametrize("columns", [["id", "n"], ["n", "label", "id"], None])
def test_it_finds_what_later_scans_find(
    layered: Layered, begun: list[BegunScan], columns: list[str] | None
) -> None:
    table = layered.first()
    first = table.scan(columns=columns).to_table()
    layered.check(first)
    assert len(begun) == 1
    for _ in range(2):
        again = table.scan(columns=columns).to_table()
        assert again.schema == first.schema
        layered.check(again)
    # What is known need not be learned beside.
    assert len(begun) == 1
    assert table.scan().count() == len(layered.live)


@pytest.fixture
def looked_into(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return who looked into the key index."""
    found: list[str] = []
    for module in (superseded, key_reads):

        def noted(base: BaseTable, module: Any = module) -> KeyPages | None:
            found.append(module.__name__)
            return key_pages(base)

        monkeypatch.setattr(module, "key_pages", noted)
    return found


def test_keys_that_lie_close_are_found_among_the_rows_that_are_read(
    layered: Layered, looked_into: list[str]
) -> None:
    layered.check(layered.first().scan(columns=["n", "id"]).to_table())
    assert not looked_into, "the key index is not read as well"


def test_without_its_key_the_base_table_is_looked_up_in_its_key_index(
    layered: Layered, looked_into: list[str]
) -> None:
    rows = layered.first().scan(columns=["n"]).to_table()
    assert sorted(rows["n"].to_pylist()) == sorted(layered.live.values())
    assert looked_into


def test_rows_that_may_not_wait_are_looked_up_in_the_key_index(
    layered: Layered, looked_into: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(begun_scan, "_MOST_WAITING_BYTES", 1_000)
    layered.check(layered.first().scan(columns=["id", "n"]).to_table())
    assert looked_into == [superseded.__name__]


def test_keys_that_lie_apart_are_looked_up_in_the_key_index_that_is_read_beside(
    tmp_path: Path, looked_into: list[str]
) -> None:
    table = weir.create(str(tmp_path / "apart"), _SCHEMA, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert(_rows(np.arange(_BASE) << 40, 0))
        writer.flush()
        table.maintenance.merge()
        writer.upsert(_rows(np.arange(0, _BASE, 5) << 40, 1))
        writer.flush()
    default_context().cache.clear()
    looked_into.clear()
    rows = weir.open(table.uri, fsync=False).scan(columns=["id", "n"]).to_table().sort_by("id")
    assert rows["n"].to_pylist() == [int(at % 5 == 0) for at in range(_BASE)]
    assert set(looked_into) == {superseded.__name__, key_reads.__name__}


def test_what_is_found_among_the_rows_holds_for_later_states(tmp_path: Path) -> None:
    table = weir.create(str(tmp_path / "later"), _SCHEMA, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert(_rows(np.arange(_BASE), 0))
        writer.flush()
        table.maintenance.merge()
        expected = np.zeros(_BASE, np.int32)
        for turn in range(1, 4):
            writer.upsert(_rows(np.arange(turn, _BASE, 7), turn))
            writer.flush()
            expected[turn::7] = turn
            if turn == 2:
                default_context().cache.clear()
            for _ in range(2):
                rows = table.scan(columns=["id", "n"]).to_table().sort_by("id")
                assert rows["n"].to_pylist() == expected.tolist()


def test_small_columns_of_generations_are_read_with_their_keys(
    layered: Layered, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned = []
    scanner = lance.LanceDataset.scanner

    def noted(self: lance.LanceDataset, *arguments: object, **named: object) -> object:
        scanned.append(self.uri)
        return scanner(self, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(lance.LanceDataset, "scanner", noted)
    layered.check(layered.first().scan(columns=["id", "label", "n"]).to_table())
    assert len(scanned) == 1, "the base table alone"


def test_dead_rows_of_the_base_table_and_of_generations_are_found_at_the_same_time(
    layered: Layered, monkeypatch: pytest.MonkeyPatch
) -> None:
    meeting = Barrier(2, timeout=30)

    def after_the_other(find: Callable[..., object]) -> Callable[..., object]:
        def found(*arguments: object) -> object:
            meeting.wait()
            return find(*arguments)

        return found

    monkeypatch.setattr(ReadSnapshot, "base_mask", after_the_other(ReadSnapshot.base_mask))
    monkeypatch.setattr(ShardLevels, "levels_from", after_the_other(ShardLevels.levels_from))
    layered.check(layered.first().scan(columns=["id", "n"]).to_table())


def test_the_base_table_is_begun_once_no_thread_has_keys_left_to_take(
    layered: Layered, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened = []
    begin, read = BegunScan.begin, Generation.read_with_keys

    def noted_begin(self: BegunScan) -> None:
        happened.append("base")
        begin(self)

    def noted_read(self: Generation, columns: Sequence[str]) -> pa.Table | None:
        happened.append("keys")
        return read(self, columns)

    monkeypatch.setattr(BegunScan, "begin", noted_begin)
    monkeypatch.setattr(Generation, "read_with_keys", noted_read)
    # Threads take the keys one by one.
    monkeypatch.setattr(key_reads, "processors", lambda: 1)
    layered.check(layered.first().scan(columns=["id", "n"]).to_table())
    assert happened[:4] == ["keys"] * 3 + ["base"]
    assert set(happened[4:]) == {"base"}, "who looks at its rows and who takes them is sure that it has begun"


def test_keys_that_another_read_learns_meanwhile_leave_the_base_table_to_be_begun(
    layered: Layered, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = layered.first()

    def others_first(*arguments: Any, **named: Any) -> Any:
        monkeypatch.undo()
        layered.check(table.scan(columns=["id", "n"]).to_table())
        return read_keys(*arguments, **named)

    read_keys = key_reads.read_keys
    monkeypatch.setattr(planner, "read_keys", others_first)
    layered.check(table.scan(columns=["id", "label", "n"]).to_table())


@pytest.mark.parametrize("how", ["count", "batches", "filter", "limit", "explain"])
def test_other_reads_begin_no_scan(layered: Layered, begun: list[BegunScan], how: str) -> None:
    table = layered.first()
    if how == "count":
        assert table.scan().count() == len(layered.live)
    elif how == "batches":
        layered.check(pa.Table.from_batches(table.scan(columns=["id", "n"]).to_batches()))
    elif how == "filter":
        rows = table.scan(columns=["id"], filter="n = 2").to_table()
        assert sorted(rows["id"].to_pylist()) == sorted(k for k, turn in layered.live.items() if turn == 2)
    elif how == "limit":
        assert table.scan(limit=5).to_table().num_rows == 5
    else:
        assert "base table" in table.scan().explain()
    assert not begun


def test_a_base_table_without_some_of_its_rows_is_read_when_they_are_known(
    tmp_path: Path, begun: list[BegunScan]
) -> None:
    layered = Layered(tmp_path / "table")
    dataset = lance.dataset(layered.uri)
    gone = [one for one, turn in layered.live.items() if turn == 0][:50]
    dataset.delete(f"id IN ({', '.join(map(str, gone))})")
    for one in gone:
        del layered.live[one]
    layered.check(layered.first().scan(columns=["id", "n"]).to_table())
    assert not begun


def test_an_error_of_the_begun_scan_is_that_of_the_read(
    layered: Layered, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> Iterator[pa.RecordBatch]:
        raise OSError("LanceError(IO): the file is damaged")
        yield

    monkeypatch.setattr(begun_scan, "scanned_batches", fails)
    with pytest.raises(weir.errors.WeirError, match="base table version"):
        layered.first().scan(columns=["id", "n"]).to_table()
    monkeypatch.undo()
    layered.check(layered.first().scan(columns=["id", "n"]).to_table())


def test_it_ends_with_a_plan_that_fails(
    layered: Layered, begun: list[BegunScan], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise CorruptionError("a generation cannot be read", where="there")

    monkeypatch.setattr(planner, "read_keys", fails)
    with pytest.raises(CorruptionError, match="a generation"):
        layered.first().scan(columns=["id", "n"]).to_table()
    assert begun
    assert all(one.is_ended for one in begun)


def test_a_remembered_plan_has_no_scan_that_was_taken(layered: Layered, begun: list[BegunScan]) -> None:
    table = layered.first()
    scan = table.scan(columns=["id", "n"])
    for _ in range(3):
        layered.check(scan.to_table())
    assert len(begun) == 1
    assert begun[0].is_ended


@pytest.mark.parametrize("most", [0, 100_000, 1 << 30])
def test_what_waits_is_bounded_until_it_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(begun_scan, "_MOST_WAITING_BYTES", most)
    monkeypatch.setattr(begun_scan, "BATCH_ROWS", 1_000)
    rows = pa.table({"n": np.arange(50_000)})
    dataset = lance.write_dataset(rows, str(tmp_path / "rows"))
    with ThreadPoolExecutor(1) as threads:
        scan = BegunScan(dataset, ("n",), threads)
        scan.begin()
        # The thread has nothing left to do, though nobody has taken anything.
        threads.submit(lambda: None).result(timeout=60)
        assert scan._read.qsize() == {0: 2, 100_000: 14}.get(most, 51)
        assert pa.Table.from_batches(scan.batches()).equals(rows)

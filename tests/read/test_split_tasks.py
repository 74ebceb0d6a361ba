"""A task of reading the base table, split by fragments: the parts read what the whole reads."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

import weir
from weir.engine.context import default_context
from weir.read.plan import DatasetTask, RowsTask

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("value", pa.int64())])
FRAGMENTS = 6


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> weir.Table:
    """Six fragments of 100 rows, some rows deleted, some superseded by a generation and by the log."""
    table = weir.create(tmp_path_factory.mktemp("split") / "t", SCHEMA, primary_key="id", fsync=False)
    for fragment in range(FRAGMENTS):
        with table.writer() as writer:
            writer.upsert([{"id": fragment * 100 + n, "value": n} for n in range(100)])
        table.maintenance.merge()
    with table.writer() as writer:
        writer.delete([n * 50 for n in range(12)])
    table.maintenance.merge()
    with table.writer(flush_on_close=False) as writer:
        writer.upsert([{"id": n * 20 + 1, "value": -1} for n in range(20)])
        writer.flush()
        writer.upsert([{"id": n * 30 + 2, "value": -2} for n in range(10)])
    return table


@pytest.mark.covering
@pytest.mark.parametrize("rows", [1, 100, 250, 10_000])
@pytest.mark.parametrize("condition", [None, "value >= 40", "id < 4 OR id = 101"])
def test_the_parts_read_what_the_whole_reads(table: weir.Table, rows: int, condition: str | None) -> None:
    whole = table.scan(filter=condition).plan().tasks[0]
    assert isinstance(whole, DatasetTask)
    parts = list(whole.split(rows))
    expected = {1: FRAGMENTS, 100: FRAGMENTS, 250: FRAGMENTS // 2, 10_000: 1}[rows]
    assert len(parts) == expected
    assert sum(count for _, count in parts) == 588
    assert sum(len(part.mask) for part, _ in parts) == len(whole.mask) == 30
    texts = [pickle.dumps(part) for part, _ in parts]
    default_context().cache.clear()  # as in another process
    tasks = [pickle.loads(text) for text in texts]
    read = pa.concat_tables(task.table() for task in tasks).sort_by("id")
    assert read.equals(whole.table().sort_by("id"))
    assert sum(task.count() for task in tasks) == read.num_rows == whole.count()


def test_a_limit_and_an_empty_table_stay_whole(table: weir.Table, tmp_path: Path) -> None:
    limited = table.scan(limit=3).plan().tasks[0]
    assert isinstance(limited, DatasetTask)
    assert [part for part, _ in limited.split(1)] == [limited]
    empty = weir.create(tmp_path / "empty", SCHEMA, primary_key="id", fsync=False).scan().plan().tasks[0]
    assert isinstance(empty, DatasetTask)
    assert list(empty.split(1)) == [(empty, 0)]


def test_rows_in_memory_are_split_by_bytes_and_travel_without_the_rest() -> None:
    rows = pa.table({"id": pa.array(range(1000)), "kind": pa.array(["a", "b"] * 500).dictionary_encode()})
    task = RowsTask("tail", rows.slice(3), 997)
    texts = [pickle.dumps(part) for part in task.split(rows.nbytes // 4)]
    assert len(texts) in (4, 5)
    assert all(len(text) < rows.nbytes // 4 + 2000 for text in texts)
    assert pa.concat_tables(pickle.loads(text).table() for text in texts).equals(rows.slice(3))
    assert list(RowsTask("tail", rows.slice(0, 0), 0).split(1)) == []

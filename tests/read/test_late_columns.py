"""Rows chosen by a few columns: the others are read of these rows alone, wherever they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from numpy.typing import NDArray

import weir
from weir.engine.context import default_context
from weir.lsm.rows_by_id import take_row_ids
from weir.read import kept_columns
from weir.read.plan import DatasetTask, RowsTask

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("value", pa.int64()), pa.field("text", pa.string())]
)


def rows(numbers: range, value: int) -> list[dict[str, object]]:
    return [{"id": n, "value": n * value % 101, "text": f"text {n} of {value}"} for n in numbers]


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    """Rows in the base table, in generations, one of which was written before a column, and in the log."""
    table = weir.create(tmp_path / "t", SCHEMA.remove(2), primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert(
            pa.Table.from_pylist([{"id": n, "value": n} for n in range(1000, 1020)], SCHEMA.remove(2))
        )
    table.alter(add=[pa.field("text", pa.string())])
    with table.writer() as writer:
        writer.upsert(rows(range(300), 7))
    table.maintenance.merge()
    with table.writer(flush_on_close=False) as writer:
        writer.delete([n * 50 for n in range(6)])
        writer.upsert(rows(range(290, 320), 11))
        writer.flush()
        writer.upsert(rows(range(5, 9), 13))
    default_context().cache.clear()
    return table


@pytest.mark.covering
@pytest.mark.parametrize("condition", [None, "value >= 40", "text LIKE '%of 11'"])
@pytest.mark.parametrize("count", [0, 1, 7, 100, 400])
def test_chosen_rows_are_those_of_the_whole_scan(
    table: weir.Table, condition: str | None, count: int
) -> None:
    kinds = {type(task) for task in table.scan().plan().tasks}
    assert kinds == {DatasetTask, RowsTask}
    asked: list[list[str]] = []

    def choose(first: pa.Table) -> NDArray[np.int64]:
        asked.append(first.column_names)
        order = pc.sort_indices(first, sort_keys=[("value", "descending"), ("id", "ascending")])
        found: NDArray[np.int64] = order.to_numpy().astype(np.int64)[:count]
        return found

    whole = table.scan(filter=condition).to_table()
    wanted = whole.sort_by([("value", "descending"), ("id", "ascending")]).slice(0, count)
    # From the second time on, columns may be in memory.
    for _ in range(6):
        found = table.scan(filter=condition).chosen(["value", "id"], choose)
        assert found.equals(wanted)
    assert asked == [["value", "id"]] * 6


def test_nothing_is_chosen_of_an_empty_table(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    found = table.scan().chosen(["id"], lambda first: np.arange(first.num_rows))
    assert found.equals(SCHEMA.empty_table())


def low_of(table: weir.Table) -> pa.Table:
    """Return every eighth row of those with a low value, looked up."""
    return table.scan(["id", "text"], filter="value < 40").chosen(
        ["id"], lambda first: np.flatnonzero(pc.equal(pc.bit_wise_and(first.column("id"), 7), 0).to_numpy())
    )


def expected_of(table: weir.Table) -> pa.Table:
    whole = table.scan(["id", "text"], filter="value < 40").to_table()
    return whole.filter(pc.equal(pc.bit_wise_and(whole.column("id"), 7), 0))


class LookUps:
    """What is looked up row by row."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.columns: list[str] = []
        monkeypatch.setattr(kept_columns, "take_row_ids", self._take)

    def _take(self, dataset: Any, row_ids: Any, columns: list[str]) -> pa.Table:
        self.columns += columns
        return take_row_ids(dataset, row_ids, columns)

    def of_queries(self, table: weir.Table, count: int) -> list[str]:
        """Return the columns of which rows are looked up while a query is answered some times."""
        self.columns.clear()
        for _ in range(count):
            assert low_of(table).equals(expected_of(table))
        return self.columns


def merge(table: weir.Table, numbers: range) -> None:
    with table.writer() as writer:
        writer.upsert(rows(numbers, 7))
    table.maintenance.merge()


@pytest.fixture
def merged(tmp_path: Path) -> weir.Table:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False, maintenance="off")
    merge(table, range(300))
    return table


def test_columns_that_are_looked_up_often_are_kept(
    merged: weir.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = LookUps(monkeypatch)
    assert looked_up.of_queries(merged, 1) == ["text"]
    assert looked_up.of_queries(merged, 3) == []
    # The next version has a fragment more.
    merge(merged, range(1000, 1040))
    assert looked_up.of_queries(merged, 1) == ["text"]
    assert looked_up.of_queries(merged, 3) == []


def test_columns_with_dead_rows_large_ones_and_those_of_many_fragments_are_not_kept(
    merged: weir.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = LookUps(monkeypatch)
    monkeypatch.setattr(kept_columns, "_MOST_FRAGMENTS", 0)
    assert looked_up.of_queries(merged, 3) == ["text"] * 3
    monkeypatch.undo()
    looked_up = LookUps(monkeypatch)
    monkeypatch.setattr(kept_columns, "_LARGEST_BYTES", 1000)
    assert looked_up.of_queries(merged, 3) == ["text"] * 3
    monkeypatch.undo()
    looked_up = LookUps(monkeypatch)
    merge(merged, range(5, 10))
    assert looked_up.of_queries(merged, 3) == ["text"] * 3


def test_a_column_is_not_kept_whose_other_rows_are_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was looked up does not show it."""
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False, maintenance="off")
    with table.writer() as writer:
        writer.upsert(
            [{**row, "text": "x" * (n * 7 % 101 // 40 * 1_000)} for n, row in enumerate(rows(range(300), 7))]
        )
    table.maintenance.merge()
    monkeypatch.setattr(kept_columns, "_LARGEST_BYTES", 50_000)
    looked_up = LookUps(monkeypatch)
    assert looked_up.of_queries(table, 4) == ["text"] * 4


def test_a_column_kept_is_not_another_of_its_name(merged: weir.Table) -> None:
    for _ in range(3):
        assert low_of(merged).equals(expected_of(merged))
    merged.alter(drop=["text"])
    merged.alter(add=[pa.field("text", pa.string())])
    assert low_of(merged).column("text").null_count == low_of(merged).num_rows > 0

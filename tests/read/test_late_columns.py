"""Rows chosen by a few columns: the others are read of these rows alone, wherever they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from numpy.typing import NDArray

import weir
from weir.engine.context import default_context
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
    found = table.scan(filter=condition).chosen(["value", "id"], choose)
    assert found.equals(wanted)
    assert asked == [["value", "id"]]


def test_nothing_is_chosen_of_an_empty_table(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    found = table.scan().chosen(["id"], lambda first: np.arange(first.num_rows))
    assert found.equals(SCHEMA.empty_table())

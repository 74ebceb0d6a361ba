"""How the work of an index catch-up is cut into tasks, and that a task that runs twice is done once."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import weir
from weir.base.index_changes import base_indexes
from weir.base.index_upkeep import MAX_SEGMENTS, RebuildTask, SegmentTask
from weir.maintenance import catch_up
from weir.table.maintenance import TableMaintenance

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("value", pa.int64()),
        ("vector", pa.list_(pa.float32(), 2)),
    ]
)
FRAGMENT_ROWS = 10


class RepeatingRunner:
    """Runs every task twice, as a cluster does that loses the first answer."""

    def __init__(self) -> None:
        self.tasks: list[Any] = []

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
        for task in tasks:
            self.tasks.append(task)
            for last in (False, True):
                there, received = pickle.loads(pickle.dumps((function, task)))
                answer = pickle.loads(pickle.dumps(there(received)))
                if last:
                    yield answer


def rows(count: int) -> pa.Table:
    ids = np.arange(count)
    vectors = [[n % 7, n % 5] for n in range(count)]
    return pa.table([ids, ids * 2, pa.array(vectors, SCHEMA.field("vector").type)], schema=SCHEMA)


def with_fragments(path: Path, count: int) -> weir.Table:
    """Return a table whose indexes exist, and lack all but the first of so many fragments."""
    every = rows(count * FRAGMENT_ROWS)
    lance.write_dataset(every.slice(0, FRAGMENT_ROWS), path)
    table = weir.adopt(path, primary_key="id", fsync=False)
    table.indexes.create("value", "ZONEMAP")
    lance.write_dataset(every.slice(FRAGMENT_ROWS), path, mode="append", max_rows_per_file=FRAGMENT_ROWS)
    return weir.open(path, fsync=False)


@pytest.mark.parametrize(("fragments", "least_rows"), [(4, 10), (41, 10), (9, 25), (5, 1000)])
def test_no_more_tasks_than_an_index_may_have_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fragments: int, least_rows: int
) -> None:
    monkeypatch.setattr(catch_up, "_ROWS_PER_TASK", least_rows)
    table = with_fragments(tmp_path / "table", fragments)
    runner = RepeatingRunner()
    report = table.maintenance.catch_up_indexes(names=["value_idx"], runner=runner)
    tasks = [task for task in runner.tasks if isinstance(task, SegmentTask)]
    covered = [fragment for task in tasks for fragment in task.fragment_ids]
    assert sorted(covered) == list(range(1, fragments))
    assert 1 + len(tasks) <= MAX_SEGMENTS
    lacking = (fragments - 1) * FRAGMENT_ROWS
    assert len(tasks) >= min(lacking // (least_rows + FRAGMENT_ROWS), MAX_SEGMENTS // 2)
    assert [one.segments for one in report.indexes] == [1 + len(tasks)]
    assert table.status().indexes[-1].unindexed_rows == 0


def test_an_index_that_is_built_anew_by_a_task_that_runs_twice_is_built_once(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "table", SCHEMA, primary_key="id", fsync=False)
    table.indexes.create("vector", "IVF_FLAT", num_partitions=2)
    with table.writer() as writer:
        writer.upsert(rows(300))
    table.maintenance.merge()
    before = table.internals.base.latest()
    runner = RepeatingRunner()
    report = table.maintenance.catch_up_indexes(names=["vector_idx"], runner=runner)
    assert [one.action for one in report.indexes] == ["built"]
    assert [type(task) for task in runner.tasks] == [RebuildTask]
    after = table.internals.base.latest()
    index = next(one for one in base_indexes(after) if one.name == "vector_idx")
    assert index.num_rows == 300
    assert len(index.segments) == 1
    # One commit of the index, one of the record of how far merges were.
    assert after.version - before.version <= 2


NESTED = pa.schema([*SCHEMA, ("point", pa.struct([("x", pa.int64())]))])


def nested_rows(ids: range, *, far: bool = False) -> pa.Table:
    """Return rows, the first of which may be so far away that float32 holds no distance to it."""
    vectors = [[float(n % 7), float(n % 5)] for n in ids]
    if far:
        vectors[0] = [1e30, 1e30]
    points = [{"x": n} for n in ids]
    return pa.table([list(ids), list(ids), vectors, points], schema=NESTED)


def test_an_index_of_plain_lance_on_a_field_of_a_struct_catches_up(tmp_path: Path) -> None:
    path = tmp_path / "table"
    dataset = lance.write_dataset(nested_rows(range(300)), path)
    dataset.create_scalar_index("point.x", "BTREE", name="a_idx")
    table = weir.adopt(path, primary_key="id", fsync=False)
    for first in (300, 400):
        with table.writer() as writer:
            writer.upsert(nested_rows(range(first, first + 100)))
        table.maintenance.merge()
        report = table.maintenance.catch_up_indexes()
        assert next(one for one in report.indexes if one.name == "a_idx").action == "extended"
    assert {one.name: one.unindexed_rows for one in table.status().indexes} == {"a_idx": 0, "id_idx": 0}
    found = lance.dataset(path).to_table(filter="point.x >= 290 AND point.x < 410")
    assert sorted(found["id"].to_pylist()) == list(range(290, 410))


def test_an_index_that_cannot_catch_up_does_not_keep_others_from_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = weir.create(tmp_path / "table", NESTED, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert(nested_rows(range(300)))
    table.maintenance.merge()
    table.indexes.create("value", "ZONEMAP")
    table.indexes.create("vector", "IVF_FLAT", name="a_idx", num_partitions=2)
    with table.writer() as writer:
        writer.upsert(nested_rows(range(300, 350)))
    table.maintenance.merge()
    table.maintenance.catch_up_indexes()
    with table.writer() as writer:
        writer.upsert(nested_rows(range(350, 400), far=True))
    table.maintenance.merge()
    caplog.clear()
    with pytest.raises(weir.errors.StorageError, match="'a_idx'"):
        table.maintenance.catch_up_indexes()
    assert caplog.text.count("table.index_not_caught_up") == 1
    unindexed = {one.name: one.unindexed_rows for one in table.status().indexes}
    assert unindexed == {"a_idx": 50, "id_idx": 0, "value_idx": 0}
    # It would make one segment of those of the index and of the rows that it lacks.
    caplog.clear()
    table.maintenance.compact()
    assert caplog.text.count("table.index_not_caught_up") == 1
    nearest = table.search([301 % 7, 301 % 5], column="vector", k=400).to_table()
    assert nearest.num_rows >= 399


@pytest.mark.parametrize("error", [weir.errors.StorageError, weir.errors.CorruptionError])
def test_upkeep_goes_on_where_an_index_cannot_catch_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[weir.errors.WeirError]
) -> None:
    done: list[str] = []
    caught_up_twice = threading.Event()

    def note(step: str) -> None:
        # Upkeep goes on until the engine is closed, which is not looked at.
        if not caught_up_twice.is_set():
            done.append(step)

    def fails(self: TableMaintenance, **options: Any) -> object:
        note("catch up")
        if done.count("catch up") == 2:
            caught_up_twice.set()
        raise error("an index cannot be extended")

    monkeypatch.setattr(TableMaintenance, "catch_up_indexes", fails)
    soon = timedelta(milliseconds=10)
    engine = weir.Engine(maintenance=weir.UpkeepPolicy(merge=weir.MergePolicy(), compact_every=soon))
    compact = TableMaintenance.compact

    def noticed(self: TableMaintenance, **options: Any) -> object:
        note("compact")
        return compact(self, **options)

    monkeypatch.setattr(TableMaintenance, "compact", noticed)
    try:
        table = engine.create(tmp_path / "table", NESTED, primary_key="id", fsync=False)
        with table.writer() as writer:
            writer.upsert(nested_rows(range(10)))
            writer.flush()
            assert caught_up_twice.wait(60)
    finally:
        engine.close()
    assert done == ["catch up", "compact", "catch up"]
    assert engine.metrics.upkeep_failures.value() >= 1

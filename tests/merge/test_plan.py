from __future__ import annotations

import pickle
from pathlib import Path
from uuid import UUID

import pytest
from tests.base.table_kit import manifest_of, new_store

from weir.base.merge_guard import deletes_id, guard_id, without_guards
from weir.errors import OptionError
from weir.format.index_details import IndexDetails, MergedGeneration
from weir.format.shard_manifest import FlushedGeneration
from weir.merge.plan import MergeTask, estimated_bytes, plan_merge

A, B = UUID(int=1), UUID(int=2)


def flushed(number: int, size: int | None = 100, rows: int = 1) -> FlushedGeneration:
    return FlushedGeneration(number, f"aaaaaaaa_gen_{number}", in_memory_bytes=size, physical_rows=rows)


def numbers(task: MergeTask) -> tuple[int, ...]:
    return tuple(one.generation for one in task.generations)


def test_only_what_is_not_merged_is_planned_in_order(tmp_path: Path) -> None:
    details = IndexDetails(merged_generations=(MergedGeneration(A, 5),))
    manifests = [
        manifest_of(B, [flushed(2), flushed(1)]),
        manifest_of(A, [flushed(4), flushed(5), flushed(7), flushed(6)]),
        manifest_of(UUID(int=3), []),
    ]
    tasks = plan_merge(new_store(tmp_path), details, manifests)
    assert [(task.shard_id, task.after_generation, numbers(task)) for task in tasks] == [
        (A, 5, (6, 7)),
        (B, 0, (1, 2)),
    ]
    assert tasks[0].last_generation == 7
    assert tasks[0].nbytes == 200


def test_a_run_is_cut_by_bytes_and_each_task_follows_the_one_before(tmp_path: Path) -> None:
    manifest = manifest_of(
        A, [flushed(1, 60), flushed(2, 40), flushed(3, 1), flushed(4, 500), flushed(5, 100)]
    )
    tasks = plan_merge(new_store(tmp_path), IndexDetails(), [manifest], max_task_bytes=100)
    assert [(task.after_generation, numbers(task)) for task in tasks] == [
        (0, (1, 2)),
        (2, (3,)),
        (3, (4,)),
        (4, (5,)),
    ]


def test_generations_whose_deletes_are_applied_stay_together(tmp_path: Path) -> None:
    merged = (MergedGeneration(A, 1), MergedGeneration(deletes_id(A), 3))
    manifest = manifest_of(A, [flushed(number) for number in range(1, 6)])
    tasks = plan_merge(
        new_store(tmp_path), IndexDetails(merged_generations=merged), [manifest], max_task_bytes=1
    )
    assert [numbers(task) for task in tasks] == [(2, 3), (4,), (5,)]


def test_nothing_to_merge_is_no_task(tmp_path: Path) -> None:
    details = IndexDetails(merged_generations=(MergedGeneration(A, 2),))
    assert plan_merge(new_store(tmp_path), details, [manifest_of(A, [flushed(1), flushed(2)])]) == ()
    assert plan_merge(new_store(tmp_path), details, []) == ()


def test_sizes_are_guessed_where_nobody_told() -> None:
    assert estimated_bytes(flushed(1, 0, rows=9)) == 0
    assert estimated_bytes(flushed(1, None, rows=9)) == 9 * 1024


def test_tasks_cross_process_boundaries(tmp_path: Path) -> None:
    task = MergeTask(new_store(tmp_path), A, (flushed(1),), 0)
    copied = pickle.loads(pickle.dumps(task))
    assert (copied.store.uri, copied.shard_id, copied.generations) == (task.store.uri, A, task.generations)


@pytest.mark.parametrize("run", [(), (2, 1), (1, 1), (0,)])
def test_a_run_is_ascending_and_starts_after_what_is_merged(tmp_path: Path, run: tuple[int, ...]) -> None:
    with pytest.raises(OptionError, match="ascending"):
        MergeTask(new_store(tmp_path), A, tuple(flushed(number) for number in run), 0)


def test_a_limit_must_be_positive(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="max_task_bytes"):
        plan_merge(new_store(tmp_path), IndexDetails(), [], max_task_bytes=0)


def test_guards_are_told_from_shards() -> None:
    merged = [MergedGeneration(A, 4), MergedGeneration(guard_id(B), 1), MergedGeneration(B, 2)]
    merged += [MergedGeneration(guard_id(A), 3), MergedGeneration(guard_id(UUID(int=9)), 8)]
    assert [one.shard_id for one in without_guards(merged)] == [A, B, guard_id(UUID(int=9))]
    assert guard_id(A) != guard_id(B)

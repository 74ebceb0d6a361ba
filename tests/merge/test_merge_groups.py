"""Merges of several shards in one commit: what is put together, and that a race for one costs no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.base.table_kit import apply, contents, manifest_of, new_table, progress, write_generation

from weir.base.table import BaseTable
from weir.engine.runner import ThreadRunner
from weir.errors import ConflictError
from weir.format.shard_manifest import FlushedGeneration
from weir.merge import merge_insert, new_rows
from weir.merge.commit import merge_runs
from weir.merge.merge_insert import _Merge
from weir.merge.plan import DEFAULT_MAX_TASK_BYTES, MergeTask
from weir.merge.service import group_merges, merge_generations

SHARDS = [UUID(int=number) for number in range(1, 6)]


def planned(sizes: dict[int, list[int]]) -> list[MergeTask]:
    """Return the tasks of some shards, each with the bytes of its generations."""
    tasks = []
    for shard, runs in sizes.items():
        for number, size in enumerate(runs, start=1):
            generation = FlushedGeneration(number, f"g{number}", in_memory_bytes=size, physical_rows=1)
            tasks.append(MergeTask(None, SHARDS[shard], (generation,), number - 1))  # type: ignore[arg-type]
    return tasks


def grouped(tasks: list[MergeTask], max_bytes: int) -> list[list[list[tuple[int, int]]]]:
    return [
        [[(SHARDS.index(task.shard_id), task.last_generation) for task in step] for step in group.steps]
        for group in group_merges(tasks, max_bytes=max_bytes)
    ]


def test_small_merges_are_put_together_and_long_ones_stay_in_order() -> None:
    tasks = planned({0: [40], 1: [40], 2: [70, 70], 3: [30], 4: [500]})
    assert grouped(tasks, 100) == [
        [[(2, 1)], [(2, 2)]],
        [[(0, 1), (1, 1)]],
        [[(3, 1)]],
        [[(4, 1)]],
    ]
    assert grouped(planned({0: [1], 1: [1], 2: [1]}), 100) == [[[(0, 1), (1, 1), (2, 1)]]]
    assert grouped([], 100) == []


def several(base: BaseTable) -> tuple[list[MergeTask], dict[Any, Any]]:
    """Return a task for each of three shards, and what the table holds when all are merged."""
    model = contents(base)
    tasks = []
    for number, shard in enumerate(SHARDS[:3]):
        first = 10 * number
        runs: list[list[tuple[Any, ...]]] = [
            [(first, "new"), (first + 1,), (first + 2, "old")],
            [(first + 2, "newer"), (first + 3, "new")],
        ]
        generations = []
        for at, rows in enumerate(runs, start=1):
            apply(model, base, rows)
            generations.append(write_generation(base, shard, at, rows))
        tasks.append(MergeTask(base.store, shard, tuple(generations), 0))
    return tasks, model


def test_several_shards_are_merged_in_one_commit(tmp_path: Path, merged_by: str) -> None:
    base = new_table(tmp_path, rows=[(n, "base") for n in range(40)])
    tasks, model = several(base)
    result = merge_runs(tasks)
    assert (result.rows_upserted, result.rows_deleted, result.shards) == (9, 3, 3)
    assert result.generations == (1, 2) * 3
    assert result.version - base.version == {"tasks": 1, "library": 2}[merged_by], "deletes, and rows"
    assert contents(base.latest()) == model
    assert [progress(base, task.shard_id) for task in tasks] == [2, 2, 2]
    again = merge_runs(tasks)
    assert again.was_already_merged
    assert again.shards == 0


@pytest.mark.parametrize("commits", [(1,), (0, 2)])
def test_what_others_merge_in_between_is_left_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merged_by: str, commits: tuple[int, ...]
) -> None:
    base = new_table(tmp_path, rows=[(n, "base") for n in range(40)])
    tasks, model = several(base)
    module = merge_insert if merged_by == "library" else new_rows
    read = module.read_runs
    calls: list[int] = []

    def held_up(*arguments: Any) -> Any:
        run = read(*arguments)
        calls.append(1)
        if len(calls) == 1:
            monkeypatch.setattr(module, "read_runs", read)
            for other in commits:
                merge_runs([tasks[other]])
        return run

    monkeypatch.setattr(module, "read_runs", held_up)
    result = merge_runs(tasks)
    assert result.shards == 3 - len(commits)
    assert contents(base.latest()) == model
    assert [progress(base, task.shard_id) for task in tasks] == [2, 2, 2]


def test_merges_that_would_get_in_each_others_way_take_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = new_table(tmp_path, rows=[(n, "base") for n in range(40)])
    manifests, model = [], contents(base)
    for number, shard in enumerate(SHARDS[:3]):
        # More new keys than the library's filter has room for, so that any two of such commits conflict.
        rows = [(key, "new") for key in range(100_000 * number, 100_000 * number + 10_000)]
        apply(model, base, rows)
        generation = replace(write_generation(base, shard, 1, rows), in_memory_bytes=DEFAULT_MAX_TASK_BYTES)
        manifests.append(manifest_of(shard, [generation]))
    attempts: list[int] = []
    execute = _Merge._execute

    def counted(merge: _Merge, *arguments: Any) -> dict[str, int]:
        attempts.append(1)
        return execute(merge, *arguments)

    monkeypatch.setattr(_Merge, "_execute", counted)
    report = merge_generations(base, manifests, ThreadRunner(4))
    assert (report.shards, report.rows_upserted) == (3, 30_000)
    assert len(attempts) == 3, "none was made again"
    assert contents(base.latest()) == model


def test_one_shard_out_of_order_stops_all(tmp_path: Path) -> None:
    base = new_table(tmp_path, rows=[(1, "base")])
    tasks, _ = several(base)
    late = MergeTask(base.store, SHARDS[3], tasks[0].generations, 0)
    ahead = [MergeTask(late.store, late.shard_id, late.generations[1:], 1), *tasks]
    with pytest.raises(ConflictError, match="merged up to generation 0, and this task starts after 1"):
        merge_runs(ahead)
    assert contents(base.latest()) == {(1,): (1, "base")}


def test_progress_counts_shards(tmp_path: Path) -> None:
    base = new_table(tmp_path, rows=[(n, "base") for n in range(40)])
    tasks, model = several(base)
    manifests = [manifest_of(task.shard_id, task.generations) for task in tasks]
    seen: list[tuple[int, int]] = []
    report = merge_generations(base, manifests, ThreadRunner(), on_progress=lambda *at: seen.append(at))
    assert (report.shards, report.generations, report.rows_upserted, report.rows_deleted) == (3, 6, 9, 3)
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert contents(base.latest()) == model

"""Lance MemWAL spec, "Appendix 2: Concurrent Merger Example", step by step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from tests.base.table_kit import (
    contents,
    new_table,
    newest_manifest,
    store_manifest,
    write_generation,
)

from weir.base.details_commit import update_details
from weir.base.table import BaseTable
from weir.engine import failpoint
from weir.format.index_details import MergedGeneration
from weir.format.shard_manifest import ShardManifest
from weir.merge.commit import MergeResult, merge_runs
from weir.merge.plan import MergeTask, plan_merge

SHARD = UUID("8f3b0d9e-7f2c-4b5e-9c51-2a6de1c0a004")
AFTER_6 = {(1,): (1, "from 6"), (3,): (3, "base")}
AFTER_7 = {(1,): (1, "from 7"), (2,): (2, "from 7"), (3,): (3, "base")}


@pytest.fixture
def base(tmp_path: Path) -> BaseTable:
    """The initial state: merged_generations {shard: 5}; generations 6 and 7 are flushed."""
    table = new_table(tmp_path, rows=[(1, "base"), (2, "base"), (3, "base")])
    table = update_details(table, lambda old: replace(old, merged_generations=(MergedGeneration(SHARD, 5),)))
    generations = (
        write_generation(table, SHARD, 6, [(1, "from 6"), (2,)]),
        write_generation(table, SHARD, 7, [(1, "from 7"), (2, "from 7")]),
    )
    store_manifest(
        table.store, ShardManifest(SHARD, 1, current_generation=8, flushed_generations=generations)
    )
    return table


def read_plan(base: BaseTable) -> tuple[BaseTable, list[MergeTask]]:
    """Steps "reads index" and "reads shard manifest": one task per generation, as in the example."""
    base = base.latest()
    return base, list(
        plan_merge(base.store, base.details, [newest_manifest(base.store, SHARD)], max_task_bytes=1)
    )


def merged(base: BaseTable) -> int:
    return base.latest().details.merged_generation(SHARD)


def test_scenario_1_racing_on_the_same_generation(base: BaseTable, monkeypatch: pytest.MonkeyPatch) -> None:
    # 1-3: merger A reads merged_gen=5 and the manifest, and will merge generation 6.
    seen_by_a, (a_6, a_7) = read_plan(base)
    assert seen_by_a.details.merged_generation(SHARD) == 5
    assert [one.generation for one in (*a_6.generations, *a_7.generations)] == [6, 7]
    # 4-5: merger B reads the same.
    seen_by_b, (b_6, b_7) = read_plan(base)
    assert seen_by_b.details.merged_generation(SHARD) == 5
    # 6-7: B starts merging 6, and A commits (merged_gen=6) before B does.
    by_a: list[MergeResult] = []

    def a_commits(place: str) -> None:
        if place == "merge.before_commit" and not by_a:
            monkeypatch.setattr(failpoint, "reach", lambda _: None)
            by_a.append(merge_runs([a_6], base=seen_by_a))
            assert merged(base) == 6

    monkeypatch.setattr(failpoint, "reach", a_commits)
    # 8-10: B tries to commit, reads the new index, sees 6 >= 6 and aborts.
    by_b = merge_runs([b_6], base=seen_by_b)
    assert by_a[0].generations == (6,)
    assert by_b.was_already_merged
    assert by_b.generations == ()
    assert contents(base.latest()) == AFTER_6
    # 11: B reloads and goes on to generation 7.
    assert merge_runs([b_7]).generations == (7,)
    assert merged(base) == 7
    assert contents(base.latest()) == AFTER_7


def test_scenario_2_crash_after_the_table_commit(base: BaseTable) -> None:
    # 1-3: A merges generation 6, commits, and crashes before it can do anything else.
    _, (a_6, _) = read_plan(base)
    with failpoint.armed("merge.after_commit", "raise"), pytest.raises(failpoint.FailpointError):
        merge_runs([a_6])
    assert merged(base) == 6
    # 4-6: B reads merged_gen=6 and the shard manifest, which lists 6 still, and skips it.
    seen_by_b, tasks = read_plan(base)
    assert seen_by_b.details.merged_generation(SHARD) == 6
    assert [one.generation for one in newest_manifest(base.store, SHARD).flushed_generations] == [6, 7]
    (b_7,) = tasks
    assert [one.generation for one in b_7.generations] == [7]
    # 7: B merges generation 7 and commits.
    assert merge_runs([b_7]).generations == (7,)
    assert merged(base) == 7
    assert contents(base.latest()) == AFTER_7

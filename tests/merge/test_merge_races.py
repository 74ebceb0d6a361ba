"""Mergers that get in each other's way (invariant I7), step by step and by chance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import lance
import pytest
from tests.base.table_kit import (
    Key,
    Row,
    apply,
    contents,
    new_shard,
    new_table,
    progress,
    table_of,
    together,
    write_generation,
)
from tests.crashes import say, start, wait_for

from weir.base.details_commit import update_details
from weir.base.key_index import extend_key_index
from weir.base.table import BaseTable
from weir.engine import failpoint
from weir.errors import ConflictError
from weir.format.shard_manifest import FlushedGeneration
from weir.merge import merge_insert, waves
from weir.merge.commit import MergeResult, merge_runs
from weir.merge.plan import MergeTask

SHARD = UUID("8f3b0d9e-7f2c-4b5e-9c51-2a6de1c0a002")
PLACES = [
    "merge.before_deletes",
    "merge.between_passes",
    "merge.before_rows",
    "merge.after_rows",
    "merge.between_waves",
    "merge.after_deletions",
    "merge.before_commit",
]
pytestmark = pytest.mark.usefixtures("merged_by")
START: list[Row] = [(1, "base"), (2, "base"), (3, "base")]


def task_of(base: BaseTable, *generations: FlushedGeneration, shard_id: UUID = SHARD) -> MergeTask:
    return MergeTask(base.store, shard_id, generations, generations[0].generation - 1)


@contextmanager
def interrupted(place: str, by: Callable[[], object]) -> Iterator[None]:
    """Do something else when a merge reaches a place for the first time."""
    reached: list[str] = []
    original = failpoint.reach

    def reach(name: str) -> None:
        if name == place and not reached:
            reached.append(name)
            by()

    failpoint.reach = reach
    try:
        yield
    finally:
        failpoint.reach = original
    assert reached, f"{place} was never reached"


@pytest.mark.covering
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("rows", [[(1, "new"), (2,), (9, "new")], [(1, "new")], [(2,), (3,)]], ids=str)
def test_the_slower_merger_of_the_same_generation_does_nothing(
    tmp_path: Path, place: str, rows: list[Row]
) -> None:
    base = new_table(tmp_path, rows=START)
    model = contents(base)
    apply(model, base, rows)
    task = task_of(base, write_generation(base, SHARD, 1, rows))
    faster: list[MergeResult] = []
    with interrupted(place, lambda: faster.append(merge_runs([task]))):
        slower = merge_runs([task])
    assert not faster[0].was_already_merged
    assert slower.was_already_merged
    assert contents(base.latest()) == model


@pytest.mark.one_in(3)
@pytest.mark.parametrize("place", PLACES)
def test_a_late_merger_does_not_undo_newer_generations(tmp_path: Path, place: str) -> None:
    # Generation 1 deletes what generation 2 inserts again, and sets what generation 2 deletes.
    base = new_table(tmp_path, rows=START)
    first = write_generation(base, SHARD, 1, [(1,), (2, "old"), (5, "old")])
    second = write_generation(base, SHARD, 2, [(1, "again"), (2,), (5, "new")])

    def overtake() -> None:
        merge_runs([task_of(base, first)])
        merge_runs([task_of(base, second)])

    with interrupted(place, overtake):
        assert merge_runs([task_of(base, first)]).was_already_merged
    assert contents(base.latest()) == {(1,): (1, "again"), (3,): (3, "base"), (5,): (5, "new")}
    assert progress(base, SHARD) == 2


@pytest.mark.covering
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("overtaking", [(1,), (1, 2), (1, 2, 3)])
def test_runs_that_overlap_come_to_the_same_rows(
    tmp_path: Path, place: str, overtaking: tuple[int, ...]
) -> None:
    # The hard case: key 7 exists only between generations 1 and 3. A merger of 1 to 3 that has
    # settled its deletes while 1 was unmerged must not finish after another has merged 1.
    base = new_table(tmp_path, rows=START)
    contents_of: dict[int, list[Row | Key]] = {
        1: [(7, "short life"), (1, "one"), (2,)],
        2: [(8, "stays"), (2, "back")],
        3: [(7,), (1,), (3, "three")],
    }
    generations = {
        number: write_generation(base, SHARD, number, rows) for number, rows in contents_of.items()
    }
    model = contents(base)
    for rows in contents_of.values():
        apply(model, base, rows)

    def overtake() -> None:
        merge_runs([task_of(base, *(generations[number] for number in overtaking))])

    with interrupted(place, overtake):
        merge_runs([task_of(base, *generations.values())])
    assert contents(base.latest()) == model
    assert progress(base, SHARD) == 3


def test_a_foreign_change_of_a_row_that_is_deleted_is_retried(tmp_path: Path, merged_by: str) -> None:
    base = new_table(tmp_path, rows=START)
    task = task_of(base, write_generation(base, SHARD, 1, [(1,), (9, "new")]))

    def change_by_hand() -> None:
        lance.dataset(base.uri).update({"value": "'by hand'"}, where="id = 1")

    with interrupted(
        "merge.before_deletes" if merged_by == "library" else "merge.before_commit", change_by_hand
    ):
        merge_runs([task])
    assert sorted(contents(base.latest())) == [(2,), (3,), (9,)]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("place", PLACES)
def test_compaction_and_index_builds_may_come_in_between(tmp_path: Path, place: str) -> None:
    base = new_table(tmp_path, rows=START)
    for number in range(4, 8):
        lance.write_dataset(
            table_of(base.schema, [(number, "appended")]).cast(base.schema), base.uri, mode="append"
        )
    rows: list[Row | Key] = [(1,), (2, "new"), (5,), (6, "new"), (9, "new")]
    model = contents(base.latest())
    apply(model, base, rows)
    task = task_of(base, write_generation(base, SHARD, 1, rows))

    def compact() -> None:
        lance.dataset(base.uri).optimize.compact_files()
        extend_key_index(base)
        update_details(base, lambda old: replace(old, num_shards=5))

    with interrupted(place, compact):
        merge_runs([task])
    after = base.latest()
    assert contents(after) == model
    assert (after.details.num_shards, after.details.merged_generation(SHARD)) == (5, 1)


def test_endless_interference_is_a_conflict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_insert, "_MAX_ATTEMPTS", 2)
    monkeypatch.setattr(waves, "_MAX_ATTEMPTS", 2)
    base = new_table(tmp_path, rows=START)
    task = task_of(base, write_generation(base, SHARD, 1, [(1,), (9, "new")]))
    original = failpoint.reach

    def reach(name: str) -> None:
        if name in ("merge.before_deletes", "merge.between_waves"):
            lance.dataset(base.uri).update({"value": "'by hand'"}, where="id = 1")

    monkeypatch.setattr(failpoint, "reach", reach)
    with pytest.raises(ConflictError, match="2 attempts"):
        merge_runs([task])
    monkeypatch.setattr(failpoint, "reach", original)
    assert progress(base, SHARD) == 0
    assert not merge_runs([task]).was_already_merged


def test_threads_that_merge_the_same_generations(tmp_path: Path) -> None:
    base = new_table(tmp_path, rows=[(number, "base") for number in range(30)])
    model = contents(base)
    generations = []
    for number in range(1, 6):
        rows: list[Row | Key] = [(key, f"{number}") for key in range(number, 40, 3)]
        rows += [(key,) for key in range(number + 1, 40, 5)]
        apply(model, base, rows)
        generations.append(write_generation(base, SHARD, number, rows))
    results: list[MergeResult] = []

    def merge(run: int) -> None:
        runs = (generations[start : start + run] for start in range(0, len(generations), run))
        results.extend(merge_runs([task_of(base, *one)]) for one in runs)

    together(*(lambda run=run: merge(run) for run in (1, 2, 3, 5)))
    assert contents(base.latest()) == model
    assert sorted(number for result in results for number in result.generations) == [1, 2, 3, 4, 5]


def test_threads_that_merge_different_shards_into_the_same_fragments(tmp_path: Path) -> None:
    base = new_table(tmp_path, rows=[(number, "base") for number in range(60)])
    model = contents(base)
    shards = [new_shard() for _ in range(4)]
    work: list[list[MergeTask]] = []
    for at, shard_id in enumerate(shards):
        tasks = []
        for number in range(1, 4):
            rows: list[Row | Key] = [(key, f"{at}.{number}") for key in range(at, 80, 4 * number)]
            rows += [(key,) for key in range(at + 4, 80, 12)]
            apply(model, base, rows)
            generation = write_generation(base, shard_id, number, rows)
            tasks.append(task_of(base, generation, shard_id=shard_id))
        work.append(tasks)

    def merge(tasks: list[MergeTask]) -> None:
        for task in tasks:
            assert not merge_runs([task]).was_already_merged
            extend_key_index(base)

    together(*(lambda tasks=tasks: merge(tasks) for tasks in work))
    assert contents(base.latest()) == model
    assert [progress(base, shard_id) for shard_id in shards] == [3] * 4


def merge_each(tasks: list[MergeTask]) -> None:
    for task in tasks:
        say(merged=len(merge_runs([task]).generations))


def test_processes_that_merge_the_same_generations(tmp_path: Path) -> None:
    base = new_table(tmp_path, rows=START)
    model = contents(base)
    generations = []
    for number in range(1, 6):
        rows: list[Row | Key] = [(number, "new"), (number + 2,), (7, f"{number}")]
        apply(model, base, rows)
        generations.append(write_generation(base, SHARD, number, rows))
    one_by_one = [task_of(base, generation) for generation in generations]
    at_once = [task_of(base, *generations)]
    processes = [start(merge_each, one_by_one), start(merge_each, at_once)]
    assert sum(told["merged"] for one in processes for told in wait_for(one).told) == 5
    assert contents(base.latest()) == model

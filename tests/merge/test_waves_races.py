"""Whatever commits while a merge in waves is under way: it is there afterwards, and so is the merge."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from tests.base.table_kit import (
    Key,
    Row,
    apply,
    contents,
    new_table,
    progress,
    table_of,
    write_generation,
)
from tests.crashes import kill_at
from tests.merge.conftest import TASKS_PLACES, in_waves
from tests.merge.test_merge_races import interrupted
from tests.merge.test_waves import SHARDS, task_of, unreferenced

from weir.base.alter import alter_base_table
from weir.base.alteration import Alteration
from weir.base.details_commit import update_details
from weir.base.index_changes import create_index
from weir.base.key_index import extend_key_index
from weir.base.table import BaseTable
from weir.base.versions import remove_versions
from weir.engine import failpoint
from weir.indexing.definition import IndexDefinition
from weir.indexing.kinds import IndexKind
from weir.merge import merged_keys
from weir.merge.merge_insert import merge_by_library
from weir.merge.plan import MergeTask

FIRST: list[Row] = [(number, "base") for number in range(30)]
MERGED: list[Row | Key] = [(1,), (2, "new"), (31, "new"), (105, "new"), (107,), (900, "new")]


def two_fragments(directory: Path, *, indexed: bool) -> BaseTable:
    base = new_table(directory, rows=FIRST)
    rows = table_of(base.schema, [(100 + n, "appended") for n in range(10)]).cast(base.schema)
    lance.write_dataset(rows, base.uri, mode="append")
    base = base.latest()
    return extend_key_index(base) if indexed else base


def an_update(base: BaseTable) -> None:
    lance.dataset(base.uri).update({"value": "'by hand'"}, where="id IN (2, 5, 105)")


def a_delete(base: BaseTable) -> None:
    lance.dataset(base.uri).delete("id IN (1, 2, 6, 107)")


def a_whole_fragment_less(base: BaseTable) -> None:
    lance.dataset(base.uri).delete("id >= 100")


def an_append(base: BaseTable) -> None:
    first = 200 + base.latest().version
    rows = table_of(base.schema, [(first, "appended")]).cast(base.schema)
    lance.write_dataset(rows, base.uri, mode="append")


def a_compaction(base: BaseTable) -> None:
    lance.dataset(base.uri).optimize.compact_files()


def an_index(base: BaseTable) -> None:
    create_index(base.latest(), IndexDefinition("by_value", "value", IndexKind.BTREE))


def a_key_index(base: BaseTable) -> None:
    extend_key_index(base.latest())


def a_column_more(base: BaseTable) -> None:
    alter_base_table(base.latest(), Alteration.of(add=[pa.field("more", pa.int64())]))


def a_column_renamed(base: BaseTable) -> None:
    alter_base_table(base.latest(), Alteration.of(rename={"value": "text"}))


def other_details(base: BaseTable) -> None:
    update_details(base.latest(), lambda old: replace(old, num_shards=7))


def a_merge_of_another_shard(base: BaseTable) -> None:
    rows: list[Row | Key] = [(7, "other"), (8,), (300, "other")]
    merge_by_library([task_of(base, SHARDS[1], write_generation(base, SHARDS[1], 1, rows))], base.latest())


def the_same_in_waves(base: BaseTable) -> None:
    rows: list[Row | Key] = [(7, "other"), (8,), (300, "other")]
    in_waves([task_of(base, SHARDS[1], write_generation(base, SHARDS[1], 1, rows))], base.latest())


def old_versions_gone(base: BaseTable) -> None:
    an_update(base)
    dataset = lance.dataset(base.uri)
    older = [one["version"] for one in dataset.versions() if one["version"] < dataset.version]
    dataset.cleanup_old_versions(versions=older)


WINNERS: list[Callable[[BaseTable], None]] = [
    an_update,
    a_delete,
    a_whole_fragment_less,
    an_append,
    a_compaction,
    an_index,
    a_key_index,
    a_column_more,
    a_column_renamed,
    other_details,
    a_merge_of_another_shard,
    the_same_in_waves,
    old_versions_gone,
]


@pytest.mark.covering
@pytest.mark.parametrize(
    "place",
    [
        "merge.after_rows",
        "merge.before_commit",
        *(pytest.param(one, marks=pytest.mark.long) for one in TASKS_PLACES if one != "merge.after_rows"),
    ],
)
@pytest.mark.parametrize("winner", WINNERS, ids=lambda one: one.__name__)
def test_a_winner_s_commit_and_the_merge_are_both_there(
    tmp_path: Path, winner: Callable[[BaseTable], None], place: str
) -> None:
    base = two_fragments(tmp_path, indexed=place != "merge.before_deletions")
    task = task_of(base, SHARDS[0], write_generation(base, SHARDS[0], 1, MERGED))
    model: dict[Key, Row] = {}

    def commit() -> None:
        winner(base)
        model.update(contents(base.latest()))

    with interrupted(place, commit):
        result = in_waves([task], base)
    assert not result.was_already_merged
    wide = len(base.latest().schema) > len(base.schema)
    apply(model, base, MERGED)
    found = contents(base.latest())
    assert found == {key: row if len(row) == 3 or not wide else (*row, None) for key, row in model.items()}
    assert progress(base, SHARDS[0]) == 1
    assert result.version == base.latest().version
    if winner is not old_versions_gone:
        assert unreferenced(base) == set()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", range(6))
def test_winners_at_random_steps(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed)
    base = two_fragments(tmp_path, indexed=draw.random() < 0.5)
    kinds = [an_update, a_delete, an_append, a_compaction, a_key_index, other_details]
    left = draw.choices(kinds, k=6)
    model: dict[Key, Row] = {}
    reach = failpoint.reach

    def sometimes(name: str) -> None:
        if name in (*TASKS_PLACES, "merge.before_commit") and left and draw.random() < 0.5:
            monkeypatch.setattr(failpoint, "reach", reach)
            left.pop()(base)
            monkeypatch.setattr(failpoint, "reach", sometimes)
            model.clear()
            model.update(contents(base.latest()))

    model.update(contents(base))
    monkeypatch.setattr(failpoint, "reach", sometimes)
    task = task_of(base, SHARDS[0], write_generation(base, SHARDS[0], 1, MERGED))
    in_waves([task], base)
    apply(model, base, MERGED)
    assert contents(base.latest()) == model
    assert progress(base, SHARDS[0]) == 1


def merge_in_waves(task: MergeTask, base: BaseTable) -> None:
    merged_keys._INLINE_BYTES = 0
    in_waves([task], base)


def test_files_of_a_killed_merge_are_collected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merged_keys, "_INLINE_BYTES", 0)
    base = two_fragments(tmp_path, indexed=False)
    task = task_of(base, SHARDS[0], write_generation(base, SHARDS[0], 1, MERGED))
    kill_at("merge.before_commit", merge_in_waves, task, base)
    left = unreferenced(base)
    assert sorted({one.partition("/")[0] for one in left}) == ["_deletions", "data"]
    assert len([one for one in left if one.startswith("data")]) == 2, "rows and keys"
    assert contents(base.latest()) == contents(base)
    in_waves([task], base)
    assert unreferenced(base) == left
    rows = contents(base.latest())
    # Lance takes what is younger for work in progress.
    eight_days_ago = time.time() - 8 * 86_400
    for one in left:
        os.utime(Path(base.uri) / one, (eight_days_ago, eight_days_ago))
    remove_versions(base.store, [1])
    assert unreferenced(base) == set()
    assert contents(base.latest()) == rows

"""SIGKILL in the middle of a merge: what is left, and that merging again makes it exactly once."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import lance
import pyarrow as pa
import pytest
from tests.base.table_kit import apply, contents, new_table, progress, write_generation
from tests.crashes import kill_at

import weir
from weir.base.table import BaseTable
from weir.engine.runner import ThreadRunner
from weir.errors import ConflictError
from weir.format.index_details import IndexDetails
from weir.format.merge_engine import MergeEngine
from weir.format.shard_manifest import ShardManifest
from weir.log.manifest_store import list_shards, read_latest_manifest
from weir.merge.commit import merge_runs
from weir.merge.plan import MergeTask, plan_merge
from weir.storage.interface import ObjectStore
from weir.storage.local import LocalStore

SHARD = UUID("8f3b0d9e-7f2c-4b5e-9c51-2a6de1c0a003")


def merge(task: MergeTask, by_tasks: bool) -> None:
    merge_runs([task], runner=ThreadRunner() if by_tasks else None)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("place", "committed"),
    [
        ("merge.before_deletes", False),
        ("merge.between_passes", False),
        ("merge.before_rows", False),
        ("merge.after_rows", False),
        ("merge.between_waves", False),
        ("merge.before_deletions", False),
        ("merge.after_deletions", False),
        ("merge.before_commit", False),
        ("merge.after_commit", True),
    ],
)
def test_a_killed_merger_leaves_a_merge_that_can_be_finished(
    tmp_path: Path, merged_by: str, place: str, committed: bool
) -> None:
    base = new_table(tmp_path, rows=[(1, "base"), (2, "base"), (3, "base")])
    model = contents(base)
    generations = []
    for number, rows in enumerate(
        ([(1,), (2, "x"), (4, "x")], [(4,), (1, "again"), (3,), (5, "y")]), start=1
    ):
        apply(model, base, rows)
        generations.append(write_generation(base, SHARD, number, rows))
    task = MergeTask(base.store, SHARD, tuple(generations), 0)
    kill_at(place, merge, task, merged_by == "tasks")
    assert progress(base, SHARD) == (2 if committed else 0)
    # Whatever is in the base table already, with the generations on top of it everything is right.
    seen = contents(base.latest())
    for rows in ([(1,), (2, "x"), (4, "x")], [(4,), (1, "again"), (3,), (5, "y")]):
        apply(seen, base, rows)
    assert seen == model
    result = merge_runs([task])
    assert result.was_already_merged is committed
    assert contents(base.latest()) == model
    assert progress(base, SHARD) == 2
    assert merge_runs([task]).was_already_merged


def add_up(uri: str) -> None:
    merge_runs(plan_merge(*unmerged(weir.open(uri))))


def unmerged(table: weir.Table) -> tuple[ObjectStore, IndexDetails, tuple[ShardManifest, ...]]:
    base = BaseTable.open(LocalStore(Path(table.uri), fsync=False))
    (shard,) = list_shards(base.store)
    manifest = read_latest_manifest(base.store, shard)
    assert manifest is not None
    return base.store, base.details, (manifest,)


@pytest.mark.parametrize("by_tasks", [False, True])
def test_sums_are_right_in_every_version_after_a_merge_was_killed_between_its_passes(
    tmp_path: Path, by_tasks: bool
) -> None:
    """Of a key that a later generation deletes, the killed merge has removed the row that others add to."""
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64())])
    table = weir.create(
        tmp_path / "table",
        schema,
        primary_key="id",
        merge_engine=MergeEngine.aggregation(n="sum"),
        fsync=False,
    )
    with table.writer() as writer:
        writer.upsert([{"id": 1, "n": 2}, {"id": 2, "n": 1}])
        writer.flush()
        table.maintenance.merge()
        writer.upsert([{"id": 1, "n": 4}])
        writer.flush()
        writer.delete([1])
        writer.upsert([{"id": 2, "n": 5}])
        writer.flush()
    alone = plan_merge(*unmerged(table), max_task_bytes=1)
    assert len(alone) == 2
    kill_at("merge.between_passes", add_up, table.uri)
    with pytest.raises(ConflictError, match="Plan the merge again"):
        merge(alone[0], by_tasks)
    (together,) = plan_merge(*unmerged(table), max_task_bytes=1)
    merge(together, by_tasks)
    expected = {1: 2, 2: 1}, {2: 1}, {2: 6}
    for version in lance.dataset(table.uri).versions():
        rows = lance.dataset(table.uri, version=version["version"]).to_table().to_pylist()
        assert {row["id"]: row["n"] for row in rows} in ({}, *expected)
    assert table.scan().to_table().to_pylist() == [{"id": 2, "n": 6}]


def merge_table(uri: str) -> None:
    weir.open(uri).maintenance.merge()


@pytest.mark.parametrize("change", ["upsert", "delete"])
def test_the_next_merge_brings_the_key_index_to_what_a_killed_one_has_merged(
    tmp_path: Path, change: str
) -> None:
    # Otherwise its generations are never collected, for collection waits for the index.
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    table = weir.create(tmp_path / "table", schema, primary_key="id")
    with table.writer() as writer:
        writer.upsert(pa.table({"id": range(10), "v": range(10)}, schema=schema))
        writer.flush()
        table.maintenance.merge()
        if change == "upsert":
            writer.upsert(pa.table({"id": [10], "v": [10]}, schema=schema))
        else:
            writer.delete([3])
    kill_at("merge.after_commit", merge_table, table.uri)
    table = weir.open(table.uri)
    [left] = [one for one in table.status().indexes if one.name == "id_idx"]
    assert set(left.behind.values()) == {1}
    report = table.maintenance.merge()
    [index] = [one for one in table.status().indexes if one.name == "id_idx"]
    assert (report.generations, index.behind) == (0, {})
    assert table.maintenance.merge().version == report.version

"""What the machine that plans does for large tables: real manifests of fragments that nobody has written."""

from __future__ import annotations

import json
import pickle
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import lance
import pyarrow as pa
import pytest
from lance.dataset import LanceOperation
from lance.fragment import FragmentMetadata
from tests.base.table_kit import apply, contents, new_table, progress, write_generation
from tests.merge.test_waves import SHARDS, START, task_of, unreferenced

import weir
from weir.base.create import create_base_table
from weir.base.key_index import extend_key_index
from weir.base.manifest import read_manifest
from weir.base.row_commit import (
    FragmentLeft,
    RowChange,
    commit_rows,
    fragment_sizes,
    fragments_of,
    write_fragment_files,
)
from weir.base.table import BaseTable
from weir.engine.runner import ThreadRunner
from weir.format.index_details import MergedGeneration
from weir.format.shard_manifest import FlushedGeneration, ShardManifest
from weir.merge import merged_keys, new_rows, replaced_rows
from weir.merge.commit import merge_runs
from weir.merge.merged_keys import MergedKeys, gathered_keys, read_keys, write_keys
from weir.merge.plan import plan_merge
from weir.merge.replaced_rows import SearchedIndex, replaced_rows_tasks
from weir.merge.service import merge_rounds
from weir.read.plan import DatasetTask
from weir.storage.interface import ObjectStore
from weir.storage.local import LocalStore

Found = TypeVar("Found")
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("value", pa.string())])
ROWS_PER_FRAGMENT = 1_000_000


def large_table(directory: Path, fragments: int) -> BaseTable:
    """Make a table whose manifest has many fragments of a million rows, all of them the same small file."""
    base = create_base_table(LocalStore(directory / "large", fsync=False), SCHEMA, ("id",))
    rows = pa.record_batch([[1, 2], ["a", "b"]], schema=base.schema)
    (text,) = write_fragment_files(base.dataset, base.schema, [rows])
    described = json.dumps({**json.loads(text), "id": 0, "physical_rows": ROWS_PER_FRAGMENT})
    many = [FragmentMetadata.from_json(described) for _ in range(fragments)]
    lance.LanceDataset.commit(base.uri, LanceOperation.Append(many), read_version=base.version)
    return base.latest()


def manifests(shards: int, generations: int) -> list[ShardManifest]:
    return [
        ShardManifest(
            shard_id=UUID(int=number + 1),
            version=3,
            writer_epoch=1,
            replay_after_wal_entry_position=0,
            wal_entry_position_last_seen=0,
            current_generation=generations + 1,
            flushed_generations=tuple(
                FlushedGeneration(one, f"aaaaaaaa_gen_{one}", physical_rows=50_000)
                for one in range(1, generations + 1)
            ),
            shard_spec_id=1,
        )
        for number in range(shards)
    ]


def a_merge(directory: Path, fragments: int, shards: int) -> dict[str, float]:
    """Plan and commit a merge that touches every second fragment; return what each step took."""
    taken: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Found]) -> Found:
        began = time.process_time()
        found = work()
        taken[name] = time.process_time() - began
        return found

    base = large_table(directory, fragments)
    base = timed("open", lambda: BaseTable.open(base.store))
    plan = timed("plan", lambda: plan_merge(base.store, base.details, manifests(shards, 10)))
    rounds = timed("rounds", lambda: merge_rounds(plan))
    assert sum(len(step) for one in rounds for step in one.steps) == len(plan)
    there = timed("fragments", lambda: fragments_of(base.dataset))
    assert len(there) == fragments
    keys = [MergedKeys(100_000, 0, path=f"data/{number}.lance") for number in range(shards)]
    tasks = timed("tasks", lambda: replaced_rows_tasks(base, sorted(fragment_sizes(base.dataset)), keys))
    assert len(tasks) <= 256 + 1
    assert sorted(number for task in tasks for number in task.fragment_ids) == sorted(there)
    taken["bytes of tasks"] = sum(len(pickle.dumps(task)) for task in tasks)
    table = weir.open(base.uri, maintenance="off")
    (scan,) = timed("plan a scan", lambda: table.scan(["id"]).plan().tasks)
    assert isinstance(scan, DatasetTask)
    parts = timed("tasks of a scan", lambda: list(scan.split(ROWS_PER_FRAGMENT)))
    assert sum(rows for _, rows in parts) == fragments * ROWS_PER_FRAGMENT
    taken["bytes of tasks of a scan"] = sum(len(pickle.dumps(part)) for part, _ in parts)
    left = []
    for number in range(0, fragments, 2):
        deleted = {
            "read_version": base.version,
            "id": number,
            "file_type": "bitmap",
            "num_deleted_rows": 10,
            "base_id": None,
        }
        text = json.dumps({**json.loads(there[number]), "deletion_file": deleted})
        left.append(FragmentLeft(number, text, 10))
    described = json.loads(there[0])
    new = [json.dumps({**described, "id": 0, "physical_rows": 100_000})] * shards
    marks = [MergedGeneration(one.shard_id, one.last_generation) for one in plan[:shards]]
    before = read_manifest(base.store, base.version)
    taken["bytes of the manifest"] = len(before.data)
    version = timed("commit", lambda: commit_rows(base.store, before, RowChange(left, new), marks))
    assert version == base.version + 1
    after = read_manifest(base.store, version)
    entry = after.mem_wal_index()
    assert entry is not None
    assert len(after.decode_details(entry).merged_generations) == len({one.shard_id for one in marks})
    return taken


def test_what_tasks_are_told_is_bounded(tmp_path: Path) -> None:
    taken = a_merge(tmp_path, fragments=1_500, shards=100)
    # The numbers of its fragments, and of each shard the name of a file of keys: no rows, no keys.
    assert taken["bytes of tasks"] < 1_500 * 16 + 257 * (100 * 100 + 4_000)
    assert taken["bytes of tasks of a scan"] < (1_500 + 100) * 1_000


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_thousand_shards_and_a_hundred_billion_rows(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    taken = a_merge(tmp_path, fragments=100_000, shards=1_000)
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    print({name: round(value, 2) for name, value in taken.items()}, f"{more} MiB more at the most")
    assert more < 2 * 1024
    assert taken["bytes of tasks"] < 64 * 1024 * 1024
    assert taken["bytes of tasks of a scan"] < 128 * 1024 * 1024


def test_keys_that_travel_with_tasks_are_few_however_many_runs_there_are(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, fsync=False)
    keys = [
        write_keys(
            store,
            pa.table({"id": range(at * 4_000, at * 4_000 + 3_000)}),
            pa.table({"id": pa.array([-at], pa.int64())}),
        )
        for at in range(20)
    ]
    assert all(one.inline is not None for one in keys)
    (together,) = gathered_keys(store, keys)
    assert (together.rows, together.deletes, together.runs) == (20 * 3_001, 20, 20)
    assert together.inline is None
    assert read_keys(store, [together]).equals(read_keys(store, keys).combine_chunks())
    assert gathered_keys(store, keys[:2]) == tuple(keys[:2])


@pytest.mark.parametrize("twice", [False, True], ids=["", "a key in two shards"])
def test_a_merge_whose_keys_are_gathered(
    tmp_path: Path, twice: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = extend_key_index(new_table(tmp_path, rows=START))
    model = contents(base)
    tasks = []
    for at, shard in enumerate(SHARDS):
        rows = [(at, f"new {at}"), (at + 10,), (at + 100, "new"), *([(50, f"{at}")] if twice else [])]
        apply(model, base, rows)
        tasks.append(task_of(base, shard, write_generation(base, shard, 1, rows)))
    # More than the keys of one run, less than those of all.
    monkeypatch.setattr(merged_keys, "_INLINE_BYTES", 80)
    monkeypatch.setattr(new_rows, "ROWS_PER_NEW_FRAGMENT", 1)
    written: list[str] = []

    def watched(store: ObjectStore, keys: Sequence[MergedKeys]) -> tuple[MergedKeys, ...]:
        found = gathered_keys(store, keys)
        written.extend(one.path for one in found if one.path is not None)
        return found

    monkeypatch.setattr("weir.merge.waves.gathered_keys", watched)
    merge_runs(tasks, runner=ThreadRunner())
    assert len(written) == 1, "one file for the keys of four runs"
    assert contents(base.latest()) == model
    assert [progress(base, shard) for shard in SHARDS] == [1, 1, 1, 1]
    assert unreferenced(base) == set()


@pytest.mark.parametrize(("keys", "tasks"), [(1_000, 1), (2_000_000, 2)])
def test_many_keys_are_looked_for_by_several_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: int, tasks: int
) -> None:
    base = large_table(tmp_path, 10)
    monkeypatch.setattr(
        replaced_rows, "searched_index", lambda _, wanted: SearchedIndex("id", wanted, frozenset())
    )
    found = replaced_rows_tasks(base, range(10), [MergedKeys(keys, 0, path="data/keys.lance")])
    assert [task.index for task in found] == (["id"] if tasks == 1 else [None, None])
    assert sorted(number for task in found for number in task.fragment_ids) == sorted(
        fragment_sizes(base.dataset)
    )

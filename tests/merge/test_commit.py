from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import lance
import numpy as np
import pyarrow as pa
import pytest
from tests.base.table_kit import (
    SCHEMA,
    Key,
    Row,
    apply,
    contents,
    manifest_of,
    new_shard,
    new_table,
    newest_manifest,
    progress,
    store_manifest,
    table_of,
    write_generation,
)

from weir.base.details_commit import update_details
from weir.base.table import BaseTable
from weir.errors import ConflictError, CorruptionError
from weir.format import layout
from weir.format.index_details import MergedGeneration
from weir.format.resolution import Resolution
from weir.format.shard_manifest import FlushedGeneration
from weir.merge import merge_insert
from weir.merge.commit import MergeResult, merge_runs
from weir.merge.plan import MergeTask, plan_merge
from weir.merge.rows import read_runs

SHARD = UUID("8f3b0d9e-7f2c-4b5e-9c51-2a6de1c0a001")
pytestmark = pytest.mark.usefixtures("merged_by")


def task_of(base: BaseTable, *generations: FlushedGeneration, after: int | None = None) -> MergeTask:
    before = generations[0].generation - 1 if after is None else after
    return MergeTask(base.store, SHARD, generations, before)


# ------------------------------------------------------------------ what a merge does


def test_the_newest_row_of_every_key_is_merged(tmp_path: Path) -> None:
    base = new_table(tmp_path, rows=[(1, "base"), (2, "base"), (3, "base")])
    first = write_generation(base, SHARD, 1, [(1, "old"), (4, "old"), (1, "new"), (5, "gone")])
    second = write_generation(base, SHARD, 2, [(2,), (4, "newer"), (5,), (6,), (3, "x"), (3,), (3, "y")])
    result = merge_runs([task_of(base, first, second)])
    after = base.latest()
    assert result == MergeResult(3, 1, (1, 2), after.version, False, shards=1)
    assert contents(after) == {(1,): (1, "new"), (3,): (3, "y"), (4,): (4, "newer")}
    assert after.details.merged_generation(SHARD) == 2


def test_a_merge_that_is_repeated_changes_nothing(tmp_path: Path) -> None:
    base = new_table(tmp_path)
    task = task_of(base, write_generation(base, SHARD, 1, [(1, "a")]))
    first = merge_runs([task])
    assert merge_runs([task]) == MergeResult(0, 0, (), first.version, True)
    assert base.latest().version == first.version


def test_what_is_merged_already_is_left_out_of_a_run(tmp_path: Path) -> None:
    base = new_table(tmp_path)
    first = write_generation(base, SHARD, 1, [(1, "first"), (2, "first")])
    merge_runs([task_of(base, first)])
    # A user of the library changes the base table meanwhile: merging generation 1 again would undo it.
    lance.dataset(base.uri).update({"value": "'by hand'"}, where="id = 1")
    second = write_generation(base, SHARD, 2, [(2, "second")])
    result = merge_runs([task_of(base, first, second)])
    assert result.generations == (2,)
    assert contents(base.latest()) == {(1,): (1, "by hand"), (2,): (2, "second")}


@pytest.mark.parametrize(
    ("rows", "left"),
    [
        ([(1,), (9,)], {(2,): (2, "b")}),  # only tombstones
        ([(9,), (8,)], {(1,): (1, "a"), (2,): (2, "b")}),  # only tombstones, of keys the base lacks
        ([], {(1,): (1, "a"), (2,): (2, "b")}),  # no rows at all
        ([(9,), (3, "c")], {(1,): (1, "a"), (2,): (2, "b"), (3,): (3, "c")}),
    ],
)
def test_progress_is_recorded_whatever_the_run_holds(
    tmp_path: Path, rows: list[Row], left: dict[Key, Row]
) -> None:
    base = new_table(tmp_path, rows=[(1, "a"), (2, "b")])
    task = task_of(base, write_generation(base, SHARD, 1, rows))
    result = merge_runs([task])
    assert not result.was_already_merged
    assert result.generations == (1,)
    assert contents(base.latest()) == left
    assert progress(base, SHARD) == 1
    assert merge_runs([task]).was_already_merged


def test_rows_are_counted(tmp_path: Path) -> None:
    base = new_table(tmp_path, rows=[(number, "a") for number in range(10)])
    rows = [(0, "x"), (1, "x"), (20, "x"), (5,), (6,), (99,)]
    result = merge_runs([task_of(base, write_generation(base, SHARD, 1, rows))])
    assert (result.rows_upserted, result.rows_deleted) == (3, 2)


def test_a_generation_may_have_several_files_and_deleted_rows(tmp_path: Path) -> None:
    base = new_table(tmp_path, rows=[(1, "base")])
    rows = [(number % 7, f"at {number}") for number in range(20)]
    flushed = write_generation(base, SHARD, 1, rows, max_rows_per_file=3)
    uri = f"{base.uri}/{layout.generation_path(SHARD, flushed.path)}"
    assert len(lance.dataset(uri).get_fragments()) == 7
    lance.dataset(uri).delete("value = 'at 19' or value = 'at 6'")
    merge_runs([task_of(base, flushed)])
    model = {(key,): (key, text) for key, text in rows if text not in ("at 19", "at 6")}
    assert contents(base.latest()) == model


def test_columns_a_generation_lacks_are_null_and_those_the_table_lost_are_dropped(tmp_path: Path) -> None:
    base = new_table(tmp_path, rows=[(1, "a")])
    flushed = write_generation(base, SHARD, 1, [(1, "b"), (2, "c")])
    lance.dataset(base.uri).add_columns(pa.field("added", pa.int32()))
    lance.dataset(base.uri).drop_columns(["value"])
    merge_runs([task_of(base, flushed)])
    assert contents(base.latest()) == {(1,): (1, None), (2,): (2, None)}


def test_a_generation_without_tombstone_column_has_no_deletes(tmp_path: Path) -> None:
    base = new_table(tmp_path)
    name = layout.generation_name("0123abcd", 1)
    lance.write_dataset(table_of(SCHEMA, [(1, "a")]), f"{base.uri}/{layout.generation_path(SHARD, name)}")
    merge_runs([task_of(base, FlushedGeneration(1, name))])
    assert contents(base.latest()) == {(1,): (1, "a")}


def test_a_large_run_is_streamed_with_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_insert, "_STREAM_FROM_BYTES", 1)
    base = new_table(tmp_path, rows=[(number, "base") for number in range(50)])
    rows: list[Row | Key] = [(number, "merged") for number in range(25, 75)]
    rows += [(number,) for number in range(0, 50, 5)]
    model = contents(base)
    apply(model, base, rows)
    merge_runs([task_of(base, write_generation(base, SHARD, 1, rows, max_rows_per_file=7))])
    assert contents(base.latest()) == model


def test_few_rows_for_a_large_table_are_looked_up_in_the_key_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_insert, "_LOOKUP_BELOW", 1)
    base = new_table(tmp_path, rows=[(number, "base") for number in range(200)])
    model = contents(base)
    # The second merge meets rows the index does not cover yet, and rows it covers that are gone.
    for number, rows in enumerate(
        ([(5, "x"), (6,), (300, "x")], [(300, "y"), (6, "y"), (5,), (7,)]), start=1
    ):
        apply(model, base, rows)
        merge_runs([task_of(base, write_generation(base, SHARD, number, rows))])
    assert contents(base.latest()) == model


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "type",
    [
        pa.list_(pa.int64()),
        pa.struct([("x", pa.int32()), ("y", pa.string())]),
        pa.map_(pa.string(), pa.int64()),
        pa.dictionary(pa.int32(), pa.string()),
        pa.decimal128(12, 3),
        pa.list_(pa.float32(), 3),
        pa.timestamp("us", "UTC"),
        pa.large_binary(),
        pa.float16(),
        pa.null(),
    ],
    ids=str,
)
def test_values_of_every_kind_of_type_are_merged(tmp_path: Path, type: pa.DataType) -> None:
    examples: dict[str, object] = {
        "list": [1, None, 3],
        "struct": {"x": 1, "y": "z"},
        "map": [("a", 1), ("b", None)],
        "dictionary": "red",
        "decimal128": 7,
        "fixed_size_list": [1.0, 2.0, 3.0],
        "timestamp": 1_700_000_000_000_000,
        "large_binary": b"\x00\xff",
        "halffloat": np.float16(1.5),
        "null": None,
    }
    value = pa.array([examples[str(type).split("[")[0].split("(")[0].split("<")[0]]], type)[0].as_py()
    schema = pa.schema([("id", pa.int64()), ("value", type)])
    base = new_table(tmp_path, schema, rows=[(1, None), (2, value), (3, value)])
    merge_runs([task_of(base, write_generation(base, SHARD, 1, [(1, value), (2, None), (3,), (4, value)]))])
    assert contents(base.latest()) == {(1,): (1, value), (2,): (2, None), (4,): (4, value)}


# ------------------------------------------------------------------ what a merge refuses


def test_tasks_of_a_shard_run_in_order(tmp_path: Path) -> None:
    base = new_table(tmp_path)
    generations = [write_generation(base, SHARD, number, [(number, "a")]) for number in (1, 2, 3)]
    with pytest.raises(ConflictError, match="in order"):
        merge_runs([task_of(base, *generations[1:])])
    assert contents(base.latest()) == {}
    merge_runs([task_of(base, *generations)])


def test_a_generation_that_is_missing_changes_nothing(tmp_path: Path) -> None:
    base = new_table(tmp_path, rows=[(1, "a")])
    there = write_generation(base, SHARD, 1, [(1,)])
    gone = FlushedGeneration(2, "00000000_gen_2", in_memory_bytes=1)
    with pytest.raises(CorruptionError, match="not on storage") as caught:
        merge_runs([task_of(base, there, gone)])
    assert caught.value.where == f"{base.uri}/_mem_wal/{SHARD}/00000000_gen_2"
    assert base.latest() is base


@pytest.mark.parametrize("filler", [b"\x00", b"\xff"])
@pytest.mark.parametrize("directory", ["data", "_versions"])
def test_a_generation_that_is_damaged_changes_nothing(tmp_path: Path, directory: str, filler: bytes) -> None:
    base = new_table(tmp_path, rows=[(1, "a"), (2, "b")])
    flushed = write_generation(base, SHARD, 1, [(1,), (2, "new")])
    (damaged,) = [
        entry
        for entry in base.store.list(f"{layout.generation_path(SHARD, flushed.path)}/{directory}")
        if not entry.path.endswith(".json")
    ]
    base.store.put(damaged.path, filler * damaged.size)
    with pytest.raises(CorruptionError) as caught:
        merge_runs([task_of(base, flushed)])
    assert flushed.path in str(caught.value.where)
    assert base.latest() is base


def test_a_generation_without_its_key_column_changes_nothing(tmp_path: Path) -> None:
    base = new_table(tmp_path)
    name = layout.generation_name("0123abcd", 1)
    uri = f"{base.uri}/{layout.generation_path(SHARD, name)}"
    lance.write_dataset(pa.table({"id": [1], "value": ["a"]}), uri).drop_columns(["id"])
    with pytest.raises(CorruptionError, match="no key column 'id'"):
        merge_runs([task_of(base, FlushedGeneration(1, name))])


def test_a_generation_that_changes_while_it_is_merged_is_noticed(tmp_path: Path) -> None:
    base = new_table(tmp_path)
    flushed = write_generation(base, SHARD, 1, [(1, "a"), (2, "b")])
    task = task_of(base, flushed)
    run = read_runs([(task, task.generations)], pa.schema([base.schema.field("id")]))
    uri = f"{base.uri}/{layout.generation_path(SHARD, flushed.path)}"
    dataset = lance.dataset(uri)
    dataset.delete("id = 1")
    (source,) = run._sources
    shrunk = replace(source, dataset=dataset)
    with pytest.raises(CorruptionError, match="had 2 rows and now has 1"):
        list(type(run)([shrunk], run.deletes, run.upserted).upserts(base.schema))


def test_a_failure_while_rows_are_streamed_keeps_its_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_insert, "_STREAM_FROM_BYTES", 1)
    base = new_table(tmp_path)
    flushed = write_generation(base, SHARD, 1, [(1, "a"), (2, "b")])
    broken = _raiser(CorruptionError("broken batch", where="there"), after=1)
    monkeypatch.setattr(Resolution, "apply", broken)
    with pytest.raises(CorruptionError, match="broken batch") as caught:
        merge_runs([task_of(base, flushed)])
    assert caught.value.where == "there"
    assert base.latest() is base


def _raiser(error: Exception, *, after: int) -> Callable[..., object]:
    apply = Resolution.apply
    calls = [0]

    def fail(columns: Resolution, batch: pa.RecordBatch, *, where: str) -> pa.RecordBatch:
        calls[0] += 1
        if calls[0] > after:
            raise error
        return apply(columns, batch, where=where)

    return fail


# ------------------------------------------------------------------ against a dict


KEYS: dict[str, tuple[pa.Schema, tuple[str, ...], Callable[[int], Key]]] = {
    "integer": (SCHEMA, ("id",), lambda n: (n - 20,)),
    "string": (
        pa.schema([("name", pa.string()), ("value", pa.string())]),
        ("name",),
        lambda n: (["", "a\x00b", "it's", "Straße", '"', "\\"][n % 6] + "x" * (n // 6),),
    ),
    "composite": (
        pa.schema([("tenant", pa.string()), ("id", pa.int32()), ("value", pa.string())]),
        ("tenant", "id"),
        lambda n: ("ab"[n % 2], n // 2),
    ),
    "binary and bool": (
        pa.schema([("raw", pa.binary()), ("flag", pa.bool_()), ("value", pa.string())]),
        ("raw", "flag"),
        lambda n: (bytes([n // 2]), bool(n % 2)),
    ),
}


@pytest.mark.covering
@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("seed", range(3))
def test_random_generations_come_to_what_a_dict_holds(tmp_path: Path, kind: str, seed: int) -> None:
    schema, primary_key, key = KEYS[kind]
    draw = random.Random(f"{kind} {seed}")
    start: list[Row] = [(*key(n), "base") for n in range(0, 40, 2)]
    base = new_table(tmp_path, schema, primary_key, start)
    model = contents(base)
    number = 0
    merged: list[int] = []
    for _ in range(3):
        generations = []
        for _ in range(draw.randint(1, 4)):
            number += 1
            rows: list[Row | Key] = []
            for step in range(draw.randint(0, 25)):
                chosen = key(draw.randrange(40))
                rows.append(chosen if draw.random() < 0.35 else (*chosen, f"{number}.{step}"))
            apply(model, base, rows)
            generations.append(write_generation(base, SHARD, number, rows, max_rows_per_file=9))
        manifest = store_manifest(base.store, manifest_of(SHARD, generations, version=number))
        for task in plan_merge(
            base.store, base.latest().details, [manifest], max_task_bytes=draw.choice([1, 500, 10**9])
        ):
            merged += merge_runs([task]).generations
        assert contents(base.latest()) == model
        assert progress(base, SHARD) == number
    assert merged == list(range(1, number + 1))


# ------------------------------------------------------------------ together with the library


def test_generations_the_library_wrote_are_merged(tmp_path: Path) -> None:
    base = new_table(tmp_path, rows=[(1, "base"), (2, "base"), (3, "base")])
    shard_id = new_shard()
    dataset = lance.dataset(base.uri)

    def put(rows: list[Row]) -> pa.Table:
        return table_of(SCHEMA, rows).cast(dataset.schema)

    with dataset.mem_wal_writer(str(shard_id)) as writer:
        writer.put(put([(1, "first"), (4, "first")]))
        writer.put(put([(1, "second"), (5, "x")]))
        writer.delete(pa.table({"id": [2, 5]}))
    with dataset.mem_wal_writer(str(shard_id)) as writer:
        writer.put(put([(2, "again"), (6, "y")]))
        writer.delete(pa.table({"id": [3, 4, 77]}))
    manifest = newest_manifest(base.store, shard_id)
    assert [one.generation for one in manifest.flushed_generations] == [1, 2]
    model = {(1,): (1, "second"), (2,): (2, "again"), (6,): (6, "y")}
    (task,) = plan_merge(base.store, base.details, [manifest])
    result = merge_runs([task])
    assert contents(base.latest()) == model
    assert result.generations == (1, 2)


def test_the_library_refuses_to_merge_what_is_merged(tmp_path: Path) -> None:
    base = new_table(tmp_path)
    merge_runs([task_of(base, write_generation(base, SHARD, 1, [(1, "a")]))])
    stale = lance.dataset(base.uri).merge_insert(["id"]).use_index(False)
    stale = stale.when_matched_update_all().when_not_matched_insert_all()
    stale = stale.mark_sstables_as_compacted([lance.CompactedSsTable(str(SHARD), 1)])
    with pytest.raises(OSError, match="not greater than the recorded generation 1"):
        stale.execute(table_of(SCHEMA, [(1, "stale")]).cast(base.schema))
    assert contents(base.latest()) == {(1,): (1, "a")}


def test_progress_the_library_recorded_is_respected(tmp_path: Path) -> None:
    base = new_table(tmp_path)
    generations = [write_generation(base, SHARD, number, [(number, "a")]) for number in (1, 2)]
    foreign = lance.dataset(base.uri).merge_insert(["id"]).use_index(False)
    foreign = foreign.when_matched_update_all().when_not_matched_insert_all()
    foreign = foreign.mark_sstables_as_compacted([lance.CompactedSsTable(str(SHARD), 1)])
    foreign.execute(table_of(SCHEMA, [(1, "by the library")]).cast(base.schema))
    assert merge_runs([task_of(base, *generations)]).generations == (2,)
    assert contents(base.latest()) == {(1,): (1, "by the library"), (2,): (2, "a")}


def test_other_details_survive_a_merge(tmp_path: Path) -> None:
    base = new_table(tmp_path)
    other = new_shard()
    base = update_details(
        base,
        lambda old: replace(
            old,
            num_shards=3,
            maintained_indexes=("a",),
            merged_generations=(MergedGeneration(other, 8),),
            inline_snapshots=b"bytes",
        ),
    )
    merge_runs([task_of(base, write_generation(base, SHARD, 1, [(1, "a")]))])
    after = base.latest().details
    assert after.merged_generation(other) == 8
    kept = replace(after, merged_generations=base.details.merged_generations, index_catchup=())
    assert kept == replace(base.details, index_catchup=())

"""Merges that many tasks do and one commit records: equal to the library's, whatever the key."""

from __future__ import annotations

import datetime as dt
import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import lance
import numpy as np
import pyarrow as pa
import pytest
from tests.base.table_kit import (
    Key,
    Row,
    apply,
    contents,
    manifest_of,
    new_store,
    new_table,
    progress,
    table_of,
    write_generation,
)

import weir
import weir.merge.commit
from weir.base import row_commit
from weir.base.create import create_base_table
from weir.base.key_index import extend_key_index
from weir.base.manifest import read_manifest
from weir.base.row_commit import FragmentLeft, RowChange, commit_rows, rows_can_be_committed, without_rows
from weir.base.table import BaseTable
from weir.engine import failpoint
from weir.engine.runner import ThreadRunner
from weir.errors import RunnerError
from weir.format.index_details import MergedGeneration
from weir.format.shard_manifest import FlushedGeneration
from weir.format.table_manifest import decode_files
from weir.merge import merged_keys, new_rows, replaced_rows
from weir.merge.commit import merge_runs, pays_to_divide
from weir.merge.merge_insert import merge_by_library
from weir.merge.plan import MergeTask
from weir.merge.service import merge_generations, merge_rounds

SHARDS = [UUID(int=number) for number in range(1, 5)]
START: list[Row] = [(number, "base") for number in range(40)]
EPOCH = dt.datetime(1970, 1, 1)
UTC_EPOCH = EPOCH.replace(tzinfo=dt.UTC)


def task_of(base: BaseTable, shard: UUID, *generations: FlushedGeneration) -> MergeTask:
    return MergeTask(base.store, shard, generations, generations[0].generation - 1)


def unreferenced(base: BaseTable) -> set[str]:
    """Return the data and deletion files that no version refers to."""
    there = {one.path for prefix in ("data", "_deletions") for one in base.store.list(prefix)}
    for version in lance.dataset(base.uri).versions():
        files = decode_files(read_manifest(base.store, version["version"]).data, where="")
        there -= {one.path for one in files.needed}
    return there


KEYS: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "int8": (pa.int8(), range(-20, 20)),
    "uint64": (pa.uint64(), [2**64 - 1 - n for n in range(40)]),
    "int64": (pa.int64(), [n * 2**58 - 2**62 for n in range(16)]),
    "large_string": (pa.large_string(), ["", *(f"k\x00{n}é" for n in range(39))]),
    "binary": (pa.binary(), [bytes([n, 0]) for n in range(40)]),
    "fixed": (pa.binary(16), [bytes([n] * 16) for n in range(40)]),
    "bool": (pa.bool_(), [True, False]),
    "date32": (pa.date32(), [dt.date(1960, 1, 1) + dt.timedelta(days=400 * n) for n in range(40)]),
    "date64": (pa.date64(), [dt.date(1960, 1, 1) + dt.timedelta(days=400 * n) for n in range(40)]),
    "microseconds": (pa.timestamp("us"), [EPOCH + dt.timedelta(microseconds=n) for n in range(-20, 20)]),
    "zoned": (pa.timestamp("ms", "Europe/Oslo"), [UTC_EPOCH + dt.timedelta(days=n) for n in range(-20, 20)]),
    "decimal": (pa.decimal128(12, 2), [Decimal(n) / 4 * 10**6 for n in range(-20, 20)]),
    "wide decimal": (pa.decimal256(50, 3), [Decimal(n) * 10**40 for n in range(-20, 20)]),
    "uuid": (pa.uuid(), [UUID(int=n * 2**121) for n in range(40)]),
}


@pytest.mark.covering
@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("indexed", [True, False], ids=["index", "scan"])
def test_both_ways_of_merging_come_to_the_same(tmp_path: Path, kind: str, indexed: bool) -> None:
    type_, values = KEYS[kind]
    schema = pa.schema([("key", type_), ("value", pa.string())])
    draw = random.Random(kind)
    start = [(value, "base") for value in values if draw.random() < 0.6]
    generations: list[list[tuple[Any, ...]]] = []
    for number in range(3):
        chosen = draw.sample(list(values), len(values) // 2)
        generations.append([(value, f"{number}") if draw.random() < 0.7 else (value,) for value in chosen])
    found = []
    for divided in (True, False):
        base = new_table(tmp_path, schema, ("key",), start)
        if indexed:
            base = extend_key_index(base)
        model = contents(base)
        written = []
        for number, rows in enumerate(generations, start=1):
            apply(model, base, rows)
            written.append(write_generation(base, SHARDS[0], number, rows))
        tasks = [task_of(base, SHARDS[0], *written)]
        result = merge_runs(tasks, runner=ThreadRunner()) if divided else merge_by_library(tasks, base)
        assert contents(base.latest()) == model
        found.append((result.rows_upserted, result.rows_deleted))
    assert found[0] == found[1]


COMPOSITE = pa.schema([("tenant", pa.int32()), ("name", pa.string()), ("value", pa.string())])


def composite(numbers: Sequence[int], value: str) -> list[Row]:
    return [(number % 2, f"n{number:05}", value) for number in numbers]


@pytest.mark.parametrize("taken", [True, False], ids=["rows taken", "fragments read"])
def test_of_a_composite_key_nothing_is_read_but_what_the_index_of_one_column_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    monkeypatch.setattr(replaced_rows, "_ROWS_PER_TAKEN", 1 if taken else 1_000_000)
    base = new_table(tmp_path, COMPOSITE, ("tenant", "name"), composite(range(20_000), "base"))
    model = contents(base)
    later = composite(range(20_000, 20_300), "later")
    apply(model, base, later)
    merge_by_library([task_of(base, SHARDS[0], write_generation(base, SHARDS[0], 1, later))], base)
    base = extend_key_index(base)
    # A name that is there under another tenant is another key.
    changes: list[Row | Key] = [*composite(range(0, 60, 2), "new"), (1, "n00000", "another"), (1, "n00002")]
    changes += [(1, f"n{number:05}") for number in range(1, 60, 2)]
    apply(model, base, changes)
    read: list[int] = []
    rows_by_address = row_commit.rows_by_address

    def noted(
        dataset: lance.LanceDataset, fragment_ids: Sequence[int], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        read.extend(fragment_ids)
        return rows_by_address(dataset, fragment_ids, columns)

    monkeypatch.setattr(replaced_rows, "rows_by_address", noted)
    task = task_of(base, SHARDS[0], write_generation(base, SHARDS[0], 2, changes))
    result = merge_runs([task], runner=ThreadRunner())
    assert contents(base.latest()) == model
    assert (result.rows_upserted, result.rows_deleted) == (31, 30)
    assert read == ([] if taken else [0])


@pytest.mark.covering
@pytest.mark.parametrize("kind", KEYS)
def test_of_a_composite_key_every_type_is_found_by_an_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(replaced_rows, "_ROWS_PER_TAKEN", 1)
    type_, values = KEYS[kind]
    schema = pa.schema([("tenant", pa.int32()), ("key", type_), ("value", pa.string())])
    keys = [(tenant, value) for tenant in range(2) for value in values]
    base = extend_key_index(new_table(tmp_path, schema, ("tenant", "key"), [(*key, "base") for key in keys]))
    assert replaced_rows.searched_index(base, 4) is not None
    model = contents(base)
    draw = random.Random(kind)
    changes: list[Any] = [
        (*key, "new") if draw.random() < 0.7 else key for key in draw.sample(keys, len(keys) // 4 + 1)
    ]
    apply(model, base, changes)
    merge_runs(
        [task_of(base, SHARDS[0], write_generation(base, SHARDS[0], 1, changes))], runner=ThreadRunner()
    )
    assert contents(base.latest()) == model


def test_an_index_of_few_values_is_not_searched_for_many_keys(tmp_path: Path) -> None:
    rows = composite(range(20_000), "base")
    base = extend_key_index(new_table(tmp_path, COMPOSITE, ("tenant", "name"), rows))
    index = replaced_rows.searched_index(base, 4)
    assert index is not None
    assert index.column == "name"


def test_rounds_of_several_shards_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merged_keys, "_INLINE_BYTES", 0)
    base = extend_key_index(new_table(tmp_path, rows=START))
    model = contents(base)
    manifests = []
    for at, shard in enumerate(SHARDS):
        own: list[list[tuple[Any, ...]]] = [
            [(at, "one"), (at + 4, "one"), (at + 100, "one")],
            [(at,), (at + 4, "two"), (at + 100,)],
        ]
        for rows in own[: 1 + at % 2]:
            apply(model, base, rows)
        written = [write_generation(base, shard, n, rows) for n, rows in enumerate(own[: 1 + at % 2], 1)]
        manifests.append(manifest_of(shard, written))
    report = merge_generations(base, manifests, ThreadRunner(), divided=True)
    assert (report.shards, report.generations) == (4, 6)
    assert contents(base.latest()) == model
    assert [progress(base, shard) for shard in SHARDS] == [1, 2, 1, 2]
    assert unreferenced(base) == set()


def test_the_next_run_of_every_shard_is_merged_in_one_round() -> None:
    def task(shard: int, number: int) -> MergeTask:
        flushed = FlushedGeneration(number, f"g{number}", physical_rows=10)
        return MergeTask(None, SHARDS[shard], (flushed,), number - 1)  # type: ignore[arg-type]

    tasks = [task(0, 1), task(0, 2), task(1, 1), task(2, 1), task(2, 2), task(2, 3)]

    def rounds(max_rows: int) -> list[list[tuple[int, int]]]:
        groups = merge_rounds(tasks, max_rows=max_rows)
        return [
            [(SHARDS.index(one.shard_id), one.last_generation) for one in step]
            for group in groups
            for step in group.steps
        ]

    assert rounds(100) == [[(0, 1), (1, 1), (2, 1)], [(0, 2), (2, 2)], [(2, 3)]]
    assert rounds(20) == [[(0, 1), (1, 1)], [(2, 1)], [(0, 2), (2, 2)], [(2, 3)]]


def test_a_key_in_two_shards_is_there_once(tmp_path: Path) -> None:
    base = new_table(tmp_path, rows=START)
    tasks = [
        task_of(base, shard, write_generation(base, shard, 1, [(50, f"{at}")]))
        for at, shard in enumerate(SHARDS[:2])
    ]
    merge_runs(tasks, runner=ThreadRunner())
    assert contents(base.latest())[(50,)] == (50, "1")
    assert unreferenced(base) == set()


def test_only_what_a_winner_has_changed_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = new_table(tmp_path, rows=START)
    for first in (100, 200):
        rows = table_of(base.schema, [(first + n, "appended") for n in range(10)]).cast(base.schema)
        lance.write_dataset(rows, base.uri, mode="append")
    base = base.latest()
    task = task_of(base, SHARDS[0], write_generation(base, SHARDS[0], 1, [(1, "new"), (101,), (201, "new")]))
    seen: list[Any] = []

    class Watched(ThreadRunner):
        def run(self, function: Any, tasks: Sequence[Any]) -> Iterator[Any]:
            seen.extend(getattr(one, "fragment_ids", "rows") for one in tasks)
            yield from super().run(function, tasks)
            if tasks and len(seen) == 3:
                # Between the waves and the commit: a row of one fragment, and a new fragment.
                lance.dataset(base.uri).update({"value": "'by hand'"}, where="id = 101")

    merge_runs([task], runner=Watched())
    assert seen == ["rows", (0,), (1, 2), (1, 3)]
    after = contents(base.latest())
    assert (101,) not in after
    assert after[(1,)] == (1, "new")
    assert unreferenced(base) == set()


class Elsewhere(ThreadRunner):
    """Runs tasks as another process would: what goes there and comes back is a copy."""

    def run(self, function: Any, tasks: Sequence[Any]) -> Iterator[Any]:
        for found in super().run(function, pickle.loads(pickle.dumps(tasks))):
            yield pickle.loads(pickle.dumps(found))


def test_rows_that_were_written_elsewhere_are_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = new_table(tmp_path, rows=START)
    tasks = [
        task_of(base, shard, write_generation(base, shard, 1, [(at, "new"), (at + 10,)]))
        for at, shard in enumerate(SHARDS)
    ]
    monkeypatch.setattr(new_rows, "ROWS_PER_NEW_FRAGMENT", 4)
    written: list[int] = []
    reach = failpoint.reach

    def interrupt(name: str) -> None:
        if name == "merge.after_rows":
            written.append(1)
        if name == "merge.before_commit" and len(written) == 2:
            lance.dataset(base.uri).update({"value": "'by hand'"}, where="id = 20")
            written.append(0)
        reach(name)

    monkeypatch.setattr(failpoint, "reach", interrupt)
    fragments = {one.fragment_id for one in base.dataset.get_fragments()}
    result = merge_runs(tasks, runner=Elsewhere())
    assert written == [1, 1, 0], "two tasks for four runs, and none again after a row was changed by hand"
    assert (result.shards, result.rows_upserted, result.rows_deleted) == (4, 4, 4)
    after = contents(base.latest())
    assert [after[(key,)][1] for key in (0, 3, 20)] == ["new", "new", "by hand"]
    assert not {(key,) for key in range(10, 14)} & after.keys()
    kept = {one.fragment_id for one in base.latest().dataset.get_fragments()} - fragments
    assert len(kept) == 3, "one of each task, and that of the change by hand"


class Stuttering(ThreadRunner):
    """Brings every answer twice: the same, or that of another run of the task."""

    def __init__(self, *, runs_twice: bool) -> None:
        super().__init__()
        self._runs_twice = runs_twice

    def run(self, function: Any, tasks: Sequence[Any]) -> Iterator[Any]:
        for task in tasks:
            answer = function(task)
            yield answer
            yield function(task) if self._runs_twice else answer


@pytest.mark.parametrize("runs_twice", [True, False])
def test_an_answer_that_comes_twice_counts_once(
    tmp_path: Path, runs_twice: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merged_keys, "_INLINE_BYTES", 0)
    base = new_table(tmp_path, rows=START)
    model = contents(base)
    rows: list[Row | Key] = [(1, "new"), (2,), (50, "new")]
    apply(model, base, rows)
    task = task_of(base, SHARDS[0], write_generation(base, SHARDS[0], 1, rows))
    result = merge_runs([task], runner=Stuttering(runs_twice=runs_twice))
    assert (result.rows_upserted, result.rows_deleted) == (2, 1)
    assert contents(base.latest()) == model
    assert unreferenced(base) == set()


class Silent(ThreadRunner):
    """Loses the last answer of a kind of task."""

    def __init__(self, function: str) -> None:
        super().__init__()
        self._function = function

    def run(self, function: Any, tasks: Sequence[Any]) -> Iterator[Any]:
        found = list(super().run(function, tasks))
        yield from found[:-1] if function.__name__ == self._function else found


@pytest.mark.parametrize("function", ["write_new_rows", "delete_replaced_rows"])
def test_an_answer_that_never_comes_is_told_and_nothing_is_committed(tmp_path: Path, function: str) -> None:
    base = new_table(tmp_path, rows=START)
    before = contents(base)
    task = task_of(base, SHARDS[0], write_generation(base, SHARDS[0], 1, [(1, "new"), (2,)]))
    with pytest.raises(RunnerError, match="has not answered"):
        merge_runs([task], runner=Silent(function))
    assert base.latest().version == base.version
    assert contents(base.latest()) == before


def test_what_may_have_been_published_is_never_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = new_table(tmp_path, rows=START)
    task = task_of(base, SHARDS[0], write_generation(base, SHARDS[0], 1, [(1, "new"), (2,)]))

    def answer_lost(*arguments: Any) -> None:
        commit_rows(*arguments)
        raise OSError("the answer was lost")

    monkeypatch.setattr("weir.merge.waves.commit_rows", answer_lost)
    with pytest.raises(OSError, match="answer was lost"):
        merge_runs([task], runner=ThreadRunner())
    assert progress(base, SHARDS[0]) == 1
    assert contents(base.latest())[(1,)] == (1, "new")


def test_a_library_that_has_changed_merges_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(*_: Any) -> None:
        raise TypeError("delete_rows() takes other arguments now")

    base = new_table(tmp_path, rows=START)
    task = task_of(base, SHARDS[0], write_generation(base, SHARDS[0], 1, [(1, "new"), (2,)]))
    assert rows_can_be_committed()
    rows_can_be_committed.cache_clear()
    monkeypatch.setattr(row_commit, "without_rows", changed)
    try:
        assert not rows_can_be_committed()
        result = merge_runs([task], runner=ThreadRunner())
    finally:
        rows_can_be_committed.cache_clear()
    assert result.version == base.version + 2, "as the library does: deletes, then rows"
    assert progress(base, SHARDS[0]) == 1


def test_a_commit_keeps_fragments_rows_and_the_progress_of_others(tmp_path: Path) -> None:
    base = new_table(tmp_path, rows=START)
    manifest = read_manifest(base.store, base.version)
    left = without_rows(base.dataset, 0, np.array([0, 1, 1]))
    assert left is not None
    marks = [MergedGeneration(SHARDS[0], 3), MergedGeneration(SHARDS[1], 4)]
    assert commit_rows(base.store, manifest, RowChange([left], []), marks) == base.version + 1
    after = base.latest()
    assert len(contents(after)) == 38
    gone = FragmentLeft(0, None, 38)
    newer = [MergedGeneration(SHARDS[1], 9)]
    manifest = read_manifest(base.store, after.version)
    assert commit_rows(base.store, manifest, RowChange([gone], []), newer) == after.version + 1
    after = after.latest()
    assert contents(after) == {}
    assert [after.details.merged_generation(shard) for shard in SHARDS[:2]] == [3, 9]


def test_many_pages_are_swept_as_few_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 30_000
    values = np.random.default_rng(0).permutation(rows)
    base = new_table(tmp_path, rows=[(int(n), "base") for n in values])
    base = extend_key_index(base)
    keys = [int(n) for n in values[::7]]
    task = task_of(base, SHARDS[0], write_generation(base, SHARDS[0], 1, [(n, "new") for n in keys]))
    monkeypatch.setattr("weir.base.key_pages._SWEPT_PAGES", 2)
    scanned: list[int] = []
    monkeypatch.setattr(replaced_rows, "_scanned", lambda *_: scanned.append(1))
    result = merge_runs([task], runner=ThreadRunner())
    assert (result.rows_upserted, scanned) == (len(keys), [])
    after = base.latest().dataset
    assert after.count_rows() == rows
    assert after.count_rows("value = 'new'") == len(keys)


@pytest.mark.parametrize(
    ("rows", "base_rows", "key", "unindexed", "is_distributed", "expected"),
    [
        (1_000, 4_000, "id", 0, False, True),
        (999, 4_000, "id", 0, False, False),
        (1_001, 4_000, "id", 0, False, False),
        (1_000, 4_000, "id", 1_000, False, True),
        (1_000, 4_000, "id", 1_001, False, False),
        (1_000, 4_000, "value", 4_000, False, False),
        (1_000, 50_000, "text", 0, False, True),
        (1_001, 50_000, "text", 0, False, False),
        (99_999, 4_000, "value", 4_000, True, False),
        (100_000, 4_000, "value", 4_000, True, True),
    ],
)
def test_merges_are_divided_where_it_pays(
    tmp_path: Path, rows: int, base_rows: int, key: str, unindexed: int, is_distributed: bool, expected: bool
) -> None:
    ids = pa.array(range(base_rows), pa.int64())
    data = pa.table({"id": ids, "value": ids.cast(pa.string())})
    names = {"id": ("id",), "text": ("value",), "value": ("id", "value")}[key]
    base = create_base_table(
        new_store(tmp_path), data.schema, names, initial_data=data.slice(0, base_rows - unindexed)
    )
    base = extend_key_index(base) if unindexed < base_rows else base
    if unindexed:
        rest = data.slice(base_rows - unindexed).cast(base.schema)
        lance.write_dataset(rest, base.uri, mode="append")
    assert pays_to_divide(base.latest(), rows, base_rows, is_distributed=is_distributed) is expected


class FarAway:
    """Runs tasks as other machines would, and tells of which function and how many at once."""

    is_distributed = True

    def __init__(self) -> None:
        self.ran: list[tuple[str, int]] = []

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
        self.ran.append((function.__name__, len(tasks)))
        for task in tasks:
            yield pickle.loads(pickle.dumps(function))(pickle.loads(pickle.dumps(task)))


@pytest.mark.parametrize(
    ("rows", "divided", "expected"),
    [
        (1_000, None, [("_run_divided", 1)]),
        (900, None, [("run_merge_group", 1)]),
        (1_000, True, [("write_new_rows", 1), ("delete_replaced_rows", 1)]),
        (1_000, False, [("run_merge_group", 1)]),
    ],
)
def test_a_small_merge_is_one_task_of_another_machine(
    tmp_path: Path, rows: int, divided: bool | None, expected: list[tuple[str, int]]
) -> None:
    ids = pa.array(range(0, 8_000, 2), pa.int64())
    lance.write_dataset(pa.table({"id": ids, "value": ids}), tmp_path / "t")
    table = weir.adopt(tmp_path / "t", primary_key="id", shard_by=weir.bucket("id", 2), fsync=False)
    with table.writer() as writer:
        writer.upsert([{"id": number, "value": -1} for number in range(1, rows - 9)])
        writer.delete([{"id": number} for number in range(4_000, 4_010)])
    runner = FarAway()
    report = table.maintenance.merge(runner=runner, divided=divided)
    assert runner.ran == expected
    assert (report.shards, report.rows_upserted) == (2, rows - 10)
    model = {number: number for number in range(0, 8_000, 2) if not 4_000 <= number < 4_010}
    model |= dict.fromkeys(range(1, rows - 9), -1)
    found = lance.dataset(str(tmp_path / "t")).to_table()
    assert dict(zip(*(found.column(name).to_pylist() for name in ("id", "value")), strict=True)) == model
    assert found.num_rows == len(model)


@pytest.mark.parametrize(("rows", "commits"), [(80, 1), (20, 2)], ids=["many rows", "few rows"])
def test_a_merge_is_divided_by_itself_where_it_pays(
    tmp_path: Path, rows: int, commits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weir.merge.commit, "_ROWS_TO_DIVIDE", 80)
    base = extend_key_index(new_table(tmp_path, rows=[(number, "base") for number in range(400)]))
    model = contents(base)
    written: list[Row | Key] = [(number,) if number % 2 else (number, "new") for number in range(rows)]
    apply(model, base, written)
    manifest = manifest_of(SHARDS[0], [write_generation(base, SHARDS[0], 1, written)])
    seen: list[int] = []
    reach = failpoint.reach
    monkeypatch.setattr(
        failpoint, "reach", lambda name: seen.append(1) if name == "merge.between_passes" else reach(name)
    )
    report = merge_generations(base, [manifest], ThreadRunner())
    assert (report.rows_upserted, report.rows_deleted) == (rows // 2, rows // 2)
    assert len(seen) == commits - 1, "the library deletes first, and writes then"
    assert contents(base.latest()) == model


@pytest.mark.parametrize(("first", "is_divided"), [(400, True), (-150, True), (399, False)])
def test_many_rows_that_replace_none_are_merged_by_tasks(
    tmp_path: Path, first: int, is_divided: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weir.merge.commit, "_ROWS_TO_DIVIDE", 80)
    monkeypatch.setattr(weir.merge.commit, "ROWS_PER_NEW_FRAGMENT", 100)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("value", pa.string())])
    table = weir.create(tmp_path / "table", schema, primary_key="id", fsync=False)
    seen: list[str] = []
    monkeypatch.setattr(failpoint, "reach", seen.append)
    model: dict[int, str] = {}
    for keys, value in ((range(400), "base"), (range(first, first + 150), "new")):
        with table.writer() as writer:
            writer.upsert(pa.table({"id": list(keys), "value": [value] * len(keys)}, schema=schema))
        model |= dict.fromkeys(keys, value)
        seen.clear()
        assert table.maintenance.merge().rows_upserted == len(keys)
    assert ("merge.between_waves" in seen) is is_divided
    assert dict(zip(*table.scan().to_table().to_pydict().values(), strict=True)) == model


def test_many_new_rows_of_a_key_of_several_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of such a key no bounds are known, and the rows are merged all the same."""
    monkeypatch.setattr(weir.merge.commit, "_ROWS_TO_DIVIDE", 80)
    monkeypatch.setattr(weir.merge.commit, "ROWS_PER_NEW_FRAGMENT", 100)
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), pa.field("part", pa.string(), nullable=False)]
    )
    table = weir.create(tmp_path / "table", schema, primary_key=["id", "part"], fsync=False)
    for keys in (range(400), range(400, 550)):
        with table.writer() as writer:
            writer.upsert(pa.table({"id": list(keys), "part": ["a"] * len(keys)}, schema=schema))
        assert table.maintenance.merge().rows_upserted == len(keys)
    assert table.scan().count() == 550

"""Segments of the key index that a merge builds before its rows are committed: right, or not used."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.dataset import Index
from lance.file import LanceFileReader
from tests.crashes import kill_at
from tests.merge.test_waves import Elsewhere, Stuttering
from tests.storage.s3 import S3Endpoint, s3_endpoint
from tests.test_clones import CLONES

import weir
from weir.base import early_segments, key_index
from weir.base.alter import alter_base_table
from weir.base.alteration import Alteration
from weir.base.dataset import library_options
from weir.base.details_commit import update_details
from weir.base.key_index import MAX_SEGMENTS
from weir.base.manifest import read_manifest
from weir.base.table import BaseTable
from weir.base.versions import remove_versions
from weir.engine import failpoint
from weir.engine.runner import Runner, ThreadRunner
from weir.errors import StorageError
from weir.format.table_manifest import decode_files
from weir.merge import new_rows, service
from weir.merge.plan import plan_merge
from weir.storage.local import LocalStore

__all__ = ["s3_endpoint"]

KEYS: dict[str, tuple[pa.DataType, Callable[[int], object]]] = {
    "integer": (pa.int64(), lambda n: n),
    "text": (pa.string(), lambda n: f"key {n}"),
    "decimal": (pa.decimal128(12, 2), lambda n: Decimal(n) / 4),
}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch.setattr)


def make_small(change: Callable[[Any, str, Any], None]) -> None:
    """Have merges of a few rows write many fragments, and build several segments."""
    change(new_rows, "ROWS_PER_NEW_FRAGMENT", 1)
    change(early_segments, "_LEAST_ROWS", 1)
    change(early_segments, "_ROWS_PER_SEGMENT", 10)


def new_table(uri: str, kind: str = "integer", **options: Any) -> weir.Table:
    type_, _ = KEYS[kind]
    schema = pa.schema([pa.field("id", type_, nullable=False), ("value", pa.string())])
    options.setdefault("fsync", kind == "text")
    return weir.create(uri, schema, primary_key="id", shard_by=weir.bucket("id", 4), **options)


def write(table: weir.Table, numbers: Sequence[int], value: str, kind: str = "integer") -> None:
    type_, made = KEYS[kind]
    keys = pa.array([made(number) for number in numbers], type_)
    with table.writer() as writer:
        writer.upsert(pa.table({"id": keys, "value": [value] * len(numbers)}))


def merge(table: weir.Table, runner: Runner | None = None) -> None:
    table.maintenance.merge(runner=runner or ThreadRunner(), divided=True)


def base_of(table: weir.Table) -> BaseTable:
    return BaseTable.open(table.internals.store)


def segments(base: BaseTable, column: str = "id") -> list[tuple[str, set[int]]]:
    described = {index.name: index for index in base.dataset.describe_indices()}
    return [(str(one.uuid), set(one.fragment_ids)) for one in described[f"{column}_idx"].segments]


def check(table: weir.Table, column: str = "id") -> None:
    """Compare what every segment names with the rows of its fragments, and the index with the fragments."""
    base = base_of(table)
    options = library_options(base.store)
    there = {one.fragment_id: one for one in base.dataset.get_fragments()}
    covered: list[int] = []
    for uuid, numbers in segments(base, column):
        place = f"{base.uri}/_indices/{uuid}/page_data.lance"
        pages = LanceFileReader(place, storage_options=options).read_all().to_table()
        found = dict(zip(pages["ids"].to_pylist(), pages["values"].to_pylist(), strict=True))
        covered += numbers & there.keys()
        for number in numbers & there.keys():
            rows = there[number].scanner(columns=[column], with_row_address=True).to_table()
            model = dict(zip(rows["_rowaddr"].to_pylist(), rows[column].to_pylist(), strict=True))
            named = {address: value for address, value in found.items() if address >> 32 == number}
            # A segment may still name rows that were deleted since.
            assert model.items() <= named.items()
            assert len(named) == there[number].physical_rows
        assert {address >> 32 for address in found} <= numbers
    assert sorted(covered) == sorted(there), "every fragment in exactly one segment"
    assert table.maintenance.verify().passed


def unreferenced(base: BaseTable) -> set[str]:
    """Return the files of indexes that no version refers to."""
    there = {one.path for one in base.store.list("_indices")}
    dataset = lance.dataset(base.uri, storage_options=library_options(base.store))
    for version in dataset.versions():
        files = decode_files(read_manifest(base.store, version["version"]).data, where="")
        there -= {one.path for one in files.indexes}
    return there


def refuse_to_build(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*_: object) -> None:
        raise AssertionError("everything has been built early")

    monkeypatch.setattr(key_index, "_built", build)


@pytest.mark.covering
@pytest.mark.parametrize("runner", [ThreadRunner(), Elsewhere(), Stuttering(runs_twice=True)])
@pytest.mark.parametrize("kind", KEYS)
def test_what_is_indexed_are_the_keys_of_the_fragments(
    tmp_path: Path, kind: str, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(str(tmp_path / "t"), kind)
    write(table, range(40), "first", kind)
    merge(table)
    refuse_to_build(monkeypatch)
    write(table, range(20, 80), "second", kind)
    merge(table, runner)
    check(table)
    base = base_of(table)
    assert len(segments(base)) >= 3, "several were built in parallel"
    assert unreferenced(base) == set()
    assert table.scan().count() == 80


def test_columns_of_a_composite_key_and_of_an_altered_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([("gone", pa.int8()), ("a", pa.int64()), ("b", pa.string()), ("value", pa.string())])
    table = weir.create(str(tmp_path / "t"), schema, primary_key=["a", "b"], fsync=False)

    def rows(numbers: range) -> pa.Table:
        return pa.table(
            {"a": [n // 7 for n in numbers], "b": [f"{n}" for n in numbers], "more": list(numbers)}
        )

    table.alter(drop=["gone"], add=[pa.field("more", pa.int64())])
    for numbers in (range(30), range(20, 60)):
        with table.writer() as writer:
            writer.upsert(rows(numbers))
        merge(table)
        refuse_to_build(monkeypatch)
    check(table, "a")
    check(table, "b")
    assert table.scan().count() == 60


def at_commit(monkeypatch: pytest.MonkeyPatch, others: Callable[[], object]) -> None:
    """Have others commit once, right before a merge does."""
    reach = failpoint.reach
    todo = [others]

    def interrupt(name: str) -> None:
        if name == "merge.before_commit" and todo:
            todo.pop()()
        reach(name)

    monkeypatch.setattr(failpoint, "reach", interrupt)


@pytest.mark.parametrize("runner", [ThreadRunner(), Elsewhere()])
def test_segments_of_fragments_that_got_other_numbers_are_not_used(
    tmp_path: Path, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(str(tmp_path / "t"))
    write(table, range(40), "first")
    merge(table)
    write(table, range(20, 80), "second")
    base = base_of(table)
    extra = pa.table({"id": range(1_000, 1_010), "value": ["by hand"] * 10}, base.schema)
    at_commit(monkeypatch, lambda: lance.write_dataset(extra, base.uri, mode="append"))
    built: list[set[int]] = []
    build = key_index._built

    def watched(base: BaseTable, column: str, name: str, fragment_ids: set[int]) -> Index:
        built.append(fragment_ids)
        return build(base, column, name, fragment_ids)

    monkeypatch.setattr(key_index, "_built", watched)
    merge(table, runner)
    there = {one.fragment_id for one in base_of(table).dataset.get_fragments()}
    assert built == [there - {one.fragment_id for one in base.dataset.get_fragments()}], "all built again"
    monkeypatch.undo()
    check(table)
    assert unreferenced(base) == set()
    assert table.scan().count() == 90


def test_segments_outlast_a_commit_that_leaves_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(str(tmp_path / "t"))
    write(table, range(40), "first")
    merge(table)
    write(table, range(20, 80), "second")
    base = base_of(table)
    at_commit(monkeypatch, lambda: lance.dataset(base.uri).delete("id IN (1, 25)"))
    refuse_to_build(monkeypatch)
    merge(table)
    check(table)
    assert unreferenced(base) == set()
    assert table.scan().count() == 79


def a_column_more(base: BaseTable) -> None:
    alter_base_table(base.latest(), Alteration.of(add=[pa.field("more", pa.int64())]))


def other_details(base: BaseTable) -> None:
    update_details(base.latest(), lambda old: replace(old, num_shards=7))


@pytest.mark.parametrize("others", [a_column_more, other_details])
def test_a_merge_that_lost_a_race_is_indexed_all_the_same(
    tmp_path: Path, others: Callable[[BaseTable], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(str(tmp_path / "t"))
    write(table, range(40), "first")
    merge(table)
    write(table, range(20, 80), "second")
    base = base_of(table)
    at_commit(monkeypatch, lambda: others(base))
    merge(table)
    check(table)
    assert unreferenced(base) == set()


def merge_small(uri: str) -> None:
    make_small(setattr)
    merge(weir.open(uri, fsync=False))


@pytest.mark.parametrize("place", ["merge.before_commit", "merge.after_commit"])
def test_segments_of_a_killed_merge_are_not_used_and_are_collected(tmp_path: Path, place: str) -> None:
    table = new_table(str(tmp_path / "t"))
    write(table, range(40), "first")
    merge(table)
    write(table, range(20, 80), "second")
    before = base_of(table)
    kill_at(place, merge_small, table.uri)
    left = unreferenced(before)
    assert len(left) >= 4, "two files each"
    assert segments(base_of(table)) == segments(before)
    merge(table)
    check(table)
    assert unreferenced(before) == left
    # Lance takes what is younger for work in progress.
    eight_days_ago = time.time() - 8 * 86_400
    for one in left:
        os.utime(Path(before.uri) / one, (eight_days_ago, eight_days_ago))
    remove_versions(before.store, [1])
    assert unreferenced(base_of(table)) == set()
    check(table)
    assert table.scan().count() == 80


def test_what_cannot_be_built_early_is_built_after_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(str(tmp_path / "t"))
    write(table, range(40), "first")
    merge(table)
    write(table, range(20, 80), "second")
    put = LocalStore.put

    def full(self: LocalStore, path: str, data: Any) -> None:
        if path.startswith("_indices/"):
            raise StorageError("no space left on device", where=path)
        put(self, path, data)

    monkeypatch.setattr(LocalStore, "put", full)
    merge(table)
    check(table)
    assert max(len(covered) for _, covered in segments(base_of(table))) >= 4, "all in one"


class Losing(ThreadRunner):
    """Loses the answers about segments."""

    def run(self, function: Any, tasks: Sequence[Any]) -> Iterator[Any]:
        return (
            one for one in super().run(function, tasks) if not isinstance(one, early_segments.EarlySegment)
        )


def test_a_segment_without_an_answer_is_built_after_the_commit(tmp_path: Path) -> None:
    table = new_table(str(tmp_path / "t"))
    write(table, range(40), "first")
    merge(table)
    write(table, range(20, 80), "second")
    merge(table, Losing())
    check(table)
    assert len(unreferenced(base_of(table))) >= 4


def test_many_merges_keep_few_segments(tmp_path: Path) -> None:
    table = new_table(str(tmp_path / "t"))
    draw = np.random.default_rng(1)
    for number in range(12):
        write(table, draw.choice(400, size=60, replace=False).tolist(), f"{number}")
        merge(table)
        assert len(segments(base_of(table))) <= MAX_SEGMENTS + 1
        check(table)


def test_several_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later rounds replace rows of the fragments that earlier ones have written and indexed."""
    table = new_table(str(tmp_path / "t"))
    for number in range(3):
        write(table, range(10 * number, 10 * number + 40), f"{number}")
    version = base_of(table).version
    monkeypatch.setattr(service, "plan_merge", lambda *given, **_: plan_merge(*given, max_task_bytes=1))
    assert table.maintenance.merge(runner=ThreadRunner(), divided=True).generations >= 12
    assert base_of(table).version >= version + 4, "three rounds and the index"
    check(table)
    assert unreferenced(base_of(table)) == set()
    assert table.scan().count() == 60


@pytest.mark.parametrize("make", CLONES)
def test_clones_and_branches(
    tmp_path: Path, make: Callable[[weir.Table, Path], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their fragments and segments are in several places."""
    original = new_table(str(tmp_path / "t"))
    write(original, range(40), "first")
    merge(original)
    clone = weir.open(make(original, tmp_path / "clone"), fsync=False)
    for number, numbers in enumerate((range(20, 80), range(70, 120))):
        write(clone, numbers, f"{number}")
        refuse_to_build(monkeypatch)
        merge(clone)
        assert clone.scan().count() == numbers.stop
        assert clone.get(list(range(200))).num_rows == numbers.stop
        assert base_of(clone).dataset.to_table(filter="id IN (5, 25, 75)").num_rows == 3
    assert clone.maintenance.verify().passed
    assert unreferenced(base_of(clone)) == set()
    assert original.scan().count() == 40


def test_on_an_object_store(s3_endpoint: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_MAINTENANCE", "off")
    table = new_table(s3_endpoint.new_uri(), storage_options=s3_endpoint.options)
    write(table, range(40), "first")
    merge(table)
    refuse_to_build(monkeypatch)
    write(table, range(20, 80), "second")
    merge(table, Elsewhere())
    check(table)
    assert len(segments(base_of(table))) >= 3
    assert unreferenced(base_of(table)) == set()

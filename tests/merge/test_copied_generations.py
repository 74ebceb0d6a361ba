"""Merges that copy the files of large generations: what is copied, what is not; races, losses, readers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from tests.crashes import kill_at
from tests.merge.conftest import in_waves
from tests.merge.test_merge_races import interrupted
from tests.merge.test_waves import unreferenced
from tests.storage.s3 import S3Endpoint, s3_endpoint

import weir
from weir.base.table import BaseTable
from weir.errors import StorageError
from weir.merge import copied_generations
from weir.merge.merge_insert import merge_by_library
from weir.merge.plan import MergeTask, plan_merge
from weir.storage.local import LocalStore

__all__ = ["s3_endpoint"]

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("parts", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])),
        ("v", pa.list_(pa.float32(), 4)),
    ]
)
Model = dict[int, dict[str, Any]]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have generations of three rows copied."""
    monkeypatch.setattr(copied_generations, "_LEAST_ROWS", 3)


def rows(first: int, last: int, name: str) -> list[dict[str, Any]]:
    return [
        {"id": n, "name": f"{name}{n}", "parts": {"a": n, "b": [name]}, "v": [float(n)] * 4}
        for n in range(first, last)
    ]


def written(table: weir.Table, new: list[dict[str, Any]], model: Model) -> None:
    with table.writer() as writer:
        writer.upsert(new)
        writer.flush()
    model.update({row["id"]: row for row in new})


def shown(table: weir.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.scan().to_table().sort_by("id").to_pylist()
    return found


def of(model: Model) -> list[dict[str, Any]]:
    return [model[key] for key in sorted(model)]


def copies(uri: str) -> int:
    """Return how many data files of the base table are those of generations too."""
    of_generations = {os.stat(path).st_ino for path in Path(uri, "_mem_wal").glob("*/*/data/*")}
    return sum(os.stat(path).st_ino in of_generations for path in Path(uri, "data").iterdir())


def tasks_of(table: weir.Table) -> tuple[BaseTable, tuple[MergeTask, ...]]:
    snapshot = table.internals.reader.take_newest()
    manifests = [view.manifest for view in snapshot.shards]
    return snapshot.base, plan_merge(table.internals.store, snapshot.base.details, manifests)


def test_files_of_whole_generations_are_copied_and_the_others_written(tmp_path: Path) -> None:
    table = weir.create(str(tmp_path / "table"), SCHEMA, primary_key="id", shard_by=weir.bucket("id", 2))
    model: Model = {}
    written(table, rows(0, 40, "a"), model)
    report = table.maintenance.merge(divided=True)
    assert (report.rows_upserted, copies(table.uri)) == (40, 2)
    # A run of two generations of which the later one replaces some rows of the earlier one, and deletes.
    written(table, rows(30, 60, "b"), model)
    written(table, rows(50, 70, "c"), model)
    table.delete([1, 55])
    del model[1], model[55]
    with table.writer() as writer:
        writer.flush()
    assert shown(table) == of(model)
    table.maintenance.merge(divided=True)
    assert copies(table.uri) == 3, "the later generation of the shard that lost no row of it"
    dataset = lance.dataset(table.uri)
    dataset.validate()  # type: ignore[no-untyped-call]
    assert dataset.to_table().sort_by("id").to_pylist() == of(model) == shown(table)
    assert not table.maintenance.verify().findings
    assert dataset.to_table(filter="name = 'c60'").num_rows == 1
    table.maintenance.compact()
    dataset = lance.dataset(table.uri)
    assert {
        number for one in dataset.get_fragments() for file in one.metadata.files for number in file.fields
    } == {field.id() for field in _leaves(dataset.lance_schema.fields())}
    assert shown(table) == of(model)


def _leaves(fields: list[Any]) -> list[Any]:
    return [leaf for one in fields for leaf in (_leaves(one.children()) or [one])]


ALTERED: dict[str, Callable[[weir.Table], object]] = {
    "more": lambda table: table.alter(add=[pa.field("more", pa.int64())]),
    "renamed": lambda table: table.alter(rename={"name": "called"}),
    "dropped": lambda table: table.alter(drop=["name"]),
    "widened": lambda table: table.alter(widen={"name": pa.large_string()}),
}


@pytest.mark.parametrize("change", ALTERED)
def test_generations_with_other_columns_are_written_anew(tmp_path: Path, change: str) -> None:
    table = weir.create(str(tmp_path / "table"), SCHEMA, primary_key="id")
    written(table, rows(0, 20, "a"), {})
    ALTERED[change](table)
    before = shown(table)
    table.maintenance.merge(divided=True)
    assert copies(table.uri) == 0
    assert shown(table) == before == lance.dataset(table.uri).to_table().sort_by("id").to_pylist()


def test_columns_that_are_stored_otherwise_are_written_anew(tmp_path: Path) -> None:
    first = pa.Table.from_pylist(rows(0, 3, "a"), schema=SCHEMA)
    path = str(tmp_path / "table")
    lance.write_dataset(first, path, data_storage_version="2.1")
    table = weir.adopt(path, primary_key="id")
    model: Model = {row["id"]: row for row in rows(0, 3, "a")}
    written(table, rows(2, 20, "b"), model)
    table.maintenance.merge(divided=True)
    assert copies(table.uri) == 0
    assert shown(table) == of(model)


def test_a_store_that_does_not_copy_has_rows_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: LocalStore, source: str, target: str) -> None:
        raise StorageError("no links here", where=target)

    monkeypatch.setattr(LocalStore, "copy", refuse)
    table = weir.create(str(tmp_path / "table"), SCHEMA, primary_key="id")
    model: Model = {}
    written(table, rows(0, 20, "a"), model)
    assert table.maintenance.merge(divided=True).rows_upserted == 20
    assert shown(table) == of(model)
    assert copies(table.uri) == 0


def test_rows_that_are_only_added_are_copied(tmp_path: Path) -> None:
    table = weir.create(str(tmp_path / "table"), SCHEMA, primary_key="id", dedup=False)
    want = []
    for first in (0, 2, 10):
        want += rows(first, first + 4, f"{first}.")
        written(table, rows(first, first + 4, f"{first}."), {})
    written(table, rows(7, 8, "few"), {})
    want += rows(7, 8, "few")
    assert table.maintenance.merge().rows_upserted == 13
    assert copies(table.uri) == 3
    found = lance.dataset(table.uri).to_table().to_pylist()
    assert sorted(found, key=str) == sorted(want, key=str)
    assert sorted(table.scan().to_table().to_pylist(), key=str) == sorted(want, key=str)


def a_delete(table: weir.Table) -> None:
    lance.dataset(table.uri).delete("id = 5")


def a_compaction(table: weir.Table) -> None:
    lance.dataset(table.uri).optimize.compact_files()


def a_column_more(table: weir.Table) -> None:
    table.alter(add=[pa.field("more", pa.int64())])


def the_same_in_waves(table: weir.Table) -> None:
    base, tasks = tasks_of(table)
    in_waves(tasks, base)


def the_same_by_the_library(table: weir.Table) -> None:
    base, tasks = tasks_of(table)
    merge_by_library(tasks, base)


@pytest.mark.parametrize(
    "place", ["merge.before_commit", pytest.param("merge.between_waves", marks=pytest.mark.long)]
)
@pytest.mark.parametrize(
    "winner",
    [a_delete, a_compaction, a_column_more, the_same_in_waves, the_same_by_the_library],
    ids=lambda one: one.__name__,
)
def test_what_was_copied_in_vain_is_deleted_and_nothing_else(
    tmp_path: Path, winner: Callable[[weir.Table], None], place: str
) -> None:
    table = weir.create(str(tmp_path / "table"), SCHEMA, primary_key="id")
    model: Model = {}
    written(table, rows(0, 10, "a"), model)
    table.maintenance.merge()
    written(table, rows(8, 30, "b"), model)
    if winner is a_delete:
        del model[5]
    base, tasks = tasks_of(table)
    with interrupted(place, lambda: winner(table)):
        result = in_waves(tasks, base)
    assert result.was_already_merged == winner.__name__.startswith("the_same")
    table = weir.open(table.uri)
    names = SCHEMA.names
    assert table.scan(names).to_table().sort_by("id").to_pylist() == of(model)
    assert lance.dataset(table.uri).to_table(columns=names).sort_by("id").to_pylist() == of(model)
    assert unreferenced(base.latest()) == set()
    assert not table.maintenance.verify().findings


def merge_divided(uri: str) -> None:
    copied_generations._LEAST_ROWS = 3
    weir.open(uri).maintenance.merge(divided=True)


def test_a_kill_before_the_commit_loses_nothing(tmp_path: Path) -> None:
    table = weir.create(str(tmp_path / "table"), SCHEMA, primary_key="id")
    model: Model = {}
    written(table, rows(0, 30, "a"), model)
    kill_at("merge.before_commit", merge_divided, table.uri)
    assert copies(table.uri) == 1
    assert shown(weir.open(table.uri)) == of(model)
    table.maintenance.merge(divided=True)
    assert copies(table.uri) == 2, "the one of the killed merge is left to the cleanup"
    # Neither needs the other any more.
    shutil.rmtree(Path(table.uri, "_mem_wal"))
    assert lance.dataset(table.uri).to_table().sort_by("id").to_pylist() == of(model)


def test_on_an_object_store(s3_endpoint: S3Endpoint) -> None:
    uri = f"{s3_endpoint.new_uri()}/table"
    table = weir.create(
        uri,
        SCHEMA,
        primary_key=["id", "name"],
        shard_by=weir.bucket("id", 2),
        storage_options=s3_endpoint.options,
    )
    model: Model = {}
    written(table, rows(0, 20, "a"), model)
    report = table.maintenance.merge(divided=True)
    assert report.rows_upserted == 20
    dataset = lance.dataset(uri, storage_options=s3_endpoint.options)
    hidden = [-2 in file.fields for one in dataset.get_fragments() for file in one.metadata.files]
    assert hidden == [True, True]
    assert shown(table) == of(model) == dataset.to_table().sort_by("id").to_pylist()

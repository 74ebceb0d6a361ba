"""Merges in waves on an object store: the same rows, one commit, few requests, nothing left behind."""

from __future__ import annotations

from uuid import UUID

import lance
import pytest
from tests.base.table_kit import SCHEMA, Key, Row, apply, contents, new_shard, table_of, together
from tests.merge.conftest import in_waves
from tests.merge.test_merge_races import interrupted
from tests.storage.s3 import S3Endpoint, s3_endpoint

from weir.base.create import create_base_table
from weir.base.dataset import library_options
from weir.base.key_index import extend_key_index
from weir.base.manifest import read_manifest
from weir.base.table import BaseTable
from weir.engine.context import default_context
from weir.format import layout
from weir.format.shard_manifest import FlushedGeneration
from weir.format.table_manifest import decode_files
from weir.format.wal_entry import TOMBSTONE
from weir.merge import merged_keys
from weir.merge.plan import MergeTask
from weir.storage.counting import CountingStore
from weir.storage.interface import ObjectStore
from weir.storage.open import open_store

__all__ = ["s3_endpoint"]

FIRST: list[Row] = [(number, "base") for number in range(30)]


def generation(store: ObjectStore, shard: UUID, number: int, rows: list[Row | Key]) -> FlushedGeneration:
    flags = [len(row) == 1 for row in rows]
    table = table_of(SCHEMA, [row if len(row) == 2 else (*row, None) for row in rows])
    table = table.append_column(TOMBSTONE, [flags])
    name = layout.generation_name("0123abcd", number)
    lance.write_dataset(
        table,
        f"{store.uri}/{layout.generation_path(shard, name)}",
        storage_options=dict(store.storage_options),
    )
    return FlushedGeneration(number, name, in_memory_bytes=table.nbytes, physical_rows=len(rows))


def unreferenced(base: BaseTable) -> set[str]:
    dataset = lance.dataset(base.uri, storage_options=library_options(base.store))
    there = {one.path for prefix in ("data", "_deletions") for one in base.store.list(prefix)}
    for version in dataset.versions():
        files = decode_files(read_manifest(base.store, version["version"]).data, where="")
        there -= {one.path for one in files.needed}
    return there


@pytest.mark.long
@pytest.mark.parametrize("keys_in_files", [False, True], ids=["inline", "files"])
def test_shards_that_are_merged_at_the_same_time(
    s3_endpoint: S3Endpoint, keys_in_files: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if keys_in_files:
        monkeypatch.setattr(merged_keys, "_INLINE_BYTES", 0)
    store = open_store(s3_endpoint.new_uri(), s3_endpoint.options)
    base = extend_key_index(create_base_table(store, SCHEMA, ("id",), initial_data=table_of(SCHEMA, FIRST)))
    model = contents(base)
    shards = [new_shard() for _ in range(2)]
    work: list[list[MergeTask]] = []
    for at, shard in enumerate(shards):
        tasks = []
        for number in (1, 2):
            rows: list[Row | Key] = [(at + 2 * number, f"{at}.{number}"), (at + 20,), (at + 100, f"{number}")]
            apply(model, base, rows)
            tasks.append(MergeTask(store, shard, (generation(store, shard, number, rows),), number - 1))
        work.append(tasks)

    def merge(tasks: list[MergeTask]) -> None:
        for task in tasks:
            assert not in_waves([task], base).was_already_merged

    together(*(lambda tasks=tasks: merge(tasks) for tasks in work))
    after = base.latest()
    assert contents(after) == model
    assert [after.details.merged_generation(shard) for shard in shards] == [2, 2]
    assert unreferenced(base) == set()


def test_a_commit_of_the_library_comes_in_between(s3_endpoint: S3Endpoint) -> None:
    store = open_store(s3_endpoint.new_uri(), s3_endpoint.options)
    base = create_base_table(store, SCHEMA, ("id",), initial_data=table_of(SCHEMA, FIRST))
    shard = new_shard()
    rows: list[Row | Key] = [(1,), (2, "new"), (40, "new")]
    task = MergeTask(store, shard, (generation(store, shard, 1, rows),), 0)
    model = contents(base)
    apply(model, base, [(2, "by hand"), (3, "by hand"), *rows])

    def by_hand() -> None:
        dataset = lance.dataset(base.uri, storage_options=library_options(store))
        dataset.update({"value": "'by hand'"}, where="id IN (2, 3)")

    with interrupted("merge.before_commit", by_hand):
        assert not in_waves([task], base).was_already_merged
    assert contents(base.latest()) == model
    assert unreferenced(base) == set()


def test_requests_of_a_merge(s3_endpoint: S3Endpoint) -> None:
    store = CountingStore(open_store(s3_endpoint.new_uri(), s3_endpoint.options))
    base = extend_key_index(create_base_table(store, SCHEMA, ("id",), initial_data=table_of(SCHEMA, FIRST)))
    shard = new_shard()
    task = MergeTask(store, shard, (generation(store, shard, 1, [(1,), (2, "new"), (40, "new")]),), 0)
    default_context().cache.clear()
    store.reset()
    in_waves([task], base)
    # Besides the library's: the manifest that the version follows, the transaction and beside it a look
    # whether that manifest is there still, and the version.
    assert dict(store.counts) == {"get": 1, "get_range": 1, "put": 1, "put_if_absent": 1}

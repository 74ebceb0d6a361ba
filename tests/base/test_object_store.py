"""Base tables on an object store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import lance
import pytest
from tests.base.table_kit import SCHEMA, contents, new_shard, table_of
from tests.storage.s3 import S3Endpoint, s3_endpoint

from weir.base.create import adopt_base_table, create_base_table
from weir.base.details_commit import update_details
from weir.base.key_index import extend_key_index
from weir.base.table import BaseTable
from weir.errors import TableExistsError, TableNotFoundError
from weir.format import layout
from weir.format.shard_manifest import FlushedGeneration
from weir.merge.commit import merge_runs
from weir.merge.plan import MergeTask
from weir.storage.interface import ObjectStore
from weir.storage.open import open_store

__all__ = ["s3_endpoint"]


def new_store(s3_endpoint: S3Endpoint) -> ObjectStore:
    return open_store(s3_endpoint.new_uri(), s3_endpoint.options)


def generation(
    store: ObjectStore, shard_id: UUID, number: int, rows: list[tuple[int, str]]
) -> FlushedGeneration:
    name = layout.generation_name("0123abcd", number)
    table = table_of(SCHEMA, rows)
    uri = f"{store.uri}/_mem_wal/{shard_id}/{name}"
    lance.write_dataset(table, uri, storage_options=dict(store.storage_options))
    return FlushedGeneration(number, name, in_memory_bytes=table.nbytes)


def test_a_table_lives_on_an_object_store(s3_endpoint: S3Endpoint) -> None:
    store = new_store(s3_endpoint)
    with pytest.raises(TableNotFoundError):
        BaseTable.open(store)
    base = create_base_table(store, SCHEMA, ("id",), initial_data=table_of(SCHEMA, [(1, "a")]))
    with pytest.raises(TableExistsError):
        create_base_table(store, SCHEMA, ("id",))
    shards = [new_shard() for _ in range(2)]
    failures: list[BaseException] = []

    def merge(shard_id: UUID, first: int) -> None:
        for number in range(1, 4):
            flushed = generation(store, shard_id, number, [(first + number, "m"), (first, f"{number}")])
            merge_runs([MergeTask(store, shard_id, (flushed,), number - 1)])

    def update() -> None:
        for _ in range(4):
            update_details(base, lambda old: replace(old, num_shards=old.num_shards + 1))

    def guarded(work: Callable[..., None], *arguments: object) -> None:
        try:
            work(*arguments)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(merge, shards[at], 10 * (at + 1))) for at in range(2)]
    threads.append(threading.Thread(target=guarded, args=(update,)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    after = extend_key_index(base)
    assert after.details.num_shards == 4
    assert [after.details.merged_generation(shard_id) for shard_id in shards] == [3, 3]
    expected = {1: "a", 10: "3", 20: "3"} | dict.fromkeys((11, 12, 13, 21, 22, 23), "m")
    assert contents(after) == {(key,): (key, value) for key, value in expected.items()}


def test_a_dataset_on_an_object_store_is_adopted(s3_endpoint: S3Endpoint) -> None:
    store = new_store(s3_endpoint)
    options = dict(store.storage_options)
    lance.write_dataset(table_of(SCHEMA, [(1, "a")]), store.uri, storage_options=options)
    assert contents(adopt_base_table(store, ("id",))) == {(1,): (1, "a")}
    assert lance.dataset(store.uri, storage_options=options).mem_wal_index_details() is not None

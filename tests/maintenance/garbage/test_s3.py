"""Garbage collection on an object store: the same objects go, with few requests, by its own clock."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.maintenance.garbage.garbage_kit import HORIZON, SCHEMA, Clock, collect, rows, stored, write
from tests.storage.s3 import S3Endpoint, s3_endpoint

import weir
from weir.engine.context import default_context
from weir.errors import FencedError, SnapshotExpiredError
from weir.storage.counting import CountingStore

__all__ = ["s3_endpoint"]

ENTRIES = 24


def test_main_path(s3_endpoint: S3Endpoint) -> None:
    uri, options = s3_endpoint.new_uri(), s3_endpoint.options
    table = weir.create(uri, SCHEMA, primary_key="id", shard_by=weir.bucket("id", 2), storage_options=options)
    with table.writer() as writer:
        for n in range(ENTRIES):
            writer.upsert([{"id": n % 8, "value": f"round {n}"}, {"id": n % 8 + 8, "value": f"round {n}"}])
    table.maintenance.merge()
    write(table, *range(16), value="old")
    pinned = table.snapshot(retain=timedelta(hours=1))
    sleeper = table.writer(takeover=True)
    sleeper.upsert([{"id": n, "value": "old"} for n in range(16)])
    write(table, *range(16), value="new")
    table.maintenance.merge()

    clock = Clock()
    store = CountingStore(table.internals.store)
    counted = weir.Table(store, type(table.internals.base).open(store))
    store.reset()
    marked = collect(counted, clock)
    assert marked.deleted_objects == 0
    clock.advance(HORIZON)
    store.reset()
    done = collect(counted, clock)
    assert done.deleted_objects >= ENTRIES - 4
    # Of each shard: the log in one call, a generation in two, and manifests one after the other.
    manifests = sum(one.objects for one in done.items if one.kind == "shard manifests" and one.deleted)
    assert store.counts["delete"] <= 2 * 3 + manifests
    assert store.counts.total() <= 72

    default_context().cache.clear()
    elsewhere = weir.open(uri, storage_options=options)
    assert rows(elsewhere) == dict.fromkeys(range(16), "new")
    assert rows(elsewhere, at=pinned) == dict.fromkeys(range(16), "old")
    with pytest.raises(FencedError):
        sleeper.upsert([{"id": n, "value": "late"} for n in range(16)])
    sleeper.__exit__(RuntimeError, RuntimeError("asleep"), None)

    elsewhere.release(pinned)
    for _ in range(2):
        collect(counted, clock, version_retention=HORIZON)
        clock.advance(HORIZON)
    for shard in table.status().shards:
        log, versions, directories = stored(store, shard.shard_id)
        assert (len(log), directories) == (4, [])
        assert len(versions) <= 4
    default_context().cache.clear()
    assert rows(weir.open(uri, storage_options=options)) == dict.fromkeys(range(16), "new")
    with pytest.raises(SnapshotExpiredError):
        rows(weir.open(uri, storage_options=options), at=pinned)


def test_times_are_those_of_the_store(s3_endpoint: S3Endpoint) -> None:
    """Its clock has whole seconds: with no horizon at all the second call deletes."""
    uri, options = s3_endpoint.new_uri(), s3_endpoint.options
    table = weir.create(uri, SCHEMA, primary_key="id", storage_options=options)
    write(table, 1)
    table.maintenance.merge()
    assert table.maintenance.collect_garbage(horizon=timedelta(0)).deleted_objects == 0
    assert table.maintenance.collect_garbage(horizon=timedelta(hours=1)).deleted_objects == 0
    assert table.maintenance.collect_garbage(horizon=timedelta(0)).deleted_objects > 0
    assert rows(weir.open(uri, storage_options=options)) == {1: "x"}

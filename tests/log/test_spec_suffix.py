"""Logs whose entries have the name of the spec's text, `.lance`, and not that of its example."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import weir
from weir.log.manifest_store import list_shards, read_latest_manifest
from weir.log.wal import Wal
from weir.storage.interface import ObjectStore
from weir.storage.open import open_store


class FarAway:
    """A store that takes a while to answer, as Weir believes."""

    is_local = False

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


@pytest.mark.parametrize("is_far", [False, True])
def test_whoever_finds_entries_in_memory_looks_for_the_next_by_its_name(tmp_path: Path, is_far: bool) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    table = weir.create(tmp_path / "t", schema, primary_key="id")
    with table.writer(flush_on_close=False) as writer:
        for number in range(5):
            writer.upsert([{"id": number}])
    for path in (tmp_path / "t").glob("_mem_wal/*/wal/*.arrow"):
        path.rename(path.with_suffix(".lance"))
    store = open_store(str(tmp_path / "t"))
    (shard,) = list_shards(store)
    manifest = read_latest_manifest(store, shard)
    assert manifest is not None
    process = str(tmp_path)
    seen: ObjectStore = FarAway(store) if is_far else store  # type: ignore[assignment]
    first = list(Wal(seen, shard, namespace=process).read_tail(manifest))
    assert sum(one.entry.num_rows for one in first) == 5
    # The last is no longer remembered.
    store.engine.cache.discard([("wal", process, shard.int, first[-1].position)])
    again = list(Wal(seen, shard, namespace=process).read_tail(manifest))
    assert [one.position for one in again] == [one.position for one in first]

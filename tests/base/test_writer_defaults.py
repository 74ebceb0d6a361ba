"""What the library records for writers of a table holds for Weir's too, and nothing recorded is lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import lance
import pyarrow as pa
import pytest

import weir
from weir.base.table import BaseTable
from weir.base.writer_defaults import recorded_options
from weir.errors import OptionError, ShardSealedError
from weir.format.shard_manifest import ShardStatus
from weir.log.manifest_store import read_latest_manifest, update_manifest
from weir.storage.interface import ObjectStore
from weir.storage.open import open_store

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}),
        pa.field("name", pa.string()),
    ]
)


def library_table(path: Path, **options: Any) -> str:
    """Return a table that the library has set up."""
    uri = str(path / "t")
    dataset = lance.write_dataset(pa.table({"id": [1], "name": ["a"]}, schema=SCHEMA), uri)
    dataset.create_scalar_index("name", "BTREE")
    dataset.initialize_mem_wal(bucket_column="id", num_buckets=1, maintained_indexes=["name_idx"], **options)
    return uri


def flushed_generations(uri: str) -> int:
    (shard,) = weir.open(uri).status().shards
    return shard.unmerged_generations


def test_options_the_library_records_are_the_defaults(tmp_path: Path) -> None:
    uri = library_table(tmp_path, max_memtable_rows=14)
    with weir.open(uri, fsync=False).writer(flush_on_close=False) as writer:
        for first in range(0, 30, 5):
            writer.upsert([{"id": one, "name": "x"} for one in range(first, first + 5)])
    # 15 rows are more than 14, twice.
    assert flushed_generations(uri) == 2


def test_an_option_that_is_passed_counts_more(tmp_path: Path) -> None:
    uri = library_table(tmp_path, max_memtable_rows=14)
    with weir.open(uri, fsync=False).writer(flush_on_close=False, max_memtable_rows=1000) as writer:
        for first in range(0, 30, 5):
            writer.upsert([{"id": one, "name": "x"} for one in range(first, first + 5)])
    assert flushed_generations(uri) == 0


def test_every_option_of_the_same_meaning_is_taken(tmp_path: Path) -> None:
    uri = library_table(
        tmp_path,
        max_memtable_rows=11,
        max_memtable_batches=10,
        max_memtable_size=12_000,
        max_unflushed_memtable_bytes=13_000,
        max_wal_buffer_size=14_000,
        max_wal_flush_interval_ms=15,
    )
    recorded = BaseTable.open(open_store(uri)).details.writer_config_defaults
    assert recorded_options(recorded, where="here") == {
        "max_memtable_rows": 11,
        "max_memtable_entries": 10,
        "max_memtable_bytes": 12_000,
        "max_unflushed_bytes": 13_000,
        "max_wal_bytes": 14_000,
    }


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "many", "٣", "9" * 40, "1e3"])
def test_a_recorded_option_that_cannot_be_is_named(text: str) -> None:
    with pytest.raises(OptionError, match=r"max_memtable_size.*\[here\].*max_memtable_bytes="):
        recorded_options({"max_memtable_size": text}, where="here")
    assert recorded_options({"max_memtable_size": text}, where="h", given={"max_memtable_bytes"}) == {}


def test_configuration_and_catch_up_survive_whatever_weir_changes(tmp_path: Path) -> None:
    uri = library_table(tmp_path, max_memtable_rows=14)
    table = weir.open(uri, fsync=False)
    before = BaseTable.open(open_store(uri)).details
    with table.writer() as writer:
        writer.upsert([{"id": 1, "name": "b"}, {"id": 2, "name": "c"}])
    table.maintenance.merge()
    lance.dataset(uri).optimize.optimize_indices()
    caught_up = BaseTable.open(open_store(uri)).details.index_catchup
    assert {one.index_name for one in caught_up} >= {"name_idx"}
    with table.writer() as writer:
        writer.upsert([{"id": 3, "name": "d"}])
    table.maintenance.merge()
    after = BaseTable.open(open_store(uri)).details
    assert after.maintained_indexes == before.maintained_indexes == ("name_idx",)
    assert after.maintain_all_indexes is before.maintain_all_indexes is False
    assert after.shard_specs == before.shard_specs
    assert {**before.writer_config_defaults, **after.writer_config_defaults} == after.writer_config_defaults
    # Merging has not changed how far an index that Weir does not extend has come.
    name_index = [one for one in caught_up if one.index_name == "name_idx"]
    assert [one for one in after.index_catchup if one.index_name == "name_idx"] == name_index


def test_a_sealed_shard_refuses_writes_and_is_read_and_merged(tmp_path: Path) -> None:
    table = weir.open(library_table(tmp_path), fsync=False)
    store = open_store(table.uri)
    with table.writer(flush_on_close=False) as writer:
        (shard,) = writer.upsert([{"id": 2, "name": "flushed"}]).positions
        writer.flush()
        writer.upsert([{"id": 3, "name": "in the log"}])
    _seal(table, shard)
    before = everything(store)
    with table.writer() as writer, pytest.raises(ShardSealedError, match=str(shard)):
        writer.upsert([{"id": 4, "name": "refused"}])
    with pytest.raises(OSError, match=r"(?i)seal"):
        lance.dataset(table.uri).mem_wal_writer(str(shard))
    assert everything(store) == before
    assert sorted(table.scan().to_table().column("id").to_pylist()) == [1, 2, 3]
    assert table.get([3]).to_pylist() == [{"id": 3, "name": "in the log"}]
    assert table.status().shards[0].state == "SEALED"
    assert table.maintenance.merge().rows_upserted == 1
    assert sorted(table.scan(consistency="snapshot").to_table().column("id").to_pylist()) == [1, 2]
    manifest = read_latest_manifest(store, shard)
    assert manifest is not None
    assert manifest.status is ShardStatus.SEALED


def everything(store: ObjectStore) -> set[tuple[str, str]]:
    return {(one.path, one.version) for one in store.list("_mem_wal")}


def _seal(table: weir.Table, shard: UUID) -> None:
    update_manifest(open_store(table.uri), shard, lambda latest: replace(latest, status=ShardStatus.SEALED))

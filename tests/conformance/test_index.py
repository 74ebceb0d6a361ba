"""What the spec says of the MemWAL index and of manifests, where no other test is closer."""

from __future__ import annotations

import tempfile
import uuid
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from lance.file import LanceFileReader, LanceFileWriter
from tests.conformance import library

import weir
from weir.base.published import decode_snapshot
from weir.base.table import BaseTable
from weir.engine.context import default_context
from weir.errors import CorruptionError
from weir.format import layout, shard_manifest, shard_snapshot, table_manifest
from weir.format.index_details import IndexCatchup, IndexDetails, MergedGeneration
from weir.maintenance.garbage.roots import progress_of
from weir.storage.open import open_store


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    made = weir.create(tmp_path / "t", pa.schema([("id", pa.int64())]), primary_key="id", fsync=False)
    with made.writer() as writer:
        writer.upsert([{"id": 1}])
    return made


def test_two_mem_wal_indexes_are_corruption(table: weir.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """No commit of the library makes them, so the list of indexes is given another entry."""
    decode = table_manifest.decode_index_section
    doubled = lambda data, where: decode(data, where=where) * 2  # noqa: E731
    monkeypatch.setattr("weir.base.manifest.decode_index_section", doubled)
    with pytest.raises(CorruptionError, match="2 MemWAL indexes where one is allowed") as caught:
        weir.open(table.uri, fsync=False)
    assert "_versions" in str(caught.value.where)


def test_an_empty_snapshot_is_read() -> None:
    schema = shard_snapshot.to_table([]).schema
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "empty.lance"
        with LanceFileWriter(str(path), schema) as writer:
            writer.write_batch(pa.Table.from_batches([], schema))
        assert decode_snapshot(path.read_bytes(), "here") == ()


def test_a_manifest_of_another_version_or_shard_is_corruption(table: weir.Table, tmp_path: Path) -> None:
    (shard,) = library.shards_of(tmp_path / "t")
    latest = library.manifest_of(tmp_path / "t", shard)
    path = tmp_path / "t" / layout.manifest_path(shard, latest.version)
    for wrong in (replace(latest, version=latest.version + 5), replace(latest, shard_id=uuid.UUID(int=3))):
        path.write_bytes(shard_manifest.encode(wrong))
        default_context().cache.clear()
        with pytest.raises(CorruptionError, match=str(wrong.version)) as caught:
            weir.open(table.uri, fsync=False).scan().to_table()
        assert path.name in str(caught.value.where)


def test_an_index_that_the_catch_up_record_lacks_is_not_caught_up(table: weir.Table) -> None:
    """The written spec has it the other way round; the library's rule loses nothing."""
    table.maintenance.merge()
    base = BaseTable.open(open_store(table.uri))
    (shard,) = library.shards_of(Path(table.uri))
    merged = MergedGeneration(shard, 1)

    def caught_up(*catchups: IndexCatchup) -> int:
        details = replace(base.details, merged_generations=(merged,), index_catchup=catchups)
        return progress_of(_WithDetails(base, details), [shard])[shard].caught_up  # type: ignore[arg-type]

    assert base.details.maintain_all_indexes
    assert caught_up() == 0
    assert caught_up(IndexCatchup("another", (merged,))) == 0
    assert caught_up(IndexCatchup("id_idx", (merged,))) == 1


class _WithDetails:
    """A base table that says something else of its MemWAL index."""

    def __init__(self, base: BaseTable, details: IndexDetails) -> None:
        self.dataset, self.details = base.dataset, details


def test_a_merge_publishes_snapshots_with_the_columns_of_the_spec(table: weir.Table, tmp_path: Path) -> None:
    table.maintenance.merge()
    details = library.details_of(Path(table.uri))
    (shard,) = library.shards_of(Path(table.uri))
    manifest = library.manifest_of(Path(table.uri), shard)
    assert details.num_shards == 1
    assert details.snapshot_ts_millis > 0
    path = tmp_path / "snapshots.lance"
    path.write_bytes(details.inline_snapshots or b"")
    stored = LanceFileReader(str(path)).read_all().to_table()
    numbers = ["version", "writer_epoch", "replay_after_wal_entry_position"]
    numbers += ["wal_entry_position_last_seen", "current_generation"]
    for name in numbers:
        assert stored.schema.field(name).type == pa.uint64()
    assert stored.schema.field("shard_id").type == pa.binary(16)
    assert stored.schema.field("shard_spec_id").type == pa.uint32()
    listed = stored.schema.field("flushed_generations").type.value_type
    assert {field.name: field.type for field in listed} == {"generation": pa.uint64(), "path": pa.string()}
    (row,) = stored.to_pylist()
    assert row["shard_id"] == shard.bytes
    assert {name: row[name] for name in numbers} == {name: getattr(manifest, name) for name in numbers}
    assert row["flushed_generations"] == [
        {"generation": one.generation, "path": one.path} for one in manifest.flushed_generations
    ]

"""The released Lance library reads and takes over what Weir writes, and the other way round."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import lance
import pyarrow as pa
import pytest
from lance.mem_wal import LsmPointLookupPlanner, LsmScanner, ShardSnapshot

import weir
from weir.errors import FencedError, ShardConflictError
from weir.snapshots.snapshot import ReadSnapshot

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("vector", pa.list_(pa.float32(), 4)),
    ]
)


def rows(*ids: int, name: str) -> list[dict[str, object]]:
    return [{"id": one, "name": f"{name} {one}", "vector": [float(one)] * 4} for one in ids]


def names(found: pa.Table) -> dict[int, str]:
    assert len(set(found.column("id").to_pylist())) == found.num_rows
    return dict(zip(found.column("id").to_pylist(), found.column("name").to_pylist(), strict=True))


def snapshot_for_library(snapshot: ReadSnapshot) -> list[ShardSnapshot]:
    """Describe unmerged generations as the library's readers take them."""
    shards = []
    for view in snapshot.shards:
        shard = ShardSnapshot(str(view.shard_id)).with_current_generation(view.manifest.current_generation)
        for flushed in snapshot.unmerged(view):
            shard = shard.with_sstable(flushed.generation, flushed.path)
        shards.append(shard)
    return shards


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    made = weir.create(tmp_path / "t", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 1), fsync=False)
    with made.writer() as writer:
        writer.upsert(rows(1, 2, 3, 4, name="base"))
    made.maintenance.merge()
    with made.writer() as writer:
        writer.upsert(rows(2, 5, name="fresh"))
        writer.delete([3])
        writer.flush()
        writer.upsert(rows(5, 6, name="fresher"))
    return made


def test_library_readers_see_the_same_rows(table: weir.Table) -> None:
    dataset = lance.dataset(table.uri)
    shards = snapshot_for_library(table.internals.reader.take_newest())
    found = LsmScanner.from_snapshots(dataset, shards).to_table()
    assert names(found) == names(table.scan().to_table())
    planner = LsmPointLookupPlanner(dataset, shards)
    for key in range(8):
        theirs = planner.plan_lookup(pa.array([key], pa.int64())).to_table()
        ours = table.get([key])
        assert theirs.select(["id", "name", "vector"]).to_pylist() == ours.to_pylist()


def test_library_takes_over_a_shard_with_an_unflushed_tail(table: weir.Table) -> None:
    weir_writer = table.writer(flush_on_close=False)
    weir_writer.upsert(rows(7, 8, name="tail"))
    weir_writer.delete([1])
    (shard_id,) = weir_writer.epochs
    dataset = lance.dataset(table.uri)
    with dataset.mem_wal_writer(str(shard_id)) as library_writer:
        library_writer.put(pa.Table.from_pylist(rows(8, 9, name="library"), SCHEMA))
        expected = {2: "fresh 2", 4: "base 4", 5: "fresher 5", 6: "fresher 6", 7: "tail 7"}
        expected |= {8: "library 8", 9: "library 9"}
        assert names(table.scan().to_table()) == expected
        with pytest.raises(FencedError):
            weir_writer.upsert(rows(1, name="late"))
    assert names(table.scan().to_table()) == expected
    # Back to Weir, which merges what both wrote.
    with table.writer() as writer:
        writer.upsert(rows(9, name="weir again"))
    table.maintenance.merge()
    expected[9] = "weir again 9"
    assert names(table.scan().to_table()) == expected
    assert names(lance.dataset(table.uri).to_table()) == expected


def test_weir_takes_over_a_table_the_library_made(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    key = {"lance-schema:unenforced-primary-key": "true"}
    schema = SCHEMA.set(0, SCHEMA.field("id").with_metadata(key))
    dataset = lance.write_dataset(pa.Table.from_pylist(rows(1, 2, 3, name="base"), schema), uri)
    dataset.initialize_mem_wal(bucket_column="id", num_buckets=1)
    shard = UUID("aaaaaaaa-1111-4222-8333-bbbbbbbbbbbb")
    library_writer = dataset.mem_wal_writer(str(shard))
    library_writer.put(pa.Table.from_pylist(rows(2, 4, name="library"), schema))
    library_writer.delete(pa.table({"id": [1]}))
    table = weir.open(uri, fsync=False)
    assert names(table.scan().to_table()) == {2: "library 2", 3: "base 3", 4: "library 4"}
    with table.writer() as writer:
        writer.upsert(rows(4, name="weir"))
        assert list(writer.epochs) == [shard]
        with pytest.raises(OSError, match=r"(?i)fence|epoch"):
            library_writer.put(pa.Table.from_pylist(rows(5, name="late"), schema))
    table.maintenance.merge()
    assert names(table.scan().to_table()) == {2: "library 2", 3: "base 3", 4: "weir 4"}
    assert names(lance.dataset(uri).to_table()) == {2: "library 2", 3: "base 3", 4: "weir 4"}


def test_shards_of_the_library_are_found_by_their_rows(tmp_path: Path) -> None:
    """The library records no shard values: without a look at the rows, Weir would make second shards."""
    uri = str(tmp_path / "t")
    key = {"lance-schema:unenforced-primary-key": "true"}
    schema = SCHEMA.set(0, SCHEMA.field("id").with_metadata(key))
    dataset = lance.write_dataset(schema.empty_table(), uri)
    dataset.initialize_mem_wal(bucket_column="id", num_buckets=2)
    details = dataset.mem_wal_index_details()
    assert details is not None
    spec = details["sharding_specs"][0]
    batch = pa.Table.from_pylist(rows(*range(8), name="library"), schema).to_batches()[0]
    buckets = lance.evaluate_sharding_spec(batch, spec, dataset.lance_schema).column(0).to_pylist()
    shards = [UUID(int=1 << 76 | 4 << 76 | 1 << 63 | n, version=4) for n in range(2)]
    for bucket, shard in enumerate(shards):
        with dataset.mem_wal_writer(str(shard)) as library_writer:
            own = batch.filter(pa.array([one == bucket for one in buckets]))
            library_writer.put(pa.Table.from_batches([own]))
    table = weir.open(uri, fsync=False)
    with table.writer() as writer:
        writer.upsert(rows(*range(8), name="weir"))
        assert sorted(writer.epochs) == sorted(shards)
    assert names(table.scan().to_table()) == {n: f"weir {n}" for n in range(8)}


def test_shards_made_by_hand_are_refused_when_it_is_not_clear_who_owns_a_key(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    key = {"lance-schema:unenforced-primary-key": "true"}
    schema = SCHEMA.set(0, SCHEMA.field("id").with_metadata(key))
    dataset = lance.write_dataset(schema.empty_table(), uri)
    dataset.initialize_mem_wal()
    for n in range(2):
        with dataset.mem_wal_writer(str(UUID(int=n, version=4))) as library_writer:
            library_writer.put(pa.Table.from_pylist(rows(n, name="library"), schema))
    table = weir.open(uri, fsync=False)
    assert names(table.scan().to_table()) == {0: "library 0", 1: "library 1"}
    with table.writer() as writer, pytest.raises(ShardConflictError, match="2 shards"):
        writer.upsert(rows(0, name="weir"))


def test_the_library_reads_from_no_store_that_is_made_in_python(tmp_path: Path) -> None:
    """When it does, objects that never change can come from a cache on disk."""

    class Store:
        def new_store(self, *_: object) -> object:
            raise AssertionError("the library asks for a store")

    library: Any = lance.lance
    registry = library._ObjectStoreRegistry()
    registry.register_provider("kept", library._ObjectStoreProvider(Store()))
    session = library._Session(store_registry=registry)
    with pytest.raises(ValueError, match="not yet implemented"):
        lance.dataset(f"kept://{tmp_path}", session=session)
    with pytest.raises(ValueError, match="unknown cache backend"):
        library._Session(index_cache_backend=f"foyer://{tmp_path}")

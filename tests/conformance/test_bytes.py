"""The files of a shard, written by Weir and by the library from the same writes, compared byte for byte.

Unlike ``tests/format``, nothing here calls an encoder: both tables come from their writers alone.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lance.file import LanceFileReader
from tests.conformance import library
from tests.conformance.tables import KINDS, Kind

import weir
from weir.base.merge_guard import deletes_id, guard_id
from weir.format import layout, wal_entry
from weir.format.bloom_filter import BloomFilter
from weir.format.key_hash import hash_keys
from weir.format.keys import encode_keys
from weir.format.shard_manifest import ShardManifest, ShardStatus


@dataclass(frozen=True)
class Written:
    """A shard with one flushed generation."""

    place: Path
    shard: uuid.UUID

    @property
    def manifest(self) -> ShardManifest:
        return library.manifest_of(self.place, self.shard)

    @property
    def generation(self) -> Path:
        (flushed,) = self.manifest.flushed_generations
        return self.place / layout.generation_path(self.shard, flushed.path)

    def key_index(self, name: str) -> pa.Table:
        reader = LanceFileReader(str(self.generation / layout.PK_INDEX / name))
        return reader.read_all().to_table().replace_schema_metadata(reader.metadata().schema.metadata)

    def log(self) -> list[wal_entry.WalEntry]:
        directory = self.place / layout.wal_directory(self.shard)
        paths = sorted(directory.iterdir(), key=lambda path: layout.parse_wal_name(path.name))
        return [wal_entry.decode(path.read_bytes(), where=path.name) for path in paths]


@pytest.fixture(params=KINDS, scope="module")
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Kind, Written, Written]:
    """Return a kind, and a shard of Weir and one of the library with the same upserts and a delete."""
    kind = KINDS[request.param]
    place = tmp_path_factory.mktemp("bytes")
    rows, gone = kind.rows(kind.keys[:-1], 0), kind.key_table(kind.keys[-1:])
    made = weir.create(place / "ours", kind.plain_schema, primary_key=kind.key_columns, fsync=False)
    with made.writer() as writer:
        writer.upsert(rows)
        writer.delete(gone)
    shard = uuid.uuid4()
    library.make_table(place / "theirs", kind, unsharded=True)
    with library.open_writer(place / "theirs", shard) as theirs:
        theirs.put(rows)
        theirs.delete(gone)
    (ours,) = library.shards_of(place / "ours")
    return kind, Written(place / "ours", ours), Written(place / "theirs", shard)


@pytest.mark.one_in(3)
def test_bloom_filters_are_equal(pair: tuple[Kind, Written, Written]) -> None:
    _, ours, theirs = pair
    stored = (ours.generation / layout.BLOOM_FILTER).read_bytes()
    assert stored == (theirs.generation / layout.BLOOM_FILTER).read_bytes()


def test_key_indexes_are_equal(pair: tuple[Kind, Written, Written]) -> None:
    _, ours, theirs = pair
    for name in (layout.PAGE_DATA, layout.PAGE_LOOKUP):
        left, right = ours.key_index(name), theirs.key_index(name)
        assert left.schema.equals(right.schema, check_metadata=True)
        assert left.equals(right)


def test_generations_are_equal(pair: tuple[Kind, Written, Written]) -> None:
    kind, ours, theirs = pair
    left, right = lance.dataset(str(ours.generation)), lance.dataset(str(theirs.generation))
    assert left.schema.names == [*kind.schema.names, "_tombstone"]
    assert left.schema.equals(right.schema)
    assert left.to_table().to_pylist() == right.to_table().to_pylist()


def test_log_entries_are_equal(pair: tuple[Kind, Written, Written]) -> None:
    """Weir's claim appends a fence where the library's, finding an empty log, does not."""
    _, ours, theirs = pair
    fence, *left = ours.log()
    right = theirs.log()
    assert fence.header.fence
    assert fence.num_rows == 0
    assert len(left) == len(right) == 2
    for one, other in zip(left, right, strict=True):
        # Weir's own, and the library has none of them.
        assert one.header.place is not None
        assert one.header.claim == fence.header.write_id
        assert replace(one.header, write_id=None, place=None, claim=None) == other.header
        assert one.schema.equals(other.schema)
        assert [batch.to_pylist() for batch in one.batches] == [batch.to_pylist() for batch in other.batches]


def test_manifests_are_equal(pair: tuple[Kind, Written, Written]) -> None:
    """But for what tells shards and commits apart, and the position that Weir's fence takes."""
    _, ours, theirs = pair
    left, right = ours.manifest, theirs.manifest
    assert left.version == right.version == 2
    assert left.writer_epoch == right.writer_epoch == 1
    assert left.replay_after_wal_entry_position == right.replay_after_wal_entry_position + 1
    assert left.wal_entry_position_last_seen == right.wal_entry_position_last_seen + 1
    assert left.current_generation == right.current_generation == 2
    assert left.shard_spec_id == right.shard_spec_id == 1
    assert left.status is right.status is ShardStatus.ACTIVE
    assert not left.unknown_fields
    assert not right.unknown_fields
    (one,), (other,) = left.flushed_generations, right.flushed_generations
    assert one.generation == other.generation == 1
    assert one.physical_rows == other.physical_rows
    assert one.in_memory_bytes
    assert other.in_memory_bytes
    assert layout.parse_generation_name(one.path) == layout.parse_generation_name(other.path) == 1


@pytest.mark.one_in(3)
def test_index_details_are_equal_after_a_merge(pair: tuple[Kind, Written, Written], tmp_path: Path) -> None:
    """But for Weir's: id, place, key, rule of shard ids, marks of merges, shard snapshots, named indexes."""
    kind, ours, theirs = pair
    table = weir.open(ours.place, fsync=False)
    table.maintenance.merge()
    library.merge(theirs.place, theirs.shard, kind)
    left, right = library.details_of(ours.place), library.details_of(theirs.place)
    own = [one for one in left.merged_generations if one.shard_id == ours.shard]
    assert [one.generation for one in own] == [one.generation for one in right.merged_generations] == [1]
    assert {one.shard_id for one in left.merged_generations} == {
        ours.shard,
        guard_id(ours.shard),
        deletes_id(ours.shard),
    }
    assert left.index_catchup == () or all(one.index_name.endswith("_idx") for one in left.index_catchup)
    (one,), (other,) = left.shard_specs, right.shard_specs
    assert one == other
    # All are maintained. Weir names them too, since LanceDB searches none that is not named.
    assert set(left.maintained_indexes) == {one.name for one in table.indexes.list()}
    assert right.maintained_indexes == ()
    assert left.maintain_all_indexes == right.maintain_all_indexes
    assert set(left.writer_config_defaults) - set(right.writer_config_defaults) == {
        "weir.place",
        "weir.primary_key",
        "weir.shard_ids",
        "weir.shard_snapshot",
        "weir.table_id",
    }


KEY_COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    **{
        str(type): (type, st.integers(*((-(1 << type.bit_width - 1), (1 << type.bit_width - 1) - 1))))
        for type in (pa.int8(), pa.int16(), pa.int32(), pa.int64())
    },
    **{
        str(type): (type, st.integers(0, (1 << type.bit_width) - 1))
        for type in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
    },
    "bool": (pa.bool_(), st.booleans()),
    "string": (pa.string(), st.text(max_size=30)),
    "large_string": (pa.large_string(), st.text(max_size=30)),
    "binary": (pa.binary(), st.binary(max_size=30)),
    "large_binary": (pa.large_binary(), st.binary(max_size=30)),
}


@settings(max_examples=12, suppress_health_check=list(HealthCheck), deadline=None)
@given(data=st.data(), names=st.lists(st.sampled_from(sorted(KEY_COLUMNS)), min_size=1, max_size=3))
def test_any_keys_give_the_librarys_filter_and_index(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, names: list[str]
) -> None:
    strategy = st.tuples(*(KEY_COLUMNS[name][1] for name in names))
    keys = data.draw(st.lists(strategy, min_size=1, max_size=40, unique=True))
    kind = Kind(tuple(KEY_COLUMNS[name][0] for name in names), tuple(keys))
    place, shard = tmp_path_factory.mktemp("keys") / "t", uuid.uuid4()
    library.make_table(place, kind, unsharded=True)
    with library.open_writer(place, shard) as theirs:
        theirs.put(kind.rows(keys, 0))
    written = Written(place, shard)
    columns = [column.combine_chunks() for column in kind.key_table(keys).columns]
    assert (
        BloomFilter.build(hash_keys(columns)).to_bytes()
        == (written.generation / layout.BLOOM_FILTER).read_bytes()
    )
    encoded = encode_keys(columns)
    pages = written.key_index(layout.PAGE_DATA)
    assert encoded.take(pages["ids"].combine_chunks()).equals(pages["values"].combine_chunks())
    assert weir.open(place, fsync=False).get(kind.key_table(keys)).num_rows == len(keys)

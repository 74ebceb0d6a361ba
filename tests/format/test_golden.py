"""Files written before must decode to what was written (``golden/make.py`` made them)."""

from __future__ import annotations

import uuid
from pathlib import Path

import lance.file
import numpy as np
import pyarrow as pa
import pytest

from weir.errors import CorruptionError
from weir.format import (
    first_index_details,
    index_details,
    pk_index,
    shard_manifest,
    table_manifest,
    u64_segment,
    wal_entry,
)
from weir.format.bloom_filter import BloomFilter
from weir.format.index_details import IndexCatchup, IndexDetails, MergedGeneration, ShardFieldSpec, ShardSpec
from weir.format.key_hash import hash_keys
from weir.format.keys import encode_keys
from weir.format.log_place import LogPlace
from weir.format.shard_manifest import FlushedGeneration, ShardFieldValue, ShardManifest, ShardStatus
from weir.format.source import Source
from weir.format.wal_entry import TOMBSTONE, WalEntry
from weir.format.wal_header import WalEntryHeader

GOLDEN = Path(__file__).parent / "golden"
SHARD = uuid.UUID("11111111-2222-4333-8444-555555555555")
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("_tombstone", pa.bool_(), nullable=False),
    ]
)
BUCKET = ShardFieldSpec("bucket", (0,), "bucket", None, "int32", {"num_buckets": "8"})


def read_entry(path: str) -> WalEntry:
    return wal_entry.decode((GOLDEN / path).read_bytes(), where=path)


def rows(entry: WalEntry) -> list[tuple[int, str | None, bool]]:
    assert entry.schema.equals(SCHEMA)
    return [(row["id"], row["text"], row[TOMBSTONE]) for batch in entry.batches for row in batch.to_pylist()]


def read_pages(path: str) -> pa.Table:
    return lance.file.LanceFileReader(str(GOLDEN / path)).read_all().to_table()


def test_wal_entry_of_weir() -> None:
    entry = read_entry("weir/wal_entry_with_trailer.arrow")
    mark, place = Source("orders", 42), LogPlace(SHARD, 9)
    assert entry.header == WalEntryHeader(7, 3, "0123456789abcdef" * 2, source=mark, place=place)
    assert rows(entry) == [(30, "thirty", False), (10, "ten", False), (20, None, True)]


def test_wal_entries_of_weir_without_a_trailer() -> None:
    """Twice: what is kept of one that was read must not tell on the next."""
    for _ in range(2):
        plain, whole = (read_entry(f"weir/{name}.arrow") for name in ("wal_entry", "wal_entry_of_a_source"))
        assert plain.header == WalEntryHeader(7, 3, "0123456789abcdef" * 2)
        assert whole == read_entry("weir/wal_entry_with_trailer.arrow")
        assert rows(plain) == rows(whole)


def test_fences_of_weir() -> None:
    header = WalEntryHeader(8, None, "fedcba9876543210" * 2, fence=True)
    for name in ("wal_fence", "wal_fence_with_trailer"):
        assert read_entry(f"weir/{name}.arrow") == WalEntry(header, pa.schema([]), ())


@pytest.mark.parametrize("name", ["wal_entry", "wal_entry_of_a_source", "wal_fence"])
def test_every_damage_to_an_entry_without_a_trailer_is_noticed(name: str) -> None:
    data = (GOLDEN / f"weir/{name}.arrow").read_bytes()
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptionError):
            wal_entry.decode(damaged, where=name)
    for length in range(len(data)):
        with pytest.raises(CorruptionError):
            wal_entry.decode(data[:length], where=name)


def test_wal_entries_of_the_library() -> None:
    entry = read_entry("library/wal_entry.arrow")
    assert entry.header == WalEntryHeader(1, 1)
    assert rows(entry) == [(30, "thirty", False), (10, "ten", False), (20, None, False)]
    tombstone = read_entry("library/wal_tombstone.arrow")
    assert tombstone.header == WalEntryHeader(1, 1)
    assert rows(tombstone) == [(10, None, True)]


def test_fence_of_the_library() -> None:
    assert read_entry("library/wal_fence.arrow") == WalEntry(WalEntryHeader(2, fence=True), pa.schema([]), ())


def test_shard_manifest_of_weir() -> None:
    data = (GOLDEN / "weir/shard_manifest.binpb").read_bytes()
    expected = ShardManifest(
        shard_id=SHARD,
        version=9,
        writer_epoch=7,
        replay_after_wal_entry_position=41,
        wal_entry_position_last_seen=42,
        current_generation=4,
        flushed_generations=(
            FlushedGeneration(3, "a1b2c3d4_gen_3", 1234, 56, 78),
            FlushedGeneration(4, "00000000_gen_4"),
        ),
        shard_spec_id=2,
        shard_fields=(ShardFieldValue("bucket", b"\x05\x00\x00\x00"),),
        status=ShardStatus.SEALED,
        write_id=bytes(range(16)),
    )
    assert shard_manifest.decode(data, where="golden") == expected
    assert shard_manifest.encode(expected) == data


def test_shard_manifest_of_the_library() -> None:
    data = (GOLDEN / "library/shard_manifest.binpb").read_bytes()
    expected = ShardManifest(
        shard_id=SHARD,
        version=5,
        writer_epoch=2,
        replay_after_wal_entry_position=5,
        wal_entry_position_last_seen=5,
        current_generation=3,
        flushed_generations=(
            FlushedGeneration(1, "682104f8_gen_1", 141, 4, 32),
            FlushedGeneration(2, "cf7f8af0_gen_2", 141, 4, 32),
        ),
        shard_spec_id=1,
    )
    assert shard_manifest.decode(data, where="golden") == expected
    # Weir appends its checksum to the same bytes.
    assert shard_manifest.encode(expected)[: len(data)] == data


def test_index_details_of_weir() -> None:
    data = (GOLDEN / "weir/index_details.binpb").read_bytes()
    custom = ShardFieldSpec("custom", (0, 1), None, "col0 % 7", "int64")
    merged = MergedGeneration(SHARD, 3)
    expected = IndexDetails(
        snapshot_ts_millis=1_700_000_000_000,
        num_shards=1,
        inline_snapshots=b"snapshots",
        shard_specs=(ShardSpec(1, (BUCKET,)), ShardSpec(2, (custom,))),
        maintained_indexes=("vector_idx",),
        merged_generations=(merged,),
        index_catchup=(IndexCatchup("vector_idx", (merged,)),),
        writer_config_defaults={"max_memtable_rows": "1000"},
        maintain_all_indexes=True,
    )
    assert index_details.decode(data, where="golden") == expected
    assert index_details.encode(expected) == data


def test_index_details_in_a_table_manifest_of_the_library() -> None:
    data = (GOLDEN / "library/table.manifest").read_bytes()
    (entry,) = table_manifest.decode_index_section(data, where="golden")
    assert (entry.name, entry.details_type_url) == (index_details.INDEX_NAME, index_details.TYPE_URL)
    assert entry.uuid == uuid.UUID("2ea025f5-434a-4242-8028-ac06a70da3de")
    assert entry.dataset_version == 3
    expected = IndexDetails(
        num_shards=8,
        shard_specs=(ShardSpec(1, (BUCKET,)),),
        merged_generations=(MergedGeneration(SHARD, 1),),
        maintain_all_indexes=True,
    )
    assert index_details.decode(entry.details, where="golden") == expected
    assert index_details.encode(expected) == entry.details


def test_bloom_filters() -> None:
    keys = hash_keys([pa.array([30, 10, 20])])
    absent = hash_keys([pa.array(np.arange(31, 131))])
    for path, expected_keys in (("weir/bloom_filter.bin", 100), ("library/bloom_filter.bin", None)):
        data = (GOLDEN / path).read_bytes()
        stored = BloomFilter.from_bytes(data, where=path)
        assert stored.contains(keys).all()
        assert not stored.contains(absent).any()
        assert BloomFilter.build(keys, expected_keys=expected_keys).to_bytes() == data


def test_pk_index_of_weir() -> None:
    """Over (id, text) of the rows (30, "c"), (10, "a\\0") and (20, "")."""
    values = ["01800000000000000a016100ff0000", "018000000000000014010000", "01800000000000001e01630000"]
    data = read_pages("weir/page_data.lance")
    assert [value.hex() for value in data["values"].to_pylist()] == values
    assert data["ids"].to_pylist() == [1, 2, 0]
    lookup = read_pages("weir/page_lookup.lance").to_pylist()
    first, last = bytes.fromhex(values[0]), bytes.fromhex(values[2])
    assert lookup == [{"min": first, "max": last, "null_count": 0, "page_idx": 0}]
    built = pk_index.build(encode_keys([pa.array([30, 10, 20]), pa.array(["c", "a\x00", ""])]))
    assert pa.table(built.page_data).equals(data)


def test_pk_index_of_the_library() -> None:
    data = read_pages("library/page_data.lance")
    assert data.to_pydict() == {"values": [10, 10, 20, 30], "ids": [1, 3, 2, 0]}
    lookup = read_pages("library/page_lookup.lance").to_pylist()
    assert lookup == [{"min": 10, "max": 30, "null_count": 0, "page_idx": 0}]
    assert pa.table(pk_index.build(pa.array([30, 10, 20, 10])).page_data).equals(data)


FIRST_INDEX = {
    "range": ("range", [0, 1, 2]),
    "range_with_holes": ("range with holes", [3, 5, 6, 8]),
    "range_with_bitmap": ("range with bitmap", [10, 16, 19]),
    "sorted_array": ("sorted array", [7, (1 << 31) + 7]),
    "array": ("array", [1 << 63, 5]),
}
"""The form and the numbers of each segment."""


def test_details_of_the_first_index() -> None:
    """Of another encoder, and from other definitions than Weir's."""
    stored = (GOLDEN / "first_index/details.binpb").read_bytes()
    details = first_index_details.decode(stored, where="details.binpb")
    listed = [
        (one.region, one.generation, one.state.name, one.last_updated_dataset_version)
        for one in details.mem_wals
    ]
    assert listed == [
        ("eu", 0, "MERGED", 300),
        ("eu", 1, "FLUSHED", 301),
        ("eu", 2, "SEALED", 302),
        ("eu", 3, "OPEN", 303),
        ("\u00e9t\u00e9", 1 << 40, "OPEN", 1 << 40),
    ]
    assert [(one.entries.form, list(one.entries)) for one in details.mem_wals] == list(FIRST_INDEX.values())
    for one in details.mem_wals:
        assert (one.mem_table_location, one.wal_location) == ("memory://a", "s3://wal/a")
        assert (one.owner_id, one.unknown_fields) == ("owner", b"")
    assert first_index_details.encode(details) == stored


@pytest.mark.parametrize("form", FIRST_INDEX)
def test_segments_of_the_first_index(form: str) -> None:
    stored = (GOLDEN / f"first_index/{form}.binpb").read_bytes()
    segment = u64_segment.decode(stored, where=form)
    assert (segment.form, list(segment)) == FIRST_INDEX[form]
    assert u64_segment.encode(segment) == stored

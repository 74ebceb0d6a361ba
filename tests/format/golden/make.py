"""Write the golden files: ``python tests/format/golden/make.py DIRECTORY``.

Files that are checked in stay as they are: they stand for tables that exist. When a format gets
something new, make files of it under a new name, and add them and a test that reads them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import lance
import lance.file
import pyarrow as pa
from lance.mem_wal import CompactedSsTable

from weir.format import index_details, layout, pk_index, shard_manifest, wal_entry
from weir.format.bloom_filter import BloomFilter
from weir.format.key_hash import hash_keys
from weir.format.keys import encode_keys
from weir.format.log_place import LogPlace
from weir.format.source import Source
from weir.format.wal_header import WalEntryHeader

DEFINITIONS = Path(__file__).parent / "first_index" / "definitions.proto"
SHARD = uuid.UUID("11111111-2222-4333-8444-555555555555")
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}),
        pa.field("text", pa.string()),
    ]
)
ROWS = pa.table({"id": [30, 10, 20], "text": ["thirty", "ten", None]}, schema=SCHEMA)


def write_library(directory: Path) -> None:
    """What the released library writes for two writers of one shard, and one merge."""
    table = directory / "table"
    dataset = lance.write_dataset(SCHEMA.empty_table(), str(table))
    dataset.initialize_mem_wal(bucket_column="id", num_buckets=8)
    for _ in range(2):
        with dataset.mem_wal_writer(str(SHARD)) as writer:
            writer.put(ROWS)
            writer.delete(pa.table({"id": [10]}))
    merge = dataset.merge_insert(["id"]).when_not_matched_insert_all()
    merge.mark_sstables_as_compacted([CompactedSsTable(str(SHARD), 1)])
    merge.execute(ROWS)

    (generation,) = (table / layout.shard_directory(SHARD)).glob("*_gen_1")
    sources = {
        "wal_entry.arrow": table / layout.wal_path(SHARD, 1),
        "wal_tombstone.arrow": table / layout.wal_path(SHARD, 2),
        "wal_fence.arrow": table / layout.wal_path(SHARD, 3),
        "shard_manifest.binpb": table / layout.manifest_path(SHARD, 5),
        "table.manifest": min((table / "_versions").glob("*.manifest")),
        "bloom_filter.bin": generation / layout.BLOOM_FILTER,
        "page_data.lance": generation / layout.PK_INDEX / layout.PAGE_DATA,
        "page_lookup.lance": generation / layout.PK_INDEX / layout.PAGE_LOOKUP,
    }
    for name, source in sources.items():
        shutil.copyfile(source, directory / name)
    shutil.rmtree(table)


def write_weir(directory: Path) -> None:
    """The same by Weir, with every field of the messages set."""
    schema = wal_entry.wal_schema(SCHEMA)
    (batch,) = ROWS.combine_chunks().to_batches()
    data = pa.record_batch([*batch.columns, pa.array([False, False, True])], schema=schema)
    header = WalEntryHeader(
        7, 3, "0123456789abcdef" * 2, source=Source("orders", 42), place=LogPlace(SHARD, 9)
    )
    fence = WalEntryHeader(8, None, "fedcba9876543210" * 2, fence=True)
    flushed = shard_manifest.FlushedGeneration(3, "a1b2c3d4_gen_3", 1234, 56, 78)
    manifest = shard_manifest.ShardManifest(
        shard_id=SHARD,
        version=9,
        writer_epoch=7,
        replay_after_wal_entry_position=41,
        wal_entry_position_last_seen=42,
        current_generation=4,
        flushed_generations=(flushed, shard_manifest.FlushedGeneration(4, "00000000_gen_4")),
        shard_spec_id=2,
        shard_fields=(shard_manifest.ShardFieldValue("bucket", b"\x05\x00\x00\x00"),),
        status=shard_manifest.ShardStatus.SEALED,
        write_id=bytes(range(16)),
    )
    field = index_details.ShardFieldSpec("bucket", (0,), "bucket", None, "int32", {"num_buckets": "8"})
    custom = index_details.ShardFieldSpec("custom", (0, 1), None, "col0 % 7", "int64")
    merged = index_details.MergedGeneration(SHARD, 3)
    details = index_details.IndexDetails(
        snapshot_ts_millis=1_700_000_000_000,
        num_shards=1,
        inline_snapshots=b"snapshots",
        shard_specs=(index_details.ShardSpec(1, (field,)), index_details.ShardSpec(2, (custom,))),
        maintained_indexes=("vector_idx",),
        merged_generations=(merged,),
        index_catchup=(index_details.IndexCatchup("vector_idx", (merged,)),),
        writer_config_defaults={"max_memtable_rows": "1000"},
        maintain_all_indexes=True,
    )
    keys = [batch.column("id")]
    objects = {
        "wal_entry_with_trailer.arrow": b"".join(wal_entry.encode(header, schema, [data])),
        "wal_fence_with_trailer.arrow": b"".join(wal_entry.encode(fence, pa.schema([]))),
        "shard_manifest.binpb": shard_manifest.encode(manifest),
        "index_details.binpb": index_details.encode(details),
        "bloom_filter.bin": BloomFilter.build(hash_keys(keys), expected_keys=100).to_bytes(),
    }
    for name, content in objects.items():
        (directory / name).write_bytes(content)
    index = pk_index.build(encode_keys([*keys, pa.array(["c", "a\x00", ""])]))
    for name, pages in ((layout.PAGE_DATA, index.page_data), (layout.PAGE_LOOKUP, index.page_lookup)):
        with lance.file.LanceFileWriter(str(directory / name), pages.schema, version="2.0") as writer:
            writer.write_batch(pages)


SEGMENTS = {
    "range": "range {end: 3}",
    "range_with_holes": (
        "range_with_holes {start: 3 end: 9 holes {u16_array {base: 4 offsets: '\\0\\0\\3\\0'}}}"
    ),
    "range_with_bitmap": "range_with_bitmap {start: 10 end: 20 bitmap: '\\x41\\x02'}",
    "sorted_array": "sorted_array {u32_array {base: 7 offsets: '\\0\\0\\0\\0\\0\\0\\0\\x80'}}",
    "array": "array {u64_array {values: '\\0\\0\\0\\0\\0\\0\\0\\x80\\5\\0\\0\\0\\0\\0\\0\\0'}}",
}
"""Of each form, in the text form of the messages."""

MEM_WALS = [
    ("eu", 0, "MERGED", "range", 300),
    ("eu", 1, "FLUSHED", "range_with_holes", 301),
    ("eu", 2, "SEALED", "range_with_bitmap", 302),
    ("eu", 3, "OPEN", "sorted_array", 303),
    ("\u00e9t\u00e9", 1 << 40, "OPEN", "array", 1 << 40),
]


def write_first_index(directory: Path) -> None:
    """Details of the first form of the index, by protoc, from definitions that are not Weir's."""
    segments = {name: encoded("U64Segment", text) for name, text in SEGMENTS.items()}
    mem_wals = (
        f"mem_wal_list {{id {{region: '{region}' generation: {generation}}} state: {state} "
        f"mem_table_location: 'memory://a' wal_location: 's3://wal/a' owner_id: 'owner' "
        f"wal_entries: '{escaped(segments[name])}' "
        f"last_updated_dataset_version: {version}}}"
        for region, generation, state, name, version in MEM_WALS
    )
    for name, content in segments.items():
        (directory / f"{name}.binpb").write_bytes(content)
    (directory / "details.binpb").write_bytes(encoded("MemWalIndexDetails", "\n".join(mem_wals)))


def escaped(data: bytes) -> str:
    """Return bytes as the text form has them."""
    return "".join(f"\\x{byte:02x}" for byte in data)


def encoded(message: str, text: str) -> bytes:
    """Return a message whose text form is given, as protoc encodes it."""
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{DEFINITIONS.parent}"]
    done = subprocess.run(
        [*command, f"--encode=golden.{message}", DEFINITIONS.name],
        input=text.encode(),
        stdout=subprocess.PIPE,
        check=True,
    )
    return done.stdout


if __name__ == "__main__":
    for kind, write in (
        ("library", write_library),
        ("weir", write_weir),
        ("first_index", write_first_index),
    ):
        target = Path(sys.argv[1]) / kind
        target.mkdir(parents=True, exist_ok=True)
        write(target)

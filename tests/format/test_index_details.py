"""The MemWAL index details, and where a table manifest keeps them, against the library's and damage."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance.bitmap import Bitmap
from lance.dataset import Index
from lance.mem_wal import CompactedSsTable

from weir.errors import CorruptionError, InputError
from weir.format import index_details
from weir.format.index_details import IndexCatchup, IndexDetails, MergedGeneration, ShardFieldSpec, ShardSpec
from weir.format.table_manifest import decode_index_section

WHERE = "_versions/1.manifest"
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
UINT32 = st.integers(0, (1 << 32) - 1)
MERGED = st.lists(st.builds(MergedGeneration, st.uuids(), st.integers(0, (1 << 64) - 1)), max_size=3).map(
    tuple
)
PAIRS = st.dictionaries(TEXT, TEXT, max_size=3)

DETAILS = st.builds(
    IndexDetails,
    snapshot_ts_millis=st.integers(-(1 << 63), (1 << 63) - 1),
    num_shards=UINT32,
    inline_snapshots=st.none() | st.binary(max_size=9),
    shard_specs=st.lists(
        st.builds(
            ShardSpec,
            UINT32,
            st.lists(
                st.builds(
                    ShardFieldSpec,
                    field_id=TEXT,
                    source_ids=st.lists(st.integers(-(1 << 31), (1 << 31) - 1), max_size=3).map(tuple),
                    transform=st.none() | TEXT,
                    expression=st.none() | TEXT,
                    result_type=TEXT,
                    parameters=PAIRS,
                ),
                max_size=2,
            ).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
    maintained_indexes=st.lists(TEXT, max_size=3).map(tuple),
    merged_generations=MERGED,
    index_catchup=st.lists(st.builds(IndexCatchup, TEXT, MERGED), max_size=2).map(tuple),
    writer_config_defaults=PAIRS,
    maintain_all_indexes=st.booleans(),
)

# Field 2000, a varint, and again, three bytes: what a newer writer might add.
UNKNOWN = b"\x80\x7d\x07" + b"\x82\x7d\x03new"


@given(DETAILS)
def test_round_trip(details: IndexDetails) -> None:
    data = index_details.encode(details)
    assert index_details.decode(data, where=WHERE) == details
    assert index_details.encode(index_details.decode(pa.py_buffer(data), where=WHERE)) == data


def test_equal_details_give_equal_bytes() -> None:
    one = IndexDetails(writer_config_defaults={"a": "1", "b": "2"})
    other = IndexDetails(writer_config_defaults={"b": "2", "a": "1"})
    assert index_details.encode(one) == index_details.encode(other)


def test_unknown_fields_survive_a_change() -> None:
    shard = uuid.UUID(int=1)
    merged = MergedGeneration(shard, 4, UNKNOWN)
    field = ShardFieldSpec("bucket", (0,), "bucket", None, "int32", {"num_buckets": "8"}, UNKNOWN)
    newer = IndexDetails(
        shard_specs=(ShardSpec(1, (field,), UNKNOWN),),
        merged_generations=(merged,),
        index_catchup=(IndexCatchup("vector_idx", (merged,), UNKNOWN),),
        unknown_fields=UNKNOWN,
    )
    seen = index_details.decode(index_details.encode(newer), where=WHERE)
    assert seen == newer
    changed = dataclasses.replace(seen, merged_generations=(dataclasses.replace(merged, generation=5),))
    assert index_details.decode(index_details.encode(changed), where=WHERE) == changed


def test_the_newest_merged_generation_counts() -> None:
    one, other = uuid.UUID(int=1), uuid.UUID(int=2)
    details = IndexDetails(
        merged_generations=(MergedGeneration(one, 3), MergedGeneration(one, 2), MergedGeneration(other, 9))
    )
    assert details.merged_generation(one) == 3
    assert details.merged_generation(uuid.UUID(int=3)) == 0


def memwal_details(table: Any) -> IndexDetails:
    """The details in the newest manifest file of a table."""
    entries = decode_index_section(table.table_manifest(), where=WHERE)
    (entry,) = [entry for entry in entries if entry.name == index_details.INDEX_NAME]
    assert entry.details_type_url == index_details.TYPE_URL
    return index_details.decode(entry.details, where=WHERE)


def test_the_library_details_are_understood(library_table: Callable[..., Any]) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())])
    table = library_table(schema, ["id"], bucket_column="id", num_buckets=4, max_memtable_rows=77)
    said = table.dataset.mem_wal_index_details()
    details = memwal_details(table)
    (spec,) = details.shard_specs
    assert {"spec_id": spec.spec_id, "fields": [_as_said(field) for field in spec.fields]} == said[
        "sharding_specs"
    ][0]
    assert details.num_shards == said["num_shards"]
    assert list(details.maintained_indexes) == said["maintained_indexes"]
    assert details.maintain_all_indexes == said["maintain_all_indexes"]
    assert details.writer_config_defaults == said["writer_config_defaults"]
    assert details.writer_config_defaults["max_memtable_rows"] == "77"
    assert not details.unknown_fields


def _as_said(field: ShardFieldSpec) -> dict[str, object]:
    said = dataclasses.asdict(field)
    assert said.pop("unknown_fields") == b""
    return {**said, "source_ids": list(field.source_ids)}


def test_merge_progress_of_the_library_is_understood(library_table: Callable[..., Any]) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    table = library_table(schema, ["id"])
    assert memwal_details(table).merged_generation(table.shard_id) == 0
    for generation in (1, 3):
        merge = table.dataset.merge_insert(["id"]).when_not_matched_insert_all()
        merge.mark_sstables_as_compacted([CompactedSsTable(str(table.shard_id), generation)])
        merge.execute(pa.table({"id": [generation]}, schema=table.dataset.schema))
        assert memwal_details(table).merged_generation(table.shard_id) == generation


def test_the_library_keeps_what_weir_commits(library_table: Callable[..., Any]) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    table = library_table(schema, ["id"])
    before = table.dataset
    (entry,) = decode_index_section(table.table_manifest(), where=WHERE)
    ours = dataclasses.replace(
        memwal_details(table),
        maintained_indexes=(),
        maintain_all_indexes=False,
        merged_generations=(MergedGeneration(table.shard_id, 6),),
        unknown_fields=UNKNOWN,
    )

    def index(identifier: uuid.UUID, details: bytes) -> Index:
        return Index(
            uuid=str(identifier),
            name=index_details.INDEX_NAME,
            fields=[],
            dataset_version=before.version,
            fragment_ids=Bitmap(),
            index_version=0,
            index_details=(index_details.TYPE_URL, details),
        )

    operation = lance.LanceOperation.CreateIndex(
        [index(uuid.uuid4(), index_details.encode(ours))], [index(entry.uuid, entry.details)]
    )
    lance.LanceDataset.commit(str(table.path), operation, read_version=before.version)
    assert memwal_details(table) == ours
    assert not table.dataset.mem_wal_index_details()["maintain_all_indexes"]


def test_every_index_of_a_table_is_listed(library_table: Callable[..., Any]) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    table = library_table(schema, ["id"])
    table.dataset.create_scalar_index("id", "BTREE")
    listed = {
        (index.name, str(segment.uuid), segment.dataset_version_at_last_update)
        for index in table.dataset.describe_indices()
        for segment in index.segments
    }
    entries = decode_index_section(table.table_manifest(), where=WHERE)
    assert {(entry.name, str(entry.uuid), entry.dataset_version) for entry in entries} == listed


def test_a_table_without_indexes_lists_none(tmp_path: Any) -> None:
    lance.write_dataset(pa.table({"id": [1]}), str(tmp_path / "t"))
    (manifest,) = (tmp_path / "t" / "_versions").glob("*.manifest")
    assert decode_index_section(manifest.read_bytes(), where=WHERE) == ()


@given(DETAILS, st.data())
def test_damage_is_corruption_or_other_details(details: IndexDetails, data: st.DataObject) -> None:
    stored = bytearray(index_details.encode(details) + b"\x60\x01")
    bit = data.draw(st.integers(0, 8 * len(stored) - 1))
    stored[bit // 8] ^= 1 << bit % 8
    cut = data.draw(st.integers(0, len(stored)))
    for damaged in (bytes(stored), bytes(stored[:cut])):
        try:
            assert isinstance(index_details.decode(damaged, where=WHERE), IndexDetails)
        except CorruptionError as error:
            assert error.where == WHERE


@given(st.binary(max_size=100))
def test_random_bytes_are_corruption_or_details(data: bytes) -> None:
    try:
        assert isinstance(index_details.decode(data, where=WHERE), IndexDetails)
    except CorruptionError as error:
        assert error.where == WHERE


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\xff", "cannot be decoded"),
        (b"\x4a\x02\x10\x01", "merged generation has 0 bytes"),
        (b"\x52\x04\x12\x02\x10\x01", "merged generation has 0 bytes"),
        (b"\x42\x01\xff", "cannot be decoded"),
    ],
)
def test_what_no_details_hold_is_corruption(data: bytes, problem: str) -> None:
    with pytest.raises(CorruptionError, match=problem):
        index_details.decode(data, where=WHERE)


@pytest.mark.parametrize(
    "details",
    [
        IndexDetails(num_shards=-1),
        IndexDetails(num_shards=1 << 32),
        IndexDetails(snapshot_ts_millis=1 << 63),
        IndexDetails(merged_generations=(MergedGeneration(uuid.UUID(int=1), -1),)),
        IndexDetails(shard_specs=(ShardSpec(1, (ShardFieldSpec("a", (1 << 31,), None, None, ""),)),)),
        IndexDetails(unknown_fields=b"\xff"),
    ],
)
def test_what_cannot_be_stored_is_refused(details: IndexDetails) -> None:
    with pytest.raises(InputError):
        index_details.encode(details)


@pytest.fixture(scope="module")
def table_manifest(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("manifest") / "t"
    dataset = lance.write_dataset(pa.table({"id": pa.array([1], pa.int64())}), str(path))
    dataset.initialize_mem_wal()
    return min((path / "_versions").glob("*.manifest")).read_bytes()


def test_a_table_manifest_cut_short_is_corruption(table_manifest: bytes) -> None:
    for length in range(len(table_manifest)):
        with pytest.raises(CorruptionError):
            decode_index_section(table_manifest[:length], where=WHERE)


@given(data=st.data())
def test_a_damaged_table_manifest_is_corruption_or_another(
    table_manifest: bytes, data: st.DataObject
) -> None:
    damaged = bytearray(table_manifest)
    at = data.draw(st.integers(0, len(damaged) - 1))
    replacement = data.draw(st.binary(min_size=1, max_size=8))
    damaged[at : at + len(replacement)] = replacement
    try:
        assert isinstance(decode_index_section(damaged, where=WHERE), tuple)
    except CorruptionError as error:
        assert error.where == WHERE


@given(st.binary(max_size=100))
def test_random_bytes_are_no_table_manifest(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        decode_index_section(data, where=WHERE)

"""The shard manifest against the library's, and against damage."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.errors import CorruptionError, InputError
from weir.format import layout, shard_manifest
from weir.format.shard_manifest import FlushedGeneration, ShardFieldValue, ShardManifest, ShardStatus
from weir.format.source import SourceMarks
from weir.format.write_window import DoneWrite, WriteWindow

WHERE = "_mem_wal/x/manifest/y.binpb"
UINT64 = st.integers(0, (1 << 64) - 1)
NAMES = st.from_regex(r"[0-9a-f]{8}_gen_[1-9][0-9]{0,5}", fullmatch=True)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)

MANIFESTS = st.builds(
    ShardManifest,
    shard_id=st.uuids(),
    version=st.integers(1, (1 << 64) - 1),
    writer_epoch=UINT64,
    replay_after_wal_entry_position=UINT64,
    wal_entry_position_last_seen=UINT64,
    current_generation=UINT64,
    flushed_generations=st.lists(
        st.builds(
            FlushedGeneration,
            generation=st.integers(1, (1 << 64) - 1),
            path=NAMES,
            in_memory_bytes=st.none() | UINT64,
            physical_rows=UINT64,
            primary_key_bytes=UINT64,
            bloom_filter_checksum=st.none() | UINT64,
            published_after=st.none() | UINT64,
        ),
        max_size=3,
    ).map(tuple),
    shard_spec_id=st.integers(0, (1 << 32) - 1),
    shard_fields=st.lists(st.builds(ShardFieldValue, TEXT, st.binary(max_size=9)), max_size=3).map(tuple),
    status=st.sampled_from(ShardStatus),
    write_id=st.binary(max_size=16),
    sources=st.none()
    | st.builds(
        SourceMarks,
        st.dictionaries(TEXT.filter(bool), st.integers(0, (1 << 63) - 1), max_size=3),
        st.dictionaries(
            TEXT,
            st.builds(DoneWrite, st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 64) - 1), st.binary()),
            max_size=3,
        ).map(WriteWindow().with_done),
    ),
)

# Field 2000, a varint, and again, three bytes: what a newer writer might add.
UNKNOWN = b"\x80\x7d\x07" + b"\x82\x7d\x03new"


@given(MANIFESTS)
def test_round_trip(manifest: ShardManifest) -> None:
    assert shard_manifest.decode(shard_manifest.encode(manifest), where=WHERE) == manifest


def test_any_kind_of_buffer_is_decoded() -> None:
    manifest = ShardManifest(uuid.UUID(int=1), 1)
    data = shard_manifest.encode(manifest)
    for buffer in (bytearray(data), memoryview(data), pa.py_buffer(data)):
        assert shard_manifest.decode(buffer, where=WHERE) == manifest


def test_unknown_fields_survive_a_change() -> None:
    manifest = ShardManifest(
        uuid.UUID(int=1),
        3,
        flushed_generations=(FlushedGeneration(1, "a1b2c3d4_gen_1"),),
        shard_fields=(ShardFieldValue("bucket", b"\x01\x00\x00\x00"),),
    )
    newer = dataclasses.replace(
        manifest,
        unknown_fields=UNKNOWN,
        flushed_generations=(dataclasses.replace(manifest.flushed_generations[0], unknown_fields=UNKNOWN),),
        shard_fields=(dataclasses.replace(manifest.shard_fields[0], unknown_fields=UNKNOWN),),
    )
    seen = shard_manifest.decode(shard_manifest.encode(newer), where=WHERE)
    assert seen == newer
    changed = dataclasses.replace(
        seen,
        version=4,
        flushed_generations=(*seen.flushed_generations, FlushedGeneration(2, "00000000_gen_2")),
    )
    again = shard_manifest.decode(shard_manifest.encode(changed), where=WHERE)
    assert again == changed
    assert again.unknown_fields == again.flushed_generations[0].unknown_fields == UNKNOWN


def test_the_library_manifests_are_understood(library_table: Callable[..., Any]) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())])
    table = library_table(schema, ["id"], bucket_column="id", num_buckets=4)
    rows = pa.table({"id": [1, 2, 3], "text": ["a", "b", "c"]}, schema=table.dataset.schema)
    table.put(rows)
    table.put(rows, delete=pa.table({"id": [2]}))

    manifests = {
        version: shard_manifest.decode(data, where=WHERE) for version, data in table.manifests().items()
    }
    assert all(manifest.version == version for version, manifest in manifests.items())
    assert all(manifest.shard_id == table.shard_id for manifest in manifests.values())
    assert all(not manifest.unknown_fields for manifest in manifests.values())
    latest = manifests[max(manifests)]
    assert latest.writer_epoch == 2
    assert latest.current_generation == 3
    assert latest.shard_spec_id == 1
    assert latest.status is ShardStatus.ACTIVE
    # One data entry by the first writer; a fence and two data entries by the second.
    assert latest.replay_after_wal_entry_position == latest.wal_entry_position_last_seen == 4
    names = {generation: path.name for generation, path in table.generations().items()}
    assert {flushed.generation: flushed.path for flushed in latest.flushed_generations} == names
    assert [flushed.physical_rows for flushed in latest.flushed_generations] == [3, 4]
    assert [flushed.primary_key_bytes for flushed in latest.flushed_generations] == [24, 32]
    assert all((flushed.in_memory_bytes or 0) > 0 for flushed in latest.flushed_generations)


def test_the_library_goes_on_from_a_manifest_of_weir(library_table: Callable[..., Any]) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    table = library_table(schema, ["id"])
    rows = pa.table({"id": [1]}, schema=table.dataset.schema)
    table.put(rows)
    latest = max(table.manifests())
    decoded = shard_manifest.decode(table.manifests()[latest], where=WHERE)
    (flushed,) = decoded.flushed_generations
    with_checksum = dataclasses.replace(flushed, bloom_filter_checksum=77)
    ours = dataclasses.replace(
        decoded,
        version=latest + 1,
        writer_epoch=40,
        flushed_generations=(with_checksum,),
        unknown_fields=UNKNOWN,
    )
    path = table.path / layout.manifest_path(table.shard_id, latest + 1)
    path.write_bytes(shard_manifest.encode(ours))
    table.put(rows)
    after = shard_manifest.decode(table.manifests()[max(table.manifests())], where=WHERE)
    assert after.writer_epoch == 41
    # The library leaves out what it does not know; the generation's catalog has the checksum too.
    assert after.flushed_generations[0] == flushed


def test_a_sealed_shard_refuses_the_library_writer(library_table: Callable[..., Any]) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    table = library_table(schema, ["id"])
    sealed = ShardManifest(table.shard_id, 1, writer_epoch=1, status=ShardStatus.SEALED)
    path = table.path / layout.manifest_path(table.shard_id, 1)
    path.parent.mkdir(parents=True)
    path.write_bytes(shard_manifest.encode(sealed))
    with pytest.raises(OSError, match=r"(?i)sealed"):
        table.dataset.mem_wal_writer(str(table.shard_id))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "0 bytes, a UUID has 16"),
        (b"\xff", "cannot be decoded"),
        (b"\x08", "cannot be decoded"),
        (b"\x08\x01\x5a\x05\x0a\x03abc", "3 bytes, a UUID has 16"),
        (b"\x5a\x12\x0a\x10" + bytes(16), "has version 0"),
        (b"\x08\x01\x5a\x12\x0a\x10" + bytes(16) + b"\x78\x02", "unknown status 2"),
        (b"\x08\x01\x5a\x12\x0a\x10" + bytes(16) + b"\x42\x06\x08\x01\x12\x02..", "plain file name"),
        (b"\x08\x01\x5a\x12\x0a\x10" + bytes(16) + b"\x42\x07\x08\x01\x12\x03a/b", "plain file name"),
        (b"\x08\x01\x5a\x12\x0a\x10" + bytes(16) + b"\x42\x03\x12\x01a", "generation 0"),
    ],
)
def test_what_no_manifest_holds_is_corruption(data: bytes, problem: str) -> None:
    with pytest.raises(CorruptionError, match=problem) as caught:
        shard_manifest.decode(data, where=WHERE)
    assert caught.value.where == WHERE


@given(MANIFESTS, st.data())
def test_damage_is_corruption_or_another_manifest(manifest: ShardManifest, data: st.DataObject) -> None:
    stored = bytearray(shard_manifest.encode(manifest))
    bit = data.draw(st.integers(0, 8 * len(stored) - 1))
    stored[bit // 8] ^= 1 << bit % 8
    cut = data.draw(st.integers(0, len(stored)))
    for damaged in (bytes(stored), bytes(stored[:cut])):
        try:
            assert isinstance(shard_manifest.decode(damaged, where=WHERE), ShardManifest)
        except CorruptionError as error:
            assert error.where == WHERE


@given(st.binary(max_size=100))
def test_random_bytes_are_corruption_or_a_manifest(data: bytes) -> None:
    try:
        assert isinstance(shard_manifest.decode(data, where=WHERE), ShardManifest)
    except CorruptionError as error:
        assert error.where == WHERE


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 0},
        {"version": 1 << 64},
        {"writer_epoch": -1},
        {"shard_spec_id": 1 << 32},
        {"status": 7},
        {"flushed_generations": (FlushedGeneration(1, "../elsewhere"),)},
        {"flushed_generations": (FlushedGeneration(0, "a"),)},
        {"unknown_fields": b"\xff"},
    ],
)
def test_what_cannot_be_stored_is_refused(changes: dict[str, Any]) -> None:
    manifest = dataclasses.replace(ShardManifest(uuid.UUID(int=1), 1), **changes)
    with pytest.raises(InputError):
        shard_manifest.encode(manifest)

"""Shard snapshots have the columns of the spec, and keep what manifests say."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest
from lance.file import LanceFileReader, LanceFileWriter

from weir.errors import CorruptionError
from weir.format import arrow_scalar, shard_snapshot
from weir.format.index_details import IndexDetails
from weir.format.shard_manifest import FlushedGeneration, ShardFieldValue, ShardManifest
from weir.format.shard_snapshot import SNAPSHOT_RECORD, from_table, prove, snapshot_path, to_table

SHARD = ShardManifest(
    UUID("4b6f8b0e-30a0-4e0f-9a5e-2f1d0c9b8a77"),
    9,
    writer_epoch=4,
    replay_after_wal_entry_position=17,
    wal_entry_position_last_seen=21,
    current_generation=4,
    flushed_generations=(FlushedGeneration(2, "0a1b2c3d_gen_2"), FlushedGeneration(3, "4e5f6071_gen_3")),
    shard_spec_id=1,
    shard_fields=(ShardFieldValue("bucket", bytes([3, 0, 0, 0])),),
)
# As the table of the spec has them, section "Shard Snapshot Arrow Schema".
COLUMNS = {
    "shard_id": pa.binary(16),
    "version": pa.uint64(),
    "shard_spec_id": pa.uint32(),
    "writer_epoch": pa.uint64(),
    "replay_after_wal_entry_position": pa.uint64(),
    "wal_entry_position_last_seen": pa.uint64(),
    "current_generation": pa.uint64(),
    "flushed_generations": pa.list_(pa.struct([("generation", pa.uint64()), ("path", pa.string())])),
}
VALUES = [
    pa.scalar(True),
    pa.scalar(-3, pa.int8()),
    pa.scalar(-300, pa.int16()),
    pa.scalar(7, pa.int32()),
    pa.scalar(-(2**40), pa.int64()),
    pa.scalar(200, pa.uint8()),
    pa.scalar(60_000, pa.uint16()),
    pa.scalar(2**31, pa.uint32()),
    pa.scalar(2**63, pa.uint64()),
    pa.scalar(1.5, pa.float32()),
    pa.scalar(-0.0, pa.float64()),
    pa.scalar("Zoë", pa.string()),
    pa.scalar("", pa.large_string()),
    pa.scalar(b"\x00\xff", pa.binary()),
    pa.scalar(b"\x01", pa.large_binary()),
    pa.scalar(b"abcd", pa.binary(4)),
    pa.scalar(date(2026, 1, 2), pa.date32()),
    pa.scalar(date(2026, 1, 2), pa.date64()),
    pa.scalar(datetime(2026, 1, 2, 3, 4), pa.timestamp("us")),
    pa.scalar(datetime(2026, 1, 2, 3, 4, tzinfo=UTC), pa.timestamp("ns", "UTC")),
    pa.scalar(1234, pa.time32("s")),
    pa.scalar(1234, pa.time64("us")),
    pa.scalar(timedelta(seconds=5), pa.duration("ms")),
    pa.scalar(Decimal("12.34"), pa.decimal128(10, 2)),
]


def through_a_file(table: pa.Table, path: Path) -> pa.Table:
    with LanceFileWriter(str(path), table.schema) as writer:
        writer.write_batch(table)
    return LanceFileReader(str(path)).read_all().to_table()


def test_columns_are_those_of_the_spec() -> None:
    table = to_table([SHARD], {"bucket": pa.int32()})
    assert dict(zip(table.schema.names, table.schema.types, strict=True)) == {
        **COLUMNS,
        "region_field_bucket": pa.int32(),
    }
    assert table.column("region_field_bucket").to_pylist() == [3]
    assert from_table(table, where="here") == (SHARD,)


def test_no_shard_at_all_is_an_empty_table_with_the_columns() -> None:
    table = to_table([])
    assert dict(zip(table.schema.names, table.schema.types, strict=True)) == COLUMNS
    assert from_table(table, where="here") == ()


@pytest.mark.parametrize("value", VALUES, ids=lambda value: str(value.type))
def test_values_of_every_type_survive_a_lance_file(value: pa.Scalar, tmp_path: Path) -> None:
    (data,) = arrow_scalar.encode(pa.array([value], value.type))
    assert data is not None
    held = replace(SHARD, shard_fields=(ShardFieldValue("f", data),))
    table = to_table([held, replace(SHARD, shard_id=UUID(int=1), shard_fields=())], {"f": value.type})
    assert table.schema.field("region_field_f").type == value.type
    found = from_table(through_a_file(table, tmp_path / "s.lance"), where="here")
    assert found[1] == held
    assert found[0].shard_fields == ()


def test_a_value_of_another_spec_that_is_none_of_the_type_is_left_out() -> None:
    """Whoever reads it then takes the shard for one that may hold any rows."""
    other = replace(SHARD, shard_id=UUID(int=1), shard_fields=(ShardFieldValue("bucket", b"text"),))
    longer = replace(SHARD, shard_id=UUID(int=2), shard_fields=(ShardFieldValue("bucket", b"longer"),))
    found = from_table(to_table([SHARD, longer, other], {"bucket": pa.int32()}), where="here")
    assert found == (other, replace(longer, shard_fields=()), SHARD)
    odd = replace(SHARD, shard_fields=(ShardFieldValue("flag", b"\x07"),))
    assert from_table(to_table([odd], {"flag": pa.bool_()}), where="here")[0].shard_fields == ()


def test_values_of_an_unknown_type_are_kept_as_bytes() -> None:
    table = to_table([SHARD])
    assert table.schema.field("region_field_bucket").type == pa.binary()
    assert from_table(table, where="here") == (SHARD,)


@pytest.mark.parametrize("name", COLUMNS)
def test_a_missing_column_is_corrupt(name: str) -> None:
    with pytest.raises(CorruptionError, match=rf"no column '{name}'.*\[here\]"):
        from_table(to_table([SHARD]).drop_columns([name]), where="here")


@pytest.mark.parametrize("path", ["..", ".", "", "../../secret", "/etc", "a/b", "a\\b", "a\x00b", "x" * 256])
def test_generations_cannot_lead_out_of_their_shard(path: str) -> None:
    table = to_table([replace(SHARD, flushed_generations=(FlushedGeneration(1, path),))])
    with pytest.raises(CorruptionError, match=r"\[here\]"):
        from_table(table, where="here")


@pytest.mark.parametrize(
    "directory",
    [
        "",
        "..",
        "../../../etc",
        "/etc",
        "4b6f8b0e-30a0-4e0f-9a5e-2f1d0c9b8a77/..",
        "4B6F8B0E-30A0-4E0F-9A5E-2F1D0C9B8A77",
        "{4b6f8b0e-30a0-4e0f-9a5e-2f1d0c9b8a77}",
        "4b6f8b0e-30a0-4e0f-9a5e-2f1d0c9b8a7\x00",
    ],
)
def test_the_file_of_a_snapshot_cannot_be_outside_the_table(directory: str) -> None:
    record = f"1 {'0' * 16} {directory}"
    details = IndexDetails(1, 200, writer_config_defaults={SNAPSHOT_RECORD: record})
    with pytest.raises(CorruptionError, match=r"records its shard snapshot as.*\[here\]"):
        snapshot_path(details, UUID(int=5), where="here")


def test_a_snapshot_is_inline_in_the_file_recorded_or_with_its_index() -> None:
    index, recorded = UUID(int=5), UUID(int=6)
    assert snapshot_path(IndexDetails(num_shards=8), index, where="here") is None
    assert snapshot_path(IndexDetails(1, 8, b"inline"), index, where="here") is None
    # Another implementation of the spec keeps no record: the file is with the index.
    assert snapshot_path(IndexDetails(1, 200), index, where="here") == f"_indices/{index}/index.lance"
    external = shard_snapshot.published(IndexDetails(), 200, b"x", directory=recorded, taken_at_millis=1)
    assert snapshot_path(external, index, where="here") == f"_indices/{recorded}/index.lance"
    inline = shard_snapshot.published(external, 3, b"inline", directory=None, taken_at_millis=2)
    assert snapshot_path(inline, index, where="here") is None
    # Others who publish keep the record, which they do not know, and it is none of what they published.
    theirs = replace(external, snapshot_ts_millis=7)
    assert snapshot_path(theirs, index, where="here") == f"_indices/{index}/index.lance"
    prove(b"anything", theirs, where="here")


def test_bytes_that_are_not_those_published_never_reach_the_library() -> None:
    details = shard_snapshot.published(IndexDetails(), 1, b"inline", directory=None, taken_at_millis=2)
    prove(b"inline", details, where="here")
    for damaged in (b"inlinf", b"inlin", b"", b"inline "):
        with pytest.raises(CorruptionError, match=r"checksum.*\[here\]"):
            prove(damaged, details, where="here")


def test_null_numbers_and_doubled_shards_are_corrupt() -> None:
    table = to_table([SHARD])
    at = table.schema.get_field_index("version")
    nulls = table.set_column(at, "version", pa.nulls(1, pa.uint64()))
    with pytest.raises(CorruptionError, match="not a manifest"):
        from_table(nulls, where="here")
    with pytest.raises(CorruptionError, match="two rows of one shard"):
        from_table(pa.concat_tables([table, table]), where="here")

"""Files of the base table that Weir has written have checksums beside them, and nobody carries damage on."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import weir
from weir.engine.context import default_context
from weir.errors import CorruptionError
from weir.format.file_checksums import CHECKSUMS
from weir.maintenance.verify import VerifyReport

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("number", pa.int64())])
NUMBER = 0x0123_4567_89AB_CDEF


def made(uri: Path, merges: int = 2) -> weir.Table:
    """Return a table with some data files, and a deletion file."""
    table = weir.create(uri, SCHEMA, primary_key="id")
    for merge in range(merges):
        with table.writer() as writer:
            # So many different numbers that the library keeps them as they are.
            writer.upsert([{"id": key, "number": NUMBER + key * 7919} for key in range(merge * 500, 1000)])
        table.maintenance.merge()
    return table


def turn_a_bit_over(uri: Path, pattern: str) -> tuple[Path, bytes]:
    """Turn a bit of a value over; return the file, and what it was."""
    path = max((one for one in uri.glob(pattern) if one.is_file()), key=lambda one: one.stat().st_mtime_ns)
    original = path.read_bytes()
    damaged = bytearray(original)
    damaged[len(original) // 3] ^= 4
    path.write_bytes(damaged)
    default_context().cache.clear()
    return path, original


def verified(uri: Path) -> VerifyReport:
    return weir.open(uri).maintenance.verify()


def files_of(uri: Path) -> set[str]:
    return {file.path for fragment in lance.dataset(uri).get_fragments() for file in fragment.data_files()}


@pytest.mark.parametrize("pattern", ["data/*.lance", "_deletions/*", "_indices/*/page_data.lance"])
def test_verify_names_the_file(tmp_path: Path, pattern: str) -> None:
    made(tmp_path / "t")
    assert verified(tmp_path / "t").findings == ()
    path, original = turn_a_bit_over(tmp_path / "t", pattern)
    found = {(one.check, one.where) for one in verified(tmp_path / "t").errors}
    assert ("base.checksum", str(path)) in {(check, where.removeprefix("file://")) for check, where in found}
    path.write_bytes(original)
    default_context().cache.clear()
    assert verified(tmp_path / "t").findings == ()


def test_compaction_carries_no_damage_on(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    rows = table.scan().to_table().sort_by("id")
    path, original = turn_a_bit_over(tmp_path / "t", "data/*.lance")
    before = files_of(tmp_path / "t")
    with pytest.raises(CorruptionError, match="compaction would copy the damage") as raised:
        weir.open(tmp_path / "t").maintenance.compact()
    assert path.name in str(raised.value)
    assert files_of(tmp_path / "t") == before
    path.write_bytes(original)
    default_context().cache.clear()
    weir.open(tmp_path / "t").maintenance.compact()
    assert weir.open(tmp_path / "t").scan().to_table().sort_by("id") == rows
    assert verified(tmp_path / "t").findings == ()


def test_compaction_makes_no_index_of_a_damaged_one(tmp_path: Path) -> None:
    """The library would write it anew, and what it wrote would have a checksum of its own."""
    table = made(tmp_path / "t")
    rows = table.scan().to_table().sort_by("id")
    path, _ = turn_a_bit_over(tmp_path / "t", "_indices/*/page_data.lance")
    with pytest.raises(CorruptionError, match="would copy the damage") as raised:
        weir.open(tmp_path / "t").maintenance.compact()
    assert path.name in str(raised.value)
    assert weir.open(tmp_path / "t").maintenance.repair().repairs
    default_context().cache.clear()
    weir.open(tmp_path / "t").maintenance.compact()
    again = weir.open(tmp_path / "t")
    assert again.scan().to_table().sort_by("id") == rows
    assert again.get(rows.column("id")).num_rows == rows.num_rows
    assert verified(tmp_path / "t").findings == ()


def test_a_merge_carries_no_damage_on(tmp_path: Path) -> None:
    table = made(tmp_path / "t", merges=1)
    with table.writer() as writer:
        writer.upsert([{"id": key, "number": NUMBER - key * 7919} for key in range(1000)])
    rows = table.scan().to_table().sort_by("id")
    path, original = turn_a_bit_over(tmp_path / "t", "_mem_wal/*/*_gen_2/data/*.lance")
    with pytest.raises(CorruptionError, match="is not what was written") as raised:
        weir.open(tmp_path / "t").maintenance.merge()
    assert path.name in str(raised.value)
    path.write_bytes(original)
    default_context().cache.clear()
    weir.open(tmp_path / "t").maintenance.merge()
    assert weir.open(tmp_path / "t").scan().to_table().sort_by("id") == rows


@pytest.mark.parametrize("divided", [False, True])
def test_a_merge_carries_no_damaged_deletions_on(tmp_path: Path, divided: bool) -> None:
    """It deletes more rows of the fragment, and writes those down anew that were deleted before."""
    table = made(tmp_path / "t")
    rows = table.scan().to_table().sort_by("id")
    path, original = turn_a_bit_over(tmp_path / "t", "_deletions/*")
    again = weir.open(tmp_path / "t")
    with again.writer() as writer:
        writer.delete([7])
    with pytest.raises(CorruptionError) as raised:
        again.maintenance.merge(divided=divided)
    assert path.name in str(raised.value)
    path.write_bytes(original)
    default_context().cache.clear()
    again = weir.open(tmp_path / "t")
    again.maintenance.merge(divided=divided)
    assert again.scan(consistency="snapshot").to_table().sort_by("id") == rows.filter(pc.field("id") != 7)
    assert verified(tmp_path / "t").findings == ()


def test_a_sorted_compaction_carries_no_damage_on(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key=None, sort_by="id")
    for begin in (0, 500):
        with table.writer() as writer:
            writer.upsert([{"id": key, "number": NUMBER + key * 7919} for key in range(begin, begin + 500)])
        table.maintenance.merge()
    path, _ = turn_a_bit_over(tmp_path / "t", "data/*.lance")
    before = files_of(tmp_path / "t")
    with pytest.raises(CorruptionError, match="compaction would copy the damage") as raised:
        weir.open(tmp_path / "t").maintenance.compact()
    assert path.name in str(raised.value)
    assert files_of(tmp_path / "t") == before


def test_widening_carries_no_damage_on(tmp_path: Path) -> None:
    narrow = pa.schema([SCHEMA.field("id"), pa.field("number", pa.int32())])
    table = weir.create(tmp_path / "t", narrow, primary_key="id")
    with table.writer() as writer:
        writer.upsert([{"id": key, "number": key * 7919 % 2**31} for key in range(1000)])
    table.maintenance.merge()
    path, _ = turn_a_bit_over(tmp_path / "t", "data/*.lance")
    with pytest.raises(CorruptionError, match="widening would copy the damage") as raised:
        weir.open(tmp_path / "t").alter(widen={"number": pa.int64()})
    assert path.name in str(raised.value)
    assert weir.open(tmp_path / "t").schema == narrow


@pytest.mark.parametrize("divided", [False, True])
def test_a_merge_names_the_file_that_stops_it(tmp_path: Path, divided: bool) -> None:
    table = made(tmp_path / "t")
    with table.writer() as writer:
        writer.delete([7])
    path, original = turn_a_bit_over(tmp_path / "t", "_deletions/*")
    path.write_bytes(original[: len(original) // 2])
    with pytest.raises(CorruptionError) as raised:
        weir.open(tmp_path / "t").maintenance.merge(divided=divided)
    assert path.name in str(raised.value)


def test_checksums_go_with_the_last_of_their_files(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    before = set((tmp_path / "t" / CHECKSUMS).iterdir())
    assert len(before) >= 2
    table.maintenance.compact()
    table.maintenance.collect_garbage(horizon=timedelta(0), version_retention=timedelta(0))
    left = set((tmp_path / "t" / CHECKSUMS).iterdir())
    assert not before & left
    assert left
    assert verified(tmp_path / "t").findings == ()


def test_what_lance_alone_has_written_passes(tmp_path: Path) -> None:
    made(tmp_path / "t")
    lance.write_dataset(
        pa.table({"id": [5000], "number": [1]}, schema=SCHEMA), str(tmp_path / "t"), mode="append"
    )
    assert verified(tmp_path / "t").passed
    weir.open(tmp_path / "t").maintenance.compact()
    assert verified(tmp_path / "t").passed


def test_checksums_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    made(tmp_path / "t")
    path, _ = turn_a_bit_over(tmp_path / "t", f"{CHECKSUMS}/*")
    report = verified(tmp_path / "t")
    assert report.passed
    assert [one.check for one in report.findings] == ["base.checksums"]
    assert path.name in report.findings[0].where

"""The details of the first MemWAL index, against bytes written by hand, and tables that have them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.base.table_kit import new_table
from tests.format.wire import bytes_field, number_field

import weir
from weir.base.manifest import read_manifest
from weir.base.publish import publish_details
from weir.base.table import BaseTable
from weir.errors import CorruptionError, FirstIndexError, InputError, TableError
from weir.format import first_index_details, index_details
from weir.format.first_index_details import FirstIndexDetails, MemWal, MemWalState
from weir.format.index_details import IndexDetails
from weir.format.u64_segment import U64Segment
from weir.maintenance.inspect import inspect
from weir.storage.open import open_store

WHERE = "_versions/1.manifest"


def mem_wal(region: bytes, generation: int, state: int, *, entries: bytes = b"", more: bytes = b"") -> bytes:
    body = (
        bytes_field(1, bytes_field(1, region) + number_field(2, generation))
        + bytes_field(2, b"memory://a")
        + bytes_field(3, b"s3://wal/a")
        + (bytes_field(4, entries) if entries else b"")
        + number_field(5, state)
        + bytes_field(6, b"owner")
        + number_field(7, 300)
        + more
    )
    return bytes_field(1, body)


ENTRIES = bytes_field(1, number_field(2, 3))
STORED = (
    mem_wal(b"eu", 0, 3, entries=ENTRIES)
    + mem_wal(b"eu", 1, 2, entries=ENTRIES)
    + mem_wal(b"eu", 2, 1, entries=ENTRIES)
    + mem_wal(b"eu", 3, 0)
    + mem_wal(b"us", 0, 0, more=bytes_field(77, b"of a newer writer"))
)


def test_details_are_read_and_written_back_byte_for_byte() -> None:
    details = first_index_details.decode(STORED, where=WHERE)
    assert [(one.region, one.generation, one.state.name) for one in details.mem_wals] == [
        ("eu", 0, "MERGED"),
        ("eu", 1, "FLUSHED"),
        ("eu", 2, "SEALED"),
        ("eu", 3, "OPEN"),
        ("us", 0, "OPEN"),
    ]
    first = details.mem_wals[0]
    assert (first.mem_table_location, first.wal_location) == ("memory://a", "s3://wal/a")
    assert first.owner_id == "owner"
    assert (first.last_updated_dataset_version, list(first.entries)) == (300, [0, 1, 2])
    assert first_index_details.encode(details) == STORED


def test_what_is_made_is_what_is_stored() -> None:
    made = MemWal(
        "eu", 1, "memory://a", "s3://wal/a", U64Segment.of(range(3)), MemWalState.FLUSHED, "owner", 300
    )
    assert first_index_details.encode(FirstIndexDetails((made,))) == mem_wal(b"eu", 1, 2, entries=ENTRIES)


def test_forms_are_told_apart() -> None:
    assert first_index_details.is_first_form(STORED)
    today = IndexDetails(snapshot_ts_millis=5, num_shards=3, maintained_indexes=("a",))
    for details in (today, replace(today, snapshot_ts_millis=0), IndexDetails()):
        assert not first_index_details.is_first_form(index_details.encode(details))


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (mem_wal(b"eu", 1, 4), "state 4"),
        (
            mem_wal(b"eu", 1, 2, entries=bytes_field(1, number_field(1, 3))),
            "WAL entries of generation 1 of region 'eu'",
        ),
        (mem_wal(b"eu", 1, 2) + mem_wal(b"eu", 1, 3), "twice"),
        (mem_wal(b"eu", 1, 0) + mem_wal(b"eu", 2, 0), "two MemWALs that are open"),
        (
            # 5, 7, 5, as an array in any order.
            mem_wal(b"eu", 1, 2, entries=bytes_field(5, bytes_field(1, bytes_field(2, b"\5\0\7\0\5\0")))),
            "entry of the WAL of generation 1 of region 'eu' is listed twice",
        ),
        (STORED[:-1], "cannot be decoded"),
        (mem_wal(b"\xff", 1, 0), "cannot be decoded"),
    ],
)
def test_damage(stored: bytes, message: str) -> None:
    with pytest.raises(CorruptionError, match=message) as caught:
        first_index_details.decode(stored, where=WHERE)
    assert caught.value.where == WHERE


def test_a_number_that_does_not_fit() -> None:
    (one, *_) = first_index_details.decode(STORED, where=WHERE).mem_wals
    with pytest.raises(InputError, match="cannot be encoded"):
        first_index_details.encode(FirstIndexDetails((replace(one, generation=-1),)))


def first_form(base: BaseTable) -> None:
    """Give a table details of the first form, of which the library commits nothing."""
    # Of the same length, so that nothing of the manifest moves.
    filler = bytes_field(2000, bytes(len(STORED) - 4))
    assert len(filler) == len(STORED)
    manifest = read_manifest(base.store, base.version)
    version = publish_details(base.store, manifest, IndexDetails(unknown_fields=filler))
    assert version is not None
    path = Path(base.uri, read_manifest(base.store, version).path)
    data = path.read_bytes()
    # In the index section, and in the copy of the transaction.
    assert data.count(filler) == 2
    path.write_bytes(data.replace(filler, STORED))


def test_a_table_of_the_first_form_says_what_it_is(tmp_path: Path) -> None:
    base = new_table(tmp_path, rows=[(1, "a")])
    first_form(base)
    before = {path: path.stat().st_mtime_ns for path in Path(base.uri).rglob("*")}
    with pytest.raises(FirstIndexError, match="5 MemWALs of 2 regions") as caught:
        BaseTable.open(base.store)
    assert "weir inspect" in str(caught.value)
    states = ["MERGED", "FLUSHED", "SEALED", "OPEN", "OPEN"]
    for what in (None, "details"):
        found = inspect(open_store(base.uri), what)
        assert found.kind == "details of the first MemWAL index"
        assert [one["state"] for one in found.facts["mem_wals"]] == states
        assert found.facts["mem_wals"][2]["wal_entries"] == "3 before 3 (range)"
    for refused in (weir.drop, lambda uri: weir.adopt(uri, primary_key="id")):
        with pytest.raises(TableError):
            refused(base.uri)
    assert {path: path.stat().st_mtime_ns for path in Path(base.uri).rglob("*")} == before

"""Damaged and unknown details of the first MemWAL index: an error with the place, and nothing changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.first_index.kit import files, first_table, mem_wal, publish, publish_bytes, rows_in
from tests.format.wire import bytes_field, number_field

import weir
from weir.cli.main import main
from weir.errors import CorruptionError, OptionError
from weir.first_index.commit import newest_manifest
from weir.first_index.inspect import inspect_regions
from weir.first_index.writer import RegionWriter
from weir.format.first_index_details import MemWalState
from weir.format.u64_segment import U64Segment
from weir.storage.interface import ObjectStore

OPEN, SEALED, FLUSHED, MERGED = MemWalState
ROW = [(1, "x")]


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return first_table(tmp_path, [(1, "a"), (2, "b")], [(mem_wal("eu", 0, OPEN), [ROW])])


def stored(generation: int = 0, *, state: int = 0, entries: bytes = b"", id: bytes | None = None) -> bytes:
    own = bytes_field(1, b"eu") + number_field(2, generation) if id is None else id
    fields = [
        bytes_field(1, own),
        bytes_field(3, b"wals/eu"),
        bytes_field(4, entries),
        number_field(5, state),
    ]
    return bytes_field(1, b"".join(fields) + bytes_field(6, b"owner"))


def numbers(*values: int) -> bytes:
    return bytes_field(3, bytes_field(2, b"".join(value.to_bytes(8, "little") for value in values)))


DAMAGED = {
    "a state that is not known": (stored(state=4), "state 4"),
    "cut short": (stored()[:-3], "cannot be decoded"),
    "a generation twice": (stored() + stored(state=3), "listed twice"),
    "two that are open": (stored() + stored(1), "two MemWALs that are open"),
    "a name that is no text": (stored(id=bytes_field(1, b"\xff")), "cannot be decoded"),
    "a segment that is no message": (stored(entries=b"\xff"), "WAL entries of generation 0"),
    "a form of segment that is not known": (stored(entries=bytes_field(9, b"")), "unknown form"),
    "a range that ends before it": (stored(entries=bytes_field(1, number_field(1, 3))), "ends before it"),
    "holes outside": (
        stored(entries=bytes_field(2, number_field(2, 3) + bytes_field(3, numbers(7)))),
        "out of order or out of range",
    ),
    "a bitmap of another length": (
        stored(entries=bytes_field(3, number_field(2, 9) + bytes_field(3, b"\1"))),
        "bitmap has 1 bytes",
    ),
    "a sorted array that is not": (stored(entries=bytes_field(4, numbers(5, 3))), "does not ascend"),
    "an entry twice": (stored(entries=bytes_field(5, numbers(5, 7, 5))), "listed twice"),
}

STEPS: list[tuple[str, Callable[[ObjectStore], object]]] = [
    ("open", lambda store: weir.open(store.uri)),
    ("claim", lambda store: RegionWriter.claim(store, "eu")),
    ("upgrade", lambda store: weir.upgrade(store.uri)),
    ("dry run", lambda store: weir.upgrade(store.uri, dry_run=True)),
    ("copy", lambda store: weir.upgrade(store.uri, into=f"{store.uri}-copy")),
    ("drop", lambda store: weir.drop(store.uri)),
]


@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_details_are_an_error_with_their_place(
    store: ObjectStore, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table, writer = weir.open(store.uri), RegionWriter.claim(store, "eu")
    data, message = DAMAGED[kind]
    publish_bytes(store, data)
    before = files(store)
    opened: list[tuple[str, Callable[[ObjectStore], object]]] = [
        ("read", lambda _: table.scan().to_table()),
        ("seal", lambda _: writer.seal()),
        ("merge", lambda _: writer.merge() or writer.flush() or writer.seal()),
        ("verify", lambda _: table.maintenance.verify()),
    ]
    place = newest_manifest(store).where
    for what, step in STEPS + opened:
        with pytest.raises(CorruptionError, match=message) as caught:
            step(store)
        assert caught.value.where == place, what
        assert files(store) == before, what
        assert not Path(f"{store.uri}-copy").exists()
    # Who looks into it is shown what can be read, and told what is wrong.
    assert main(["inspect", store.uri]) == 1
    assert message in capsys.readouterr().err
    assert files(store) == before


def test_lists_of_more_entries_than_there_can_be(store: ObjectStore) -> None:
    """A damaged range of all numbers ends neither memory nor patience."""
    everything = mem_wal("eu", 0, OPEN, entries=U64Segment(0, (1 << 64) - 1))
    publish(store, everything)
    before = files(store)
    table = weir.open(store.uri)
    for step in (lambda: table.scan().count(), lambda: RegionWriter.claim(store, "eu")):
        with pytest.raises(CorruptionError, match=r"entry 1 of the WAL .* is listed but missing"):
            step()
    report = table.maintenance.verify()
    assert len(report.errors) == 101
    assert "those after them were not read" in report.errors[-1].message
    (shown,) = inspect_regions(store).facts["mem_wals"]
    assert shown["wal_entries"].startswith("18446744073709551615 before")
    assert files(store) == before


def test_rows_of_a_flush_that_are_damaged(store: ObjectStore) -> None:
    """Reads go by the WAL and show every row; the merge, which goes by them, changes nothing."""
    with RegionWriter.claim(store, "eu") as writer:
        writer.seal()
        writer.flush()
        (path,) = Path(store.uri, "_weir/regions/6575/a-0-rows").iterdir()
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        before = files(store)
        with pytest.raises(CorruptionError, match="checksum") as caught:
            writer.merge()
        assert caught.value.where == str(path)
        table = weir.open(store.uri)
        assert rows_in(table) == {1: "x", 2: "b"}
        assert [one.check for one in table.maintenance.verify().errors] == ["first_index.flushed"]
        assert files(store) == before
        path.unlink()
        with pytest.raises(CorruptionError, match="listed but missing"):
            writer.merge()
    # The way out: its WAL is whole.
    weir.upgrade(store.uri)
    assert rows_in(weir.open(store.uri)) == {1: "x", 2: "b"}


def test_a_single_mem_wal_and_a_single_entry_are_shown(
    store: ObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = mem_wal("a/1", 2, OPEN, wal_location=str(tmp_path / "wals"))
    listed = mem_wal("eu", 0, OPEN, entries=U64Segment.of([0, 2]))
    publish(store, listed, elsewhere)
    with RegionWriter.claim(store, "a/1") as writer:
        writer.upsert([{"id": 7, "value": "elsewhere"}])
    shown = inspect_regions(store, "region/a/1/2")
    assert (shown.kind, shown.facts["region"], shown.facts["state"]) == ("MemWAL", "a/1", "OPEN")
    entry = inspect_regions(store, "region/a/1/2/0", rows=True)
    assert entry.facts["is_listed"]
    assert entry.where.startswith(str(tmp_path / "wals"))
    assert entry.rows is not None
    assert entry.rows.column("value").to_pylist() == ["elsewhere"]
    assert main(["inspect", store.uri, "region/eu/0/0", "--rows"]) == 0
    assert "is_listed" in capsys.readouterr().out
    path = Path(store.uri, "_weir/regions/6575/a-0")
    (file,) = path.iterdir()
    file.write_bytes(file.read_bytes()[:-20])
    assert main(["inspect", store.uri, "region/eu/0/0"]) == 1
    # One that is listed but missing, and what is no MemWAL.
    assert main(["inspect", store.uri, "region/eu/0/2"]) == 2
    assert "there is no such object" in capsys.readouterr().err
    for what in ("region/eu/7", "region/eu/0/x", "region/eu/0/1/2", "region/us/0", "region/"):
        with pytest.raises(OptionError, match="no such MemWAL"):
            inspect_regions(store, what)


def test_a_table_of_today_has_no_regions_to_show(store: ObjectStore) -> None:
    weir.upgrade(store.uri)
    with pytest.raises(OptionError, match="has no regions"):
        inspect_regions(store, "region/eu/0")

"""Reading tables with the first MemWAL index: base and unmerged MemWALs, newest generation wins."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.first_index.kit import (
    BASE,
    EXPECTED,
    MEM_WALS,
    files,
    first_table,
    mem_wal,
    publish,
    rows_in,
    rows_of,
)

import weir
from weir.base.create import create_base_table
from weir.base.table import BaseTable
from weir.cli.main import main
from weir.errors import CorruptionError, FirstIndexError
from weir.first_index.view import base_of, base_only, take_view
from weir.first_index.wal import RegionWal
from weir.first_index.writer import RegionWriter
from weir.format.first_index_details import MemWal, MemWalState
from weir.format.u64_segment import U64Segment
from weir.storage.interface import ObjectStore
from weir.storage.local import LocalStore

OPEN, SEALED, FLUSHED, MERGED = MemWalState


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return first_table(tmp_path, BASE, MEM_WALS)


def test_every_read_shows_what_is_not_merged(store: ObjectStore) -> None:
    before = files(store)
    table = weir.open(store.uri)
    assert rows_in(table) == EXPECTED
    assert table.get([1, 4, 5]).to_pylist() == [{"id": 4, "value": "D"}, {"id": 5, "value": "E"}]
    assert table.scan(filter="id > 4").count() == 2
    assert table.sql("select max(value) as last from people", name="people").to_table().to_pylist() == [
        {"last": "i"}
    ]
    assert table.status().base_rows == 3
    again = pickle.loads(pickle.dumps(table))
    assert rows_in(again) == EXPECTED
    assert "RegionTable" in repr(table)
    assert files(store) == before


def test_a_read_shows_the_newest_version(store: ObjectStore) -> None:
    table = weir.open(store.uri)
    assert rows_in(table) == EXPECTED
    view = base_only(store)
    assert view is not None
    base = base_of(view)
    one = mem_wal("us", 0, OPEN, entries=U64Segment.of([0, 3]))
    RegionWal(store).append(one, 3, rows_of(base, [(9, "later")]))
    # A hole between: an entry that another writer left, and that nobody was told of.
    RegionWal(store).append(one, 2, rows_of(base, [(8, "never acknowledged")]))
    publish(store, one)
    assert rows_in(table) == {1: "a", 3: "c", 9: "later"}


def test_of_two_regions_with_a_key_the_higher_generation_wins(tmp_path: Path) -> None:
    store = first_table(
        tmp_path,
        BASE,
        [
            (mem_wal("us", 7, OPEN), [[(1, "us 7"), (2, "us 7")]]),
            (mem_wal("eu", 8, OPEN), [[(1, "eu 8")]]),
            (mem_wal("af", 7, OPEN), [[(2, "af 7")]]),
        ],
    )
    table = weir.open(store.uri)
    assert rows_in(table) == {1: "eu 8", 2: "us 7", 3: "c"}
    report = table.maintenance.verify()
    assert [one.check for one in report.findings] == ["first_index.shared_keys"]
    assert report.findings[0].message.startswith("2 keys")
    assert report.passed


WRITES: list[tuple[str, Callable[[Any], object]]] = [
    ("upsert", lambda table: table.upsert([{"id": 1, "value": "x"}])),
    ("delete", lambda table: table.delete([1])),
    ("writer", lambda table: table.writer()),
    ("load", lambda table: table.load([{"id": 1}])),
    ("alter", lambda table: table.alter(drop=["value"])),
    ("merge", lambda table: table.maintenance.merge()),
    ("compact", lambda table: table.maintenance.compact()),
    ("collect", lambda table: table.maintenance.collect_garbage()),
    ("index", lambda table: table.indexes.create("value")),
    ("drop index", lambda table: table.indexes.drop("id_idx")),
    ("policy", lambda table: table.indexes.policy()),
    ("snapshot", lambda table: table.snapshot()),
    ("tag", lambda table: table.tags.create("x", table.snapshot(retain=None))),
    ("consumer", lambda table: list(table.changes(since="earliest", consumer="x"))),
    ("changes", lambda table: table.changes(since="earliest")),
    ("change feed of a copy", lambda table: pickle.loads(pickle.dumps(table)).changes()),
    ("drop", lambda table: weir.drop(table.uri)),
    ("clone", lambda table: weir.clone(table.uri, table.uri + "-clone")),
]


def test_what_writes_is_refused_by_name(store: ObjectStore) -> None:
    before = files(store)
    table = weir.open(store.uri)
    for what, write in WRITES:
        with pytest.raises(FirstIndexError, match="first form of the MemWAL index") as caught:
            write(table)
        assert caught.value.where is not None, what
        assert store.uri in caught.value.where, what
        assert files(store) == before, what


def test_verify_and_inspect_show_the_regions(store: ObjectStore, capsys: pytest.CaptureFixture[str]) -> None:
    table = weir.open(store.uri)
    report = table.maintenance.verify()
    assert (report.findings, report.shards, report.generations, report.entries) == ((), 2, 5, 6)
    shown = table.inspect.show()
    assert shown.kind == "details of the first MemWAL index"
    assert [one["region"] for one in shown.facts["mem_wals"]] == ["eu", "eu", "eu", "eu", "us"]
    assert main(["verify", store.uri]) == 0
    assert main(["inspect", store.uri]) == 0
    assert "FLUSHED" in capsys.readouterr().out


def entry_file(store: ObjectStore, one: MemWal, entry: int) -> Path:
    (found,) = (
        Path(store.uri, each.path)
        for each in store.list(one.wal_location)
        if int(Path(each.path).stem[::-1], 2) == entry
    )
    return found


def damaged(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def of_another_generation(path: Path) -> None:
    (other,) = Path(path.parent.parent, "a-2").glob("1000*")
    path.write_bytes(other.read_bytes())


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "gone": (Path.unlink, "listed but missing"),
    "damaged": (damaged, "checksum"),
    "of another generation": (of_another_generation, "is of generation 2"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_an_entry_that_cannot_be_read_is_an_error_with_its_place(store: ObjectStore, kind: str) -> None:
    do, message = DAMAGE[kind]
    path = entry_file(store, MEM_WALS[1][0], 1)
    do(path)
    before = files(store)
    table = weir.open(store.uri)
    with pytest.raises(CorruptionError, match=message) as caught:
        table.scan().to_table()
    assert caught.value.where == str(path)
    report = table.maintenance.verify()
    assert [one.check for one in report.errors] == ["first_index.entry"]
    assert str(path) in report.errors[0].message
    assert message in report.errors[0].message
    assert files(store) == before


def test_states_out_of_order_are_found(tmp_path: Path) -> None:
    store = first_table(
        tmp_path, BASE, [(mem_wal("eu", 0, SEALED), [[(1, "x")]]), (mem_wal("eu", 1, MERGED), [])]
    )
    report = weir.open(store.uri).maintenance.verify()
    assert [one.check for one in report.errors] == ["first_index.order"]


def test_wals_elsewhere_and_readers_of_other_forms(tmp_path: Path) -> None:
    elsewhere = mem_wal("eu", 0, OPEN, wal_location=str(tmp_path / "wals" / "eu"))
    store = first_table(tmp_path / "table", BASE, [(elsewhere, [[(1, "elsewhere")]])])
    assert rows_in(weir.open(store.uri)) == {1: "elsewhere", 2: "b", 3: "c"}
    assert len(list((tmp_path / "wals" / "eu").iterdir())) == 1

    class Csv:
        def read(self, mem_wal: MemWal, entry: int) -> pa.Table:
            return pa.table({"value": [f"{mem_wal.region} {entry}"], "id": pa.array([entry], pa.int32())})

    publish(store, mem_wal("eu", 0, OPEN, entries=U64Segment.of([1, 7])))
    view = take_view(store, reader=Csv())
    assert view is not None
    table = weir.Table(view, base_of(view), is_tended=False)
    assert rows_in(table) == {1: "eu 1", 2: "b", 3: "c", 7: "eu 7"}


def test_the_base_table_alone_is_not_taken_for_the_table(store: ObjectStore) -> None:
    with pytest.raises(FirstIndexError, match="5 MemWALs of 2 regions"):
        BaseTable.open(store)


def test_searches_by_the_indexes_of_the_base_table_and_the_rows_above_it(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("text", pa.string()), ("at", pa.list_(pa.float32(), 2))])
    texts = [f"word{n} common" for n in range(300)]
    places = pa.array([[float(n), 0.0] for n in range(300)], schema.field("at").type)
    rows = pa.table([pa.array(range(300)), texts, places], schema=schema)
    store = LocalStore(tmp_path / "table", fsync=False)
    create_base_table(store, schema, ("id",), initial_data=rows)
    today = weir.open(store.uri)
    today.indexes.create("text", "INVERTED")
    today.indexes.create("at", "IVF_FLAT", num_partitions=4)
    publish(store, mem_wal("eu", 0, OPEN))
    with RegionWriter.claim(store, "eu") as writer:
        moved = {"id": 5, "text": "word7 fresh", "at": [900.0, 0.0]}
        writer.upsert([moved, {"id": 400, "text": "fresh", "at": [5.0, 0.0]}])
        writer.delete([6])
        table = weir.open(store.uri)
        for step in (lambda: None, writer.seal, writer.flush, writer.merge, lambda: weir.upgrade(store.uri)):
            step()
            nearest = [near(table, place) for place in (5.0, 6.0, 900.0)]
            assert nearest == [[400, 4], [7, 400], [5, 299]]
            texts_found = [found(table, word) for word in ("fresh", "word7", "word5", "word6")]
            assert texts_found == [{5, 400}, {5, 7}, set(), set()]
            both = table.search_hybrid([5.0, 0.0], "word7", 5).to_table()
            assert {400, 5, 7} <= set(both.column("id").to_pylist())


def near(table: Any, place: float) -> list[int]:
    found: list[int] = table.search([place, 0.0], 2, nprobes=4).to_table().column("id").to_pylist()
    return found


def found(table: Any, word: str) -> set[int]:
    return set(table.search_text(word, 9).to_table().column("id").to_pylist())


def test_the_status_says_since_when_rows_wait(store: ObjectStore) -> None:
    (shard,) = weir.open(store.uri).status().shards
    assert shard.unflushed_rows == 8
    # Since the version was published, not since the epoch.
    assert 0 <= shard.lag_seconds < 3600

"""Columns that plain Lance adds, drops, renames and swaps while rows are unmerged.

What a column is, its field id says: a renamed one keeps its values, and one that was dropped and added again
under its old name has none of them. The library's own readers show the same.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import lance
import pyarrow as pa
import pytest

import weir
from tests.conformance import library
from weir.base.schema import key_metadata

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata=key_metadata(0, 1)),
        ("gone", pa.int32()),
        ("a", pa.int32()),
        ("b", pa.int32()),
        ("s", pa.struct([("x", pa.int32()), ("y", pa.int32())])),
    ]
)
ROWS: list[dict[str, Any]] = [
    {"id": 1, "gone": 5, "a": 10, "b": 100, "s": {"x": 1, "y": 2}},
    {"id": 2, "gone": 6, "a": 20, "b": 200, "s": None},
]
Alter = Callable[[lance.LanceDataset], None]


def renamed(dataset: lance.LanceDataset, path: str, name: str) -> None:
    dataset.alter_columns({"path": path, "name": name})  # type: ignore[dict-item]


def add(dataset: lance.LanceDataset) -> None:
    dataset.add_columns(pa.field("n", pa.int32()))


def rename(dataset: lance.LanceDataset) -> None:
    renamed(dataset, "a", "c")


def swap(dataset: lance.LanceDataset) -> None:
    renamed(dataset, "a", "t")
    renamed(dataset, "b", "a")
    renamed(dataset, "t", "b")


def drop_and_add(dataset: lance.LanceDataset) -> None:
    dataset.drop_columns(["a"])
    dataset.add_columns(pa.field("a", pa.int32()))


def drop_and_add_inside(dataset: lance.LanceDataset) -> None:
    dataset.drop_columns(["s.x"])
    dataset.add_columns(pa.schema([("s", pa.struct([("x", pa.int32())]))]))


def rename_inside(dataset: lance.LanceDataset) -> None:
    renamed(dataset, "s.x", "z")


AFTER: dict[Alter, Callable[[dict[str, Any]], dict[str, Any]]] = {
    add: lambda row: {**row, "n": None},
    rename: lambda row: {"c" if name == "a" else name: value for name, value in row.items()},
    swap: lambda row: {**row, "a": row["b"], "b": row["a"]},
    drop_and_add: lambda row: {**row, "a": None},
    drop_and_add_inside: lambda row: {**row, "s": row["s"] and {"y": row["s"]["y"], "x": None}},
    rename_inside: lambda row: {**row, "s": row["s"] and {"z": row["s"]["x"], "y": row["s"]["y"]}},
}


def by_id(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=lambda row: int(row["id"]))


def make(path: Path) -> weir.Table:
    """Make a table whose field ids have a gap, as after one dropped column."""
    table = weir.create(str(path), SCHEMA, primary_key="id", fsync=False)
    lance.dataset(str(path)).drop_columns(["gone"])
    return weir.open(table.uri, fsync=False)


def shown(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "gone"} for row in rows]


def write(table: weir.Table, rows: list[dict[str, Any]], *, by: str, flush: bool) -> None:
    if by == "weir":
        with table.writer(flush_on_close=flush) as writer:
            writer.upsert(rows)
        return
    shards = library.shards_of(Path(table.uri))
    dataset = lance.dataset(table.uri)
    put = dataset.mem_wal_writer(str(shards[0] if shards else uuid4()), max_wal_flush_interval_ms=1)
    put.put(pa.Table.from_pylist(rows, schema=dataset.schema))
    if flush:
        put.close()
    else:
        _left_open.append(put)


_left_open: list[Any] = []


@pytest.fixture(autouse=True)
def _closed() -> Any:
    yield
    while _left_open:
        library.close_quietly(_left_open.pop())


@pytest.mark.covering
@pytest.mark.parametrize("flush", [True, False], ids=["generation", "log"])
@pytest.mark.parametrize("by", ["weir", "library"])
@pytest.mark.parametrize("alter", AFTER, ids=lambda alter: alter.__name__)
def test_rows_keep_their_values(tmp_path: Path, alter: Alter, by: str, flush: bool) -> None:
    table = make(tmp_path)
    write(table, shown(ROWS), by=by, flush=flush)
    before = table.snapshot()
    if by == "weir":
        assert by_id(table.scan().to_table()) == shown(ROWS)
    alter(lance.dataset(table.uri))
    expected = [AFTER[alter](row) for row in shown(ROWS)]
    columns = list(expected[0])

    for reader in (table, weir.open(table.uri, fsync=False)):
        assert by_id(reader.scan().to_table()) == expected
        assert by_id(reader.get([1, 2])) == expected
        assert by_id(reader.scan(at=before).to_table()) == shown(ROWS)
    fresh = weir.open(table.uri, fsync=False)
    for name in (one for one in columns if one != "s"):
        first = expected[0][name]
        condition = f"{name} IS NULL" if first is None else f"{name} = {first}"
        found = fresh.scan(columns=[name], filter=condition).to_table().to_pylist()
        assert found == [{name: row[name]} for row in expected if row[name] == first]
        kept = sum(row[name] is not None for row in expected)
        assert fresh.scan(filter=f"{name} IS NOT NULL").count() == kept
    if flush:
        assert by_id(library.scan(Path(table.uri))) == expected
    if not flush:
        fresh.maintenance.recover(unleased=True)
    fresh.maintenance.merge()
    assert by_id(lance.dataset(table.uri).to_table()) == expected
    assert by_id(weir.open(table.uri, fsync=False).scan().to_table()) == expected


@pytest.mark.parametrize("alter", AFTER, ids=lambda alter: alter.__name__)
def test_the_library_takes_a_log_of_weir_over(tmp_path: Path, alter: Alter) -> None:
    table = make(tmp_path)
    write(table, shown(ROWS), by="weir", flush=False)
    alter(lance.dataset(table.uri))
    expected = [AFTER[alter](row) for row in shown(ROWS)]
    (shard,) = library.shards_of(tmp_path)
    writer = library.open_writer(tmp_path, shard)
    assert by_id(writer.lsm_scanner().to_table()) == expected
    writer.close()
    assert by_id(library.scan(tmp_path)) == expected
    assert by_id(weir.open(table.uri).scan().to_table()) == expected


def test_who_claims_a_shard_loses_no_column_that_it_has_not_seen(tmp_path: Path) -> None:
    table = make(tmp_path)
    late = weir.open(table.uri, fsync=False).writer()
    add(lance.dataset(table.uri))
    with weir.open(table.uri, fsync=False).writer(flush_on_close=False) as writer:
        writer.upsert([{"id": 1, "n": 5}])
    with late:
        late.delete([7])
        late.flush()
    assert library.scan(tmp_path).to_pylist() == [{"id": 1, "a": None, "b": None, "s": None, "n": 5}]


def test_a_writer_left_open_misplaces_nothing(tmp_path: Path) -> None:
    """Whether it has noticed the new names or not, and whatever was merged meanwhile."""
    table = make(tmp_path)
    with weir.open(table.uri, fsync=False).writer() as writer:
        writer.upsert([{"id": 1, "a": 1, "b": 10}])
        writer.flush()
        table.maintenance.merge()
        rename(lance.dataset(table.uri))
        writer.upsert([{"id": 2, "b": 20}])
        drop = lance.dataset(table.uri)
        drop.drop_columns(["c"])
        drop.add_columns(pa.field("a", pa.int32()))
        writer.upsert([{"id": 3, "b": 30}])
        writer.flush()
        renamed(lance.dataset(table.uri), "b", "d")
        expected = [{"id": key, "d": 10 * key, "s": None, "a": None} for key in (1, 2, 3)]
        fresh = weir.open(table.uri, fsync=False)
        assert by_id(fresh.scan().to_table()) == expected
        assert by_id(library.scan(tmp_path)) == expected
        fresh.maintenance.merge()
        assert by_id(lance.dataset(table.uri).to_table()) == expected

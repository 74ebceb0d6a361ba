from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import weir
from weir.base import torn_versions
from weir.base.manifest import manifest_path
from weir.base.torn_versions import SET_ASIDE
from weir.engine.context import default_context
from weir.errors import CorruptionError
from weir.maintenance.version_repairs import SetAsideTornVersion, SetAsideUnreadableManifest

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.string())])


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    """Return a table whose newest version, committed with Lance alone, has lost its manifest's bytes."""
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id")
    with table.writer() as writer:
        writer.upsert([{"id": 1, "value": "a"}])
    table.maintenance.merge()
    for number in (2, 3):
        rows = pa.table({"id": [number], "value": ["b"]}).cast(table.schema)
        lance.write_dataset(rows, table.uri, mode="append")
    return table


def manifest(table: weir.Table, version: int) -> Path:
    return Path(table.uri, manifest_path(version, counts_down=True))


def test_what_would_be_repaired_is_said_and_then_done(table: weir.Table) -> None:
    newest = lance.dataset(table.uri).version
    for version in (newest, newest - 1, newest - 4):
        manifest(table, version).write_bytes(b"")
    table = weir.open(table.uri)
    before = sorted(Path(table.uri).rglob("*"))
    planned = table.maintenance.repair(dry_run=True)
    assert sorted(Path(table.uri).rglob("*")) == before
    kinds = [(type(one), one.to_dict()["version"]) for one in planned.repairs]
    assert kinds == [
        (SetAsideTornVersion, newest),
        (SetAsideTornVersion, newest - 1),
        (SetAsideUnreadableManifest, newest - 4),
    ]
    assert not table.maintenance.verify().passed
    done = table.maintenance.repair()
    assert (done.repairs, done.version) == (planned.repairs, newest + 1)
    assert len(list(Path(table.uri, SET_ASIDE).glob("*.manifest"))) == 3
    assert table.maintenance.repair().repairs == ()
    assert [str(one) for one in table.maintenance.verify().findings] == []
    assert lance.dataset(table.uri).to_table().to_pylist() == [{"id": 1, "value": "a"}]


def test_a_writer_sets_aside_what_is_torn(table: weir.Table) -> None:
    newest = lance.dataset(table.uri).version
    manifest(table, newest).write_bytes(b"")
    again = weir.open(table.uri)
    with again.writer() as writer:
        writer.upsert([{"id": 5, "value": "e"}])
    assert not manifest(table, newest).exists()
    assert lance.dataset(table.uri).count_rows() == 2
    assert again.scan().count() == 3


CHANGES: dict[str, Callable[[weir.Table], object]] = {
    "columns": lambda table: table.alter(add=[pa.field("n", pa.int64())]),
    "index": lambda table: table.indexes.create("value", "BTREE"),
    "merge": lambda table: table.maintenance.merge(),
    "compaction": lambda table: table.maintenance.compact(),
    "load": lambda table: table.load(pa.table({"id": [9], "value": ["z"]})),
    "upkeep": lambda table: table.maintenance.run(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_whatever_commits_sets_aside_what_is_torn(
    table: weir.Table, change: Callable[[weir.Table], object]
) -> None:
    rows = pa.table({"id": [4], "value": ["b"]}).cast(table.schema)
    lance.write_dataset(rows, table.uri, mode="append")
    with table.writer() as writer:
        writer.upsert([{"id": 5, "value": "e"}])
    newest = lance.dataset(table.uri).version
    manifest(table, newest).write_bytes(b"")
    again = weir.open(table.uri)
    change(again)
    assert not manifest(table, newest).exists()
    assert lance.dataset(table.uri).version > newest
    assert {1, 2, 5} <= set(weir.open(table.uri).scan().to_table()["id"].to_pylist())


def test_a_collection_sets_older_manifests_aside_that_nobody_can_read(table: weir.Table) -> None:
    table.snapshot()
    with table.writer() as writer:
        writer.upsert([{"id": 6, "value": "f"}])
    older = lance.dataset(table.uri).version
    table.maintenance.merge()
    for version in (older, older - 1):
        manifest(table, version).write_bytes(b"")
    default_context().cache.clear()
    again = weir.open(table.uri)
    again.maintenance.collect_garbage(horizon=timedelta(0), version_retention=timedelta(0))
    again.maintenance.collect_garbage(horizon=timedelta(0), version_retention=timedelta(0))
    assert not manifest(table, older).exists()
    assert again.scan().count() == 4


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def removed(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize(
    ("damage", "name"),
    [(emptied, "page_data.lance"), (zeroed, "page_data.lance"), (removed, "page_lookup.lance")],
)
def test_a_table_of_which_nothing_but_an_index_is_torn_is_read_and_the_index_made_anew(
    tmp_path: Path, damage: Callable[[Path], None], name: str
) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id")
    with table.writer() as writer:
        writer.upsert([{"id": number, "value": "a"} for number in range(10)])
    table.maintenance.merge()
    table.maintenance.catch_up_indexes()
    damaged = [*Path(table.uri, "_indices").glob(f"*/{name}")]
    for path in damaged:
        damage(path)
    torn_versions._whole.clear()
    default_context().cache.clear()

    table = weir.open(table.uri)
    assert table.scan().to_table().num_rows == 10
    assert not table.maintenance.verify().passed
    with pytest.raises(CorruptionError, match="_indices/"):
        table.get([5])
    with table.writer() as writer:
        writer.upsert([{"id": 5, "value": "b"}])

    (planned,) = table.maintenance.repair(dry_run=True).repairs
    assert planned.where in [str(path.parent) for path in damaged]
    assert table.maintenance.repair().repairs == (planned,)
    assert table.maintenance.repair().repairs == ()
    assert table.maintenance.verify().errors == ()
    table.maintenance.merge()
    assert table.get([5, 6]).sort_by("id")["value"].to_pylist() == ["b", "a"]

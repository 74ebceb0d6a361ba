"""Tables with the first MemWAL index and no primary key: refused by name, and upgraded with one."""

from __future__ import annotations

import json
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from tests.crashes import kill_at
from tests.first_index.kit import files, mem_wal, publish, rows_in

import weir
from weir.base.dataset import open_dataset, primary_key_of
from weir.base.manifest import read_manifest
from weir.base.publish import publish_details
from weir.cli.main import main
from weir.errors import CorruptionError, KeyValueError, SchemaError
from weir.first_index.commit import newest_manifest
from weir.first_index.view import regions_of
from weir.first_index.wal import RegionWal
from weir.first_index.writer import RegionWriter
from weir.format.first_index_details import MemWalState
from weir.format.index_details import IndexDetails
from weir.format.u64_segment import U64Segment
from weir.storage.interface import ObjectStore
from weir.storage.local import LocalStore

OPEN = MemWalState.OPEN
BASE = [{"id": 1, "value": "a"}, {"id": 2, "value": "b"}]
FRESH = [{"id": 2, "value": "B"}, {"id": 3, "value": "c"}]
EXPECTED = {1: "a", 2: "B", 3: "c"}
SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.string())])


def keyless(directory: Path, rows: list[dict[str, object]], fresh: list[dict[str, object]]) -> ObjectStore:
    """Make a table as programs have that know no mark for keys: columns may be null, entries have no ids."""
    store = LocalStore(directory / "table", fsync=False)
    dataset = lance.write_dataset(pa.Table.from_pylist(rows, SCHEMA), store.uri)
    assert publish_details(store, read_manifest(store, dataset.version), IndexDetails()) is not None
    one = mem_wal("eu", 0, OPEN, entries=U64Segment.of([0]))
    RegionWal(store).append(one, 0, pa.Table.from_pylist(fresh, SCHEMA))
    publish(store, one)
    return store


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return keyless(tmp_path, BASE, FRESH)


def test_without_a_key_it_is_refused_with_what_to_do(
    store: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(store)
    for step in (
        lambda: weir.open(store.uri),
        lambda: weir.upgrade(store.uri),
        lambda: weir.upgrade(store.uri, dry_run=True),
        lambda: RegionWriter.claim(store, "eu"),
    ):
        with pytest.raises(SchemaError, match="no primary key") as caught:
            step()
        assert "--primary-key" in str(caught.value)
        assert files(store) == before
    assert main(["inspect", store.uri]) == 0
    assert "eu" in capsys.readouterr().out


def test_a_dry_run_checks_the_key_and_marks_nothing(
    store: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(store)
    assert main(["upgrade", store.uri, "--primary-key", "id", "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rows"], told["mem_wals"], told["version"]) == (2, 1, None)
    assert files(store) == before


def test_in_place(store: ObjectStore) -> None:
    report = weir.upgrade(store.uri, primary_key="id")
    assert report.rows == 2
    table = weir.open(store.uri)
    assert table.primary_key == ("id",)
    assert rows_in(table) == EXPECTED
    table.upsert([{"id": 1, "value": "again"}])
    table.maintenance.merge()
    assert rows_in(table) == EXPECTED | {1: "again"}
    assert table.maintenance.verify().findings == ()


def test_into_a_copy_the_table_has_its_key_and_its_regions(store: ObjectStore, tmp_path: Path) -> None:
    version = newest_manifest(store).version
    before = regions_of(newest_manifest(store))
    weir.upgrade(store.uri, into=tmp_path / "copy", primary_key=["id"])
    assert rows_in(weir.open(tmp_path / "copy")) == EXPECTED
    manifest = newest_manifest(store)
    assert (manifest.version, regions_of(manifest)) == (version + 1, before)
    assert primary_key_of(open_dataset(store)) == ("id",)
    assert rows_in(weir.open(store.uri)) == EXPECTED
    with RegionWriter.claim(store, "eu") as writer:
        writer.delete([1])
    assert rows_in(weir.open(store.uri)) == {2: "B", 3: "c"}
    # Once it is marked, it need not be named, and no other can be.
    for key in (None, "id"):
        weir.upgrade(store.uri, primary_key=key, dry_run=True)
    with pytest.raises(SchemaError, match="cannot be changed"):
        weir.upgrade(store.uri, primary_key="value")


@pytest.mark.parametrize(
    ("rows", "fresh", "key", "error"),
    [
        ([*BASE, {"id": 2, "value": "x"}], FRESH, "id", KeyValueError),
        ([*BASE, {"id": None, "value": "x"}], FRESH, "id", KeyValueError),
        (BASE, [*FRESH, {"id": None, "value": "x"}], "id", CorruptionError),
        (BASE, FRESH, "nothing", SchemaError),
        (BASE, FRESH, ["id", "id"], SchemaError),
        (BASE, FRESH, [], SchemaError),
    ],
)
def test_what_is_no_key_changes_nothing(
    tmp_path: Path,
    rows: list[dict[str, object]],
    fresh: list[dict[str, object]],
    key: str | list[str],
    error: type[Exception],
) -> None:
    store = keyless(tmp_path, rows, fresh)
    before = files(store)
    for dry_run in (True, False):
        with pytest.raises(error):
            weir.upgrade(store.uri, primary_key=key, dry_run=dry_run)
        assert files(store) == before


def test_a_key_of_two_columns_in_their_order(store: ObjectStore) -> None:
    weir.upgrade(store.uri, primary_key=["value", "id"], into=f"{store.uri}-copy")
    for uri in (f"{store.uri}-copy", store.uri):
        table = weir.open(uri)
        assert table.primary_key == ("value", "id")
        assert sorted(table.scan().to_table().column("value").to_pylist()) == ["B", "a", "b", "c"]
        assert table.get([("b", 2), ("B", 2), ("B", 3)]).num_rows == 2


def upgrades(uri: str) -> None:
    weir.upgrade(uri, primary_key="id")


@pytest.mark.parametrize("point", ["upgrade.before_key", "upgrade.after_key"])
def test_killed_while_the_key_is_marked(store: ObjectStore, point: str) -> None:
    kill_at(point, upgrades, store.uri)
    assert regions_of(newest_manifest(store)) is not None
    weir.upgrade(store.uri, primary_key="id")
    assert rows_in(weir.open(store.uri)) == EXPECTED

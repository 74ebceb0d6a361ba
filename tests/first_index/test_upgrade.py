"""Upgrading tables with the first MemWAL index: nothing is lost, old writers are fenced, kills survived."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from tests.crashes import kill_at
from tests.first_index.kit import BASE, EXPECTED, MEM_WALS, files, first_table, mem_wal, publish, rows_in

import weir
from weir.base.manifest import read_manifest
from weir.base.publish import publish_details
from weir.base.table import BaseTable
from weir.cli.main import main
from weir.errors import ConflictError, CorruptionError, FencedError, FirstIndexError, TableExistsError
from weir.first_index import upgrade
from weir.first_index.commit import commit_regions, newest_manifest
from weir.first_index.protocol import claimed, with_entry
from weir.first_index.regions import unmerged
from weir.first_index.view import regions_of
from weir.first_index.writer import RegionWriter
from weir.format.first_index_details import FirstIndexDetails, MemWalState
from weir.format.index_details import IndexDetails
from weir.maintenance import clone
from weir.storage.interface import ObjectStore
from weir.storage.local import LocalStore


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return first_table(tmp_path, BASE, MEM_WALS)


def check_of_today(uri: str, *, also: dict[int, str] | None = None) -> None:
    """A table of today, whole, with the rows; and it can be written, merged, compacted and collected."""
    table = weir.open(uri)
    BaseTable.open(table._table.store)
    assert rows_in(table) == EXPECTED | (also or {})
    assert table.maintenance.verify().findings == ()


def test_in_place(store: ObjectStore) -> None:
    before = weir.open(store.uri)
    assert rows_in(before) == EXPECTED
    report = weir.upgrade(store.uri, shard_by=weir.bucket("id", 2))
    assert (report.regions, report.mem_wals, report.rows) == (2, 5, 8)
    check_of_today(store.uri)
    # A handle from before reads on, and does not write.
    assert rows_in(before) == EXPECTED
    with pytest.raises(FirstIndexError):
        before.upsert([{"id": 9, "value": "x"}])
    table = weir.open(store.uri)
    assert table.sharded_by == "bucket(id, 2)"
    table.upsert([{"id": 1, "value": "again"}])
    table.maintenance.merge()
    table.maintenance.compact()
    table.maintenance.collect_garbage()
    check_of_today(store.uri, also={1: "again"})
    assert rows_in(before) == EXPECTED | {1: "again"}
    # The WALs are left to whoever wants to remove them.
    assert {one.partition("/a-")[0] for one in report.wal_locations} == {
        "_weir/regions/6575",
        "_weir/regions/7573",
    }
    assert all(store.list(one) for one in report.wal_locations)
    with pytest.raises(TableExistsError, match="current form"):
        weir.upgrade(store.uri)


def test_the_library_commits_above_an_upgraded_table(store: ObjectStore) -> None:
    weir.upgrade(store.uri)
    dataset = BaseTable.open(store).dataset
    dataset.delete("id = 3")
    assert rows_in(weir.open(store.uri)) == {key: value for key, value in EXPECTED.items() if key != 3}


def test_the_way_back(store: ObjectStore) -> None:
    """What the documentation says: without the versions above, the shards and the note, it is as it was."""
    report = weir.upgrade(store.uri)
    above = [
        one.path
        for one in store.list("_versions")
        if one.path.endswith(".manifest") and 2**64 - 1 - int(Path(one.path).stem) > report.from_version
    ]
    assert above
    store.delete([*above, *(one.path for one in store.list("_mem_wal"))])
    table = weir.open(store.uri)
    assert rows_in(table) == EXPECTED
    assert "RegionTable" in repr(table)
    assert table.maintenance.verify().findings == ()
    with RegionWriter.claim(store, "eu") as writer:
        writer.upsert([{"id": 6, "value": "f"}])
        writer.seal()
        writer.flush()
        writer.merge()
    weir.upgrade(store.uri)
    check_of_today(store.uri, also={6: "f"})


def test_into_a_copy(store: ObjectStore, tmp_path: Path) -> None:
    before = files(store)
    target = str(tmp_path / "copy")
    report = weir.upgrade(store.uri, into=target)
    assert report.rows == 8
    check_of_today(target)
    assert files(store) == before
    assert rows_in(weir.open(store.uri)) == EXPECTED
    with pytest.raises(TableExistsError):
        weir.upgrade(store.uri, into=target)


def test_a_dry_run_writes_nothing(
    store: ObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(store)
    assert main(["upgrade", store.uri, "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["version"], told["rows"], told["mem_wals"]) == (None, 8, 5)
    assert main(["upgrade", store.uri, "--dry-run", "--into", str(tmp_path / "copy")]) == 0
    assert "would upgrade" in capsys.readouterr().out
    assert not (tmp_path / "copy").exists()
    assert files(store) == before


def test_what_cannot_be_read_is_found_before_anybody_is_fenced(store: ObjectStore) -> None:
    (first, *_) = store.list(MEM_WALS[1][0].wal_location)
    Path(store.uri, first.path).unlink()
    before = files(store)
    with pytest.raises(CorruptionError, match="listed but missing"):
        weir.upgrade(store.uri)
    assert files(store) == before


def test_shards_of_somebody_else_are_not_removed(store: ObjectStore) -> None:
    store.put("_mem_wal/6f0f3c5e-4a51-4b53-9d5c-0d4f8d6a3b11/wal/x", b"rows")
    before = files(store)
    with pytest.raises(TableExistsError, match="1 shards"):
        weir.upgrade(store.uri)
    assert files(store) == before


def append(store: ObjectStore, owner: str) -> None:
    commit_regions(store, lambda details, version: with_entry(details, "us", 0, owner, 7, version=version))


def claim_all(store: ObjectStore, owner: str) -> None:
    def change(details: FirstIndexDetails, version: int) -> FirstIndexDetails:
        return claimed(details, unmerged(details), owner, version=version)

    commit_regions(store, change)


def test_who_wrote_is_fenced_and_who_claims_meanwhile_is_waited_for(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that claims the regions in the middle makes the upgrade start over, and is fenced too."""
    real, others = clone.write_shards, ["first", "second"]

    def write_shards(*args: object) -> int:
        written = real(*args)  # type: ignore[arg-type]
        with pytest.raises(FencedError, match="weir-upgrade"):
            append(store, "owner")
        if others:
            claim_all(store, others.pop())
        return written

    monkeypatch.setattr(upgrade, "write_shards", write_shards)
    weir.upgrade(store.uri)
    assert not others
    check_of_today(store.uri)
    for owner in ("owner", "first", "second"):
        with pytest.raises(FencedError, match="was upgraded"):
            append(store, owner)


def test_it_gives_up_by_name(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    real = clone.write_shards

    def write_shards(*args: object) -> int:
        claim_all(store, f"another {newest_manifest(store).version}")
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(upgrade, "write_shards", write_shards)
    monkeypatch.setattr(upgrade, "MAX_ATTEMPTS", 2)
    with pytest.raises(ConflictError, match="each of 2 attempts"):
        weir.upgrade(store.uri)
    assert regions_of(newest_manifest(store)) is not None
    assert rows_in(weir.open(store.uri)) == EXPECTED


def upgrades(uri: str, into: str | None = None) -> None:
    weir.upgrade(uri, into=into)


def nothing(store: ObjectStore) -> None:
    """Let nobody come in between."""


def somebody_writes(store: ObjectStore) -> None:
    """Let a writer claim the regions back, in the old way."""
    claim_all(store, "back again")


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("point", "between"),
    [
        ("upgrade.after_claim", nothing),
        ("upgrade.before_shards", nothing),
        ("upgrade.before_publish", nothing),
        ("upgrade.before_publish", somebody_writes),
    ],
)
def test_killed_in_place(store: ObjectStore, point: str, between: Callable[[ObjectStore], None]) -> None:
    kill_at(point, upgrades, store.uri)
    # Still a table with regions, which lacks nothing.
    assert rows_in(weir.open(store.uri)) == EXPECTED
    between(store)
    weir.upgrade(store.uri)
    check_of_today(store.uri)


def test_killed_after_the_last_step(store: ObjectStore) -> None:
    kill_at("upgrade.after_publish", upgrades, store.uri)
    check_of_today(store.uri)
    with pytest.raises(TableExistsError, match="current form"):
        weir.upgrade(store.uri)
    assert store.head("_weir/upgrade_under_way") is None


@pytest.mark.parametrize("point", ["clone.between_base_and_shards", "clone.before_publish"])
def test_a_copy_that_was_killed_is_made_again(store: ObjectStore, tmp_path: Path, point: str) -> None:
    target = str(tmp_path / "copy")
    kill_at(point, upgrades, store.uri, target)
    with pytest.raises(FileNotFoundError):
        weir.open(target)
    weir.upgrade(store.uri, into=target)
    check_of_today(target)


@pytest.mark.parametrize(("files_of", "counts_down"), [("legacy", False), ("2.0", True)])
def test_a_table_of_an_old_library_there_and_back(tmp_path: Path, files_of: Any, counts_down: bool) -> None:
    """Of its file format, its names of manifests, and without a mark of its key."""
    store = LocalStore(tmp_path / "table", fsync=False)
    rows = pa.table({"id": [1, 2, 3], "value": ["a", "b", "c"]})
    dataset = lance.write_dataset(
        rows, store.uri, data_storage_version=files_of, enable_v2_manifest_paths=counts_down
    )
    assert publish_details(store, read_manifest(store, dataset.version), IndexDetails()) is not None
    publish(store, mem_wal("eu", 0, MemWalState.OPEN))
    weir.upgrade(store.uri, primary_key="id", into=tmp_path / "copy")
    with RegionWriter.claim(store, "eu") as writer:
        writer.upsert([{"id": 2, "value": "B"}, {"id": 4, "value": "d"}])
        writer.seal()
        writer.flush()
        writer.merge()
        writer.delete([1])
    expected = {2: "B", 3: "c", 4: "d"}
    assert rows_in(weir.open(store.uri)) == expected
    report = weir.upgrade(store.uri)
    table = weir.open(store.uri)
    assert rows_in(table) == expected
    assert table.maintenance.verify().findings == ()
    for manifest in Path(store.uri, "_versions").glob("*.manifest"):
        number = 2**64 - 1 - int(manifest.stem) if counts_down else int(manifest.stem)
        if number > report.from_version:
            manifest.unlink()
    store.delete([one.path for one in store.list("_mem_wal")])
    assert "RegionTable" in repr(weir.open(store.uri))
    assert rows_in(weir.open(store.uri)) == expected
    weir.upgrade(store.uri)
    table = weir.open(store.uri)
    table.maintenance.merge()
    assert rows_in(table) == expected

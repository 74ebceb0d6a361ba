from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from tests.base.table_kit import SCHEMA, new_table, table_of

import weir
from weir.base import torn_versions
from weir.base.dataset import open_dataset
from weir.base.manifest import manifest_path, read_manifest
from weir.base.publish import publish_details
from weir.base.spent_versions import SET_ASIDE
from weir.base.table import BaseTable
from weir.base.torn_versions import newest_sound_version, set_aside, what_is_torn
from weir.errors import CorruptionError, SnapshotExpiredError, StorageError
from weir.format.table_manifest import decode_files
from weir.snapshots import history
from weir.storage.counting import CountingStore
from weir.storage.interface import ObjectStore
from weir.storage.open import open_store

Damage = Callable[[Path], None]


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def shortened(path: Path) -> None:
    os.truncate(path, (path.stat().st_size - 1) // 512 * 512)


def removed(path: Path) -> None:
    path.unlink()


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def zeroed_at_its_end(path: Path) -> None:
    size = path.stat().st_size
    os.truncate(path, size // 2)
    os.truncate(path, size)


def merged_four_times(place: Path) -> None:
    """Make a table of which every version has another value of one row."""
    table = weir.Engine(maintenance="off").create(place, SCHEMA, primary_key="id", fsync=False)
    with table.writer() as writer:
        for number in range(4):
            writer.upsert([{"id": 1, "value": f"{number}"}])
            writer.flush()
            table.maintenance.merge()


def by_lance(base: BaseTable, number: int) -> None:
    """Commit with Lance alone, which syncs nothing: a data file, a deletion file and an index."""
    dataset = lance.write_dataset(
        table_of(SCHEMA, [(number, "new")]).cast(base.schema), base.uri, mode="append"
    )
    dataset.delete("id = 1")
    dataset.create_scalar_index("value", "BITMAP")


def torn_path(base: BaseTable, kind: str) -> Path:
    """Return a file of the newest version that the one of the handle does not have."""
    store = base.store
    newest = max(version["version"] for version in lance.dataset(base.uri).versions())
    if kind == "manifest":
        return Path(base.uri, manifest_path(newest, counts_down=True))
    before = decode_files(read_manifest(store, base.version).data, where="")
    after = decode_files(read_manifest(store, newest).data, where="")
    files = {file.path for file in getattr(after, kind)} - {file.path for file in getattr(before, kind)}
    return Path(base.uri, min(files))


def rows_of(base: BaseTable) -> list[tuple[int, str]]:
    return sorted((row["id"], row["value"]) for row in base.dataset.to_table().to_pylist())


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        (kind, damage)
        for kind in ("manifest", "data", "deletions", "indexes")
        for damage in (emptied, shortened, removed, zeroed)
        # A version without a manifest is none.
        if (kind, damage) != ("manifest", removed)
    ],
)
def test_a_torn_version_is_passed_over_by_readers_and_set_aside_by_who_commits(
    tmp_path: Path, kind: str, damage: Damage
) -> None:
    base = new_table(tmp_path, rows=[(1, "a"), (2, "b")])
    by_lance(base, 3)
    damaged = torn_path(base, kind)
    damage(damaged)
    before = sorted(path for path in Path(base.uri).rglob("*") if path.is_file())
    for found in (BaseTable.open(base.store), base.latest()):
        # A version that Lance has committed on the way may be whole: the newest such is read.
        assert found.torn
        assert found.version < found.torn[0].version
        assert rows_of(found) == rows_of(base.at_version(found.version))
        assert set(rows_of(found)) <= {(1, "a"), (2, "b"), (3, "new")}
    assert sorted(path for path in Path(base.uri).rglob("*") if path.is_file()) == before
    expected = rows_of(found)
    changed = base.latest_to_change()
    assert not changed.torn
    assert rows_of(changed) == expected
    assert len(list(Path(base.uri, SET_ASIDE).glob("*.manifest"))) == len(found.torn)
    # Nothing is in the way any more, for Lance neither.
    lance.write_dataset(table_of(SCHEMA, [(9, "z")]).cast(base.schema), base.uri, mode="append")
    assert rows_of(base.latest()) == [*expected, (9, "z")]
    assert base.latest().version == found.torn[0].version + 2, "no number comes back"


def test_a_sound_table_has_nothing_to_set_aside(tmp_path: Path) -> None:
    base = new_table(tmp_path, rows=[(1, "a"), (2, "b")])
    by_lance(base, 3)
    newest = base.latest()
    assert what_is_torn(base.store, read_manifest(base.store, newest.version)) is None
    assert set_aside(base.store) == ()
    found = newest_sound_version(base.store)
    assert found is not None
    assert (found.manifest.version, found.torn) == (newest.version, ())


def test_an_older_version_that_is_torn_is_left_where_it_is(tmp_path: Path) -> None:
    base = new_table(tmp_path, rows=[(1, "a"), (2, "b")])
    by_lance(base, 3)
    emptied(Path(base.uri, manifest_path(base.version + 1, counts_down=True)))
    newest = BaseTable.open(base.store)
    assert not newest.torn
    assert set_aside(base.store) == ()
    assert rows_of(newest) == [(2, "b"), (3, "new")]


def test_versions_torn_far_apart_are_no_loss_of_power(tmp_path: Path) -> None:
    base = new_table(tmp_path, rows=[(1, "a"), (2, "b")])
    by_lance(base, 3)
    data = torn_path(base, "data")
    for version in range(1, base.version + 2):
        path = Path(base.uri, manifest_path(version, counts_down=True))
        if path.exists():
            os.utime(path, (path.stat().st_mtime - 3600,) * 2)
    removed(data)
    with pytest.raises(CorruptionError, match="too far apart for one loss of power") as raised:
        BaseTable.open(base.store)
    assert data.name in str(raised.value)
    with pytest.raises(CorruptionError, match="too far apart"):
        base.latest_to_change()
    assert not list(Path(base.uri).glob(f"{SET_ASIDE}/*.manifest"))


def test_a_version_whose_merges_have_been_collected_is_never_set_aside(tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    table = weir.create(uri, SCHEMA, primary_key="id")
    with table.writer() as writer:
        writer.upsert([{"id": 1, "value": "a"}])
    table.maintenance.merge()
    before = BaseTable.open(table.internals.store).version
    with table.writer() as writer:
        writer.upsert([{"id": 2, "value": "b"}])
    table.maintenance.merge()
    base = BaseTable.open(table.internals.store)
    table.maintenance.collect_garbage(horizon=timedelta(0))
    table.maintenance.collect_garbage(horizon=timedelta(0))
    for version in range(before + 1, base.version + 1):
        path = Path(uri, manifest_path(version, counts_down=True))
        if path.exists():
            emptied(path)
    with pytest.raises(CorruptionError, match="the rows it had merged are nowhere else: generation 2"):
        weir.open(uri)
    assert not list(Path(uri).glob(f"{SET_ASIDE}/*.manifest"))


def test_what_a_torn_version_had_merged_is_merged_again(tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    table = weir.create(uri, SCHEMA, primary_key="id", shard_by=weir.bucket("id", 2))
    with table.writer() as writer:
        writer.upsert([{"id": number, "value": "a"} for number in range(10)])
    before = BaseTable.open(table.internals.store).version
    with table.writer() as writer:
        writer.upsert([{"id": number, "value": "b"} for number in range(5, 15)])
        writer.delete([{"id": 0}])
    table.maintenance.merge()
    token = table.snapshot()
    newest = BaseTable.open(table.internals.store).version
    for version in range(before + 1, newest + 1):
        emptied(Path(uri, manifest_path(version, counts_down=True)))
    expected = {number: "b" if number >= 5 else "a" for number in range(1, 15)}

    def rows(table: weir.Table) -> dict[int, str]:
        return {row["id"]: row["value"] for row in table.scan().to_table().to_pylist()}

    for reader in (weir.open(uri), table):
        assert rows(reader) == expected
    assert not list(Path(uri).glob(f"{SET_ASIDE}/*.manifest"))
    again = weir.open(uri)
    again.maintenance.merge()
    assert list(Path(uri).glob(f"{SET_ASIDE}/*.manifest"))
    for reader in (weir.open(uri), table, again):
        assert rows(reader) == expected
        assert reader.status().to_dict()["base_rows"] == 14
    for reader in (table, again, weir.open(uri)):
        with pytest.raises(SnapshotExpiredError, match=f"version {newest} "):
            reader.scan(at=token).to_table()


@pytest.mark.parametrize("place", ["set_aside.after_publish", "set_aside.before_move"])
def test_who_stands_still_while_it_sets_versions_aside_is_in_nobodys_way(tmp_path: Path, place: str) -> None:
    base = new_table(tmp_path, rows=[(1, "a"), (2, "b")])
    by_lance(base, 3)
    damaged = torn_path(base, "manifest")
    emptied(damaged)
    expected = rows_of(base.latest())
    program = (
        "import sys\nfrom weir.storage.local import LocalStore\n"
        "from weir.base.torn_versions import set_aside\nset_aside(LocalStore(sys.argv[1]))"
    )
    sleeper = subprocess.Popen(
        [sys.executable, "-c", program, base.uri], env={**os.environ, "WEIR_FAILPOINTS": f"{place}=stop"}
    )
    try:
        _, status = os.waitpid(sleeper.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        changed = base.latest_to_change()
        assert rows_of(changed) == expected
        dataset = lance.write_dataset(table_of(SCHEMA, [(9, "z")]).cast(base.schema), base.uri, mode="append")
        # Somebody who planned before versions were set aside, whose number is free now.
        planned = base.at_version(changed.version - 2)
        manifest = read_manifest(base.store, planned.version)
        set_aside(base.store)
        if not damaged.exists():
            assert publish_details(base.store, manifest, planned.details) is None
            assert not damaged.exists()
        sleeper.send_signal(signal.SIGCONT)
        assert sleeper.wait(60) == 0
    finally:
        sleeper.kill()
        sleeper.wait()
    assert not damaged.exists()
    assert rows_of(base.latest()) == [*expected, (9, "z")]
    assert base.latest().version == dataset.version
    assert publish_details(base.store, manifest, planned.details) is None, (
        "below the newest, nobody would look"
    )
    assert publish_details(base.store, read_manifest(base.store, dataset.version), planned.details)


def test_two_that_set_versions_aside_at_once(tmp_path: Path) -> None:
    base = new_table(tmp_path, rows=[(1, "a"), (2, "b")])
    by_lance(base, 3)
    newest = torn_path(base, "manifest")
    emptied(newest)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: BaseTable.open(base.store).latest_to_change(), range(4)))
    assert len(list(Path(base.uri, SET_ASIDE).iterdir())) == 1
    assert not BaseTable.open(base.store).torn
    lance.dataset(base.uri).versions()


@pytest.mark.parametrize("call", ["open", "latest", "open_dataset"])
def test_a_table_is_not_gone_where_a_version_is_set_aside_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    base = new_table(tmp_path, rows=[(1, "a")])
    with pytest.raises(ValueError, match="not found") as gone:
        lance.dataset(f"{tmp_path}/none")
    opened = lance.dataset

    def listed(self: object) -> None:
        raise gone.value

    def newest(uri: str, version: int | None = None, **options: Any) -> lance.LanceDataset:
        if version is None:
            raise gone.value
        return opened(uri, version=version, **options)

    monkeypatch.setattr(lance.LanceDataset, "checkout_latest", listed)
    monkeypatch.setattr(lance, "dataset", newest)
    found = {
        "open": lambda: BaseTable.open(base.store).version,
        "latest": lambda: base.latest().version,
        "open_dataset": lambda: open_dataset(base.store).version,
    }[call]()
    assert found == base.version


@pytest.mark.parametrize("damage", [emptied, shortened, removed, zeroed])
def test_a_token_of_a_torn_version_is_refused_by_name(tmp_path: Path, damage: Damage) -> None:
    uri = str(tmp_path / "table")
    table = weir.create(uri, SCHEMA, primary_key="id")
    with table.writer() as writer:
        writer.upsert([{"id": 1, "value": "a"}])
    lance.dataset(uri).update_config({"somebody": "else"})
    token = weir.open(uri).snapshot(retain=timedelta(hours=1))
    version = lance.dataset(uri).version
    damage(Path(uri, manifest_path(version, counts_down=True)))
    for _ in range(2):  # as it is found, and when it was set aside
        table = weir.open(uri)
        named = f"version {version}"
        with pytest.raises(SnapshotExpiredError, match=named):
            table.scan(at=token).to_table()
        with pytest.raises(SnapshotExpiredError, match=named):
            table.scan(at=token).count()
        with pytest.raises(SnapshotExpiredError, match=named):
            table.get([{"id": 1}], at=token)
        table.maintenance.collect_garbage(horizon=timedelta(0), version_retention=timedelta(0))
        table.maintenance.merge()


def test_what_would_be_collected_is_told_of_a_table_with_a_torn_version(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "table", SCHEMA, primary_key="id")
    with table.writer() as writer:
        writer.upsert([{"id": 1, "value": "a"}])
    table.maintenance.merge()
    lance.dataset(table.uri).update_config({"somebody": "else"})
    torn = Path(table.uri, manifest_path(lance.dataset(table.uri).version, counts_down=True))
    emptied(torn)
    collect = partial(weir.open(table.uri).maintenance.collect_garbage, horizon=0, version_retention=0)
    told = collect(dry_run=True)
    assert torn.exists()
    assert collect().waiting_objects == told.waiting_objects
    assert not torn.exists()


def test_of_old_versions_only_manifests_of_the_size_of_torn_ones_are_read(tmp_path: Path) -> None:
    merged_four_times(tmp_path / "t")
    store = CountingStore(open_store(tmp_path / "t", fsync=False))
    assert newest_sound_version(store) is not None
    to_find_the_newest, torn = (
        store.counts["get"],
        sorted((tmp_path / "t" / "_versions").glob("*.manifest"))[2],
    )
    torn.write_bytes(b"\0" * 4096)
    store.reset()
    (found,) = torn_versions.unreadable_history(store, by_size=True)
    assert torn.name in found.path
    assert store.counts["get"] == to_find_the_newest + 1


@pytest.mark.parametrize("retention", [None, timedelta(0)])
def test_a_torn_version_whose_size_does_not_tell_is_set_aside_by_a_collection(
    tmp_path: Path, retention: timedelta | None
) -> None:
    merged_four_times(tmp_path / "t")
    old = sorted((tmp_path / "t" / "_versions").glob("*.manifest"))[2]
    whole = old.read_bytes()

    def collect(*, dry_run: bool = False) -> weir.GarbageReport:
        maintenance = weir.Engine(maintenance="off").open(tmp_path / "t").maintenance
        return maintenance.collect_garbage(horizon=0, version_retention=retention, dry_run=dry_run)

    # What no loss of power leaves stays where it is.
    old.write_bytes(whole[:-1] + b"D")
    with pytest.raises(CorruptionError, match=old.name):
        collect()
    assert old.exists()
    old.write_bytes(whole)
    zeroed_at_its_end(old)
    assert len(whole) % 512
    told = collect(dry_run=True)
    assert old.exists()
    assert collect().waiting_objects == told.waiting_objects
    assert not old.exists()


def test_a_disk_that_cannot_be_read_is_no_torn_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = weir.create(tmp_path / "t", pa.schema([("id", pa.int64())]), primary_key="id")
    with table.writer() as writer:
        writer.upsert([{"id": 1}])
    table.maintenance.merge()
    torn_versions._whole.clear()

    def fails(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(torn_versions, "_tear", fails)
    with pytest.raises(StorageError, match="Looking whether a version is whole"):
        weir.open(tmp_path / "t")


@pytest.mark.parametrize("tear", [emptied, shortened, zeroed_at_its_end])
def test_rows_of_before_beside_a_torn_version_below_the_newest(tmp_path: Path, tear: Damage) -> None:
    """It stays there until somebody has set it aside; the versions around it are found all the same."""
    merged_four_times(tmp_path / "t")
    _, *between, first = sorted((tmp_path / "t" / "_versions").glob("*.manifest"))
    for torn in (*between, first):
        whole = torn.read_bytes()
        tear(torn)
        changes = weir.Engine(maintenance="off").open(tmp_path / "t").changes
        if torn == first:
            with pytest.raises(SnapshotExpiredError, match="the change feed begins with is gone"):
                changes(before=True)
        else:
            values = [one.rows["value"].to_pylist() for one in changes(before=True, batch_rows=1)]
            assert values == [[f"{number}"] for number in range(4)]
        torn.write_bytes(whole)
    assert between


def test_rows_of_before_while_a_torn_version_is_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else may do it between the listing of the versions and the look at what is torn."""
    merged_four_times(tmp_path / "t")
    for torn in sorted((tmp_path / "t" / "_versions").glob("*.manifest"))[1:-1]:
        emptied(torn)
    look = torn_versions.unreadable_history
    set_aside_since: list[torn_versions.TornVersion] = []

    def late(store: ObjectStore) -> object:
        set_aside_since.extend(torn_versions.set_history_aside(store))
        return look(store)

    monkeypatch.setattr(history, "unreadable_history", late)
    feed = weir.Engine(maintenance="off").open(tmp_path / "t").changes(before=True, batch_rows=1)
    assert [one.rows["value"].to_pylist() for one in feed] == [[f"{number}"] for number in range(4)]
    assert set_aside_since

from __future__ import annotations

import itertools
import pickle
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import lance
import pytest
from tests.base.table_kit import SCHEMA, contents, new_store, new_table, table_of
from tests.crashes import run, say

from weir.base.details_commit import update_details
from weir.base.manifest import manifest_path, read_manifest
from weir.base.table import BaseTable
from weir.errors import (
    CorruptionError,
    ObjectNotFoundError,
    SchemaError,
    SnapshotExpiredError,
    StorageError,
    TableNotFoundError,
)
from weir.format.index_details import MergedGeneration


def append(base: BaseTable, key: int) -> None:
    rows = table_of(SCHEMA, [(key, "appended")]).cast(base.schema)
    lance.write_dataset(rows, base.uri, mode="append")


def test_a_handle_stays_at_its_version(tmp_path: Path) -> None:
    base = new_table(tmp_path, rows=[(1, "a")])
    append(base, 2)
    newer = base.latest()
    assert newer.version == base.version + 1
    assert sorted(contents(newer)) == [(1,), (2,)]
    assert sorted(contents(base)) == [(1,)]
    assert sorted(contents(newer.at_version(base.version))) == [(1,)]
    assert base.identity == newer.identity


def test_latest_and_at_version_are_the_same_handle_when_nothing_changed(tmp_path: Path) -> None:
    base = new_table(tmp_path)
    assert base.latest() is base
    assert base.at_version(base.version) is base


def test_details_are_those_of_the_version(tmp_path: Path) -> None:
    base = new_table(tmp_path)
    shard = UUID(int=7)
    newer = update_details(base, lambda old: replace(old, merged_generations=(MergedGeneration(shard, 4),)))
    assert newer.details.merged_generation(shard) == 4
    assert base.details.merged_generation(shard) == 0
    assert newer.at_version(base.version).details == base.details


def tell_version_and_rows(base: BaseTable) -> None:
    say(version=base.version, rows=base.dataset.count_rows())


def test_a_pickled_handle_is_the_same_version_in_another_process(tmp_path: Path) -> None:
    base = new_table(tmp_path, rows=[(1, "a")])
    append(base, 2)
    restored = pickle.loads(pickle.dumps(base))
    assert restored.version == base.version
    assert restored.details == base.details
    assert contents(restored) == contents(base)
    assert run(tell_version_and_rows, base).told == [{"version": base.version, "rows": 1}]


def test_no_table_is_named_as_such(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    with pytest.raises(TableNotFoundError, match=r"weir\.create") as caught:
        BaseTable.open(store)
    assert caught.value.where == store.uri
    with pytest.raises(TableNotFoundError):
        BaseTable.open(store, version=3)


def test_a_dataset_without_mem_wal_index_is_named_as_such(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    lance.write_dataset(table_of(SCHEMA, [(1, "a")]), store.uri)
    with pytest.raises(TableNotFoundError, match=r"no MemWAL index.*adopt"):
        BaseTable.open(store)


def test_a_table_without_primary_key_is_refused(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    lance.write_dataset(table_of(SCHEMA, [(1, "a")]), store.uri).initialize_mem_wal()
    with pytest.raises(SchemaError, match="no primary key"):
        BaseTable.open(store)


def test_a_version_that_is_gone_has_expired(tmp_path: Path) -> None:
    base = new_table(tmp_path)
    for key in range(3):
        append(base, key)
    for version in (base.version + 9, 1):
        with pytest.raises(SnapshotExpiredError, match=f"no version {version}"):
            base.at_version(version)
        with pytest.raises(SnapshotExpiredError):
            BaseTable.open(base.store, version=version)
    lance.dataset(base.uri).cleanup_old_versions(older_than=timedelta(0))
    with pytest.raises(SnapshotExpiredError):
        base.latest().at_version(base.version)
    with pytest.raises(SnapshotExpiredError):
        pickle.loads(pickle.dumps(base))


def test_a_table_that_vanishes_is_not_found(tmp_path: Path) -> None:
    base = new_table(tmp_path)
    shutil.rmtree(base.uri)
    with pytest.raises(TableNotFoundError):
        base.latest()


def test_a_broken_manifest_is_loud(tmp_path: Path) -> None:
    base = new_table(tmp_path)
    path = manifest_path(base.version, counts_down=True)
    data = bytes(base.store.get(path))
    base.store.put(path, data[:-16] + b"\xff" * 16)
    with pytest.raises(CorruptionError) as caught:
        BaseTable.open(base.store)
    assert "_versions" in str(caught.value.where)
    base.store.put(path, data[:-16])
    with pytest.raises((StorageError, CorruptionError)):
        BaseTable.open(base.store)


def test_a_manifest_with_a_type_that_there_is_not(tmp_path: Path) -> None:
    """The library opens it, and panics when it is asked for the schema."""
    base = new_table(tmp_path)
    path = manifest_path(base.version, counts_down=True)
    data = bytes(base.store.get(path))
    assert b"int64" in data
    base.store.put(path, data.replace(b"int64", b"imt64"))
    with pytest.raises(CorruptionError, match="manifest"):
        BaseTable.open(base.store)


def test_the_manifest_of_both_naming_schemes_is_found(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    lance.write_dataset(table_of(SCHEMA, [(1, "a")]), store.uri, enable_v2_manifest_paths=False)
    old = read_manifest(store, 1)
    assert (old.path, old.counts_down) == ("_versions/1.manifest", False)
    assert old.mem_wal_index() is None
    table = new_table(tmp_path)
    assert read_manifest(table.store, table.version).counts_down
    with pytest.raises(ObjectNotFoundError):
        read_manifest(store, 2)


def test_field_ids_are_those_of_the_library(tmp_path: Path) -> None:
    assert new_table(tmp_path).field_ids == {"id": 0, "value": 1}


def put_back(base: BaseTable, backup: Path) -> None:
    """Replace the directory of the table by a backup."""
    shutil.rmtree(base.uri)
    shutil.copytree(backup, base.uri)


def set_back(base: BaseTable, backup: Path) -> None:
    """Write the files of a backup over those of the table, which stay where they are."""
    for path in (path for path in backup.rglob("*") if path.is_file()):
        (Path(base.uri) / path.relative_to(backup)).write_bytes(path.read_bytes())


@pytest.mark.parametrize("seed", range(12))
def test_the_newest_version_is_found_whatever_becomes_of_the_versions(
    on_disk: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Handles that have not looked for a while ask only the file system whether anything has changed."""
    for name in ("time_ns", "monotonic_ns"):
        clock = getattr(time, name)
        monkeypatch.setattr(time, name, lambda clock=clock: clock() + 60 * 10**9)
    looks = 0
    check_out_latest = lance.LanceDataset.checkout_latest

    def look(dataset: lance.LanceDataset) -> None:
        nonlocal looks
        looks += 1
        check_out_latest(dataset)  # type: ignore[no-untyped-call]

    monkeypatch.setattr(lance.LanceDataset, "checkout_latest", look)
    chance, keys = random.Random(seed), itertools.count()
    handles = [new_table(on_disk)]
    backup = on_disk / "backup"
    steps: list[Callable[[], object]] = [
        lambda: append(handles[0].latest(), next(keys)),
        lambda: lance.dataset(handles[0].uri).cleanup_old_versions(
            older_than=timedelta(0), error_if_tagged_old_versions=False
        ),
        lambda: lance.dataset(handles[0].uri).restore(),  # type: ignore[no-untyped-call]
        lambda: shutil.copytree(handles[0].uri, backup, dirs_exist_ok=True),
        lambda: put_back(handles[0], backup),
        lambda: set_back(handles[0], backup),
        lambda: lance.dataset(handles[0].uri).tags.create(
            f"tag-{chance.randrange(10**9)}", handles[0].latest().version
        ),
        lambda: None,
    ]
    steps[3]()
    for _ in range(25):
        chance.choice(steps)()
        expected = BaseTable.open(handles[0].store)
        for at, handle in enumerate(handles):
            found = handle.latest()
            assert found.version_key == expected.version_key
            assert contents(found) == contents(expected)
            if chance.random() < 0.5:
                handles[at] = found
        newest = expected.latest()
        before = looks
        assert newest.latest() is newest
        assert looks == before
        if chance.random() < 0.2:
            handles.append(expected)
        time.sleep(0.02)

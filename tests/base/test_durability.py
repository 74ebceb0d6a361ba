from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import lance
import pytest
from tests.base.table_kit import SCHEMA, Key, Row, new_table, table_of, write_generation

from weir.base.create import adopt_base_table, create_base_table
from weir.base.durability import added_files
from weir.base.key_index import extend_key_index
from weir.base.merge import merge_run
from weir.base.merge_plan import MergeTask
from weir.base.table import BaseTable
from weir.storage.local import LocalStore

SHARD = UUID("8f3b0d9e-7f2c-4b5e-9c51-2a6de1c0a006")
SyncedSince = Callable[[Path], set[str]]


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> SyncedSince:
    """Return the files below a directory that have been fsynced since the last call."""
    real = os.fsync
    inodes: set[tuple[int, int]] = set()

    def fsync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        inodes.add((status.st_dev, status.st_ino))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)

    def collect(root: Path) -> set[str]:
        found = set()
        for path in root.rglob("*"):
            status = path.stat()
            if stat.S_ISREG(status.st_mode) and (status.st_dev, status.st_ino) in inodes:
                found.add(str(path.relative_to(root)))
        inodes.clear()
        return found

    return collect


def files_below(root: Path) -> set[str]:
    hint = "_versions/latest_version_hint.json"  # a hint: the library finds newer versions without it
    found = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    return {path for path in found if path != hint and not path.startswith(("_mem_wal/", ".weir-"))}


def test_creating_syncs_every_file(tmp_path: Path, synced: SyncedSince) -> None:
    store = LocalStore(tmp_path / "table")
    create_base_table(store, SCHEMA, ("id",), initial_data=table_of(SCHEMA, [(1, "a")]))
    assert files_below(tmp_path / "table") <= synced(tmp_path / "table")


def test_adopting_syncs_what_it_adds(tmp_path: Path, synced: SyncedSince) -> None:
    root = tmp_path / "table"
    lance.write_dataset(table_of(SCHEMA, [(1, "a")]), root)
    before = files_below(root)
    adopt_base_table(LocalStore(root), ("id",))
    assert files_below(root) - before <= synced(root)


def test_a_merge_and_an_index_build_sync_what_they_add_and_nothing_else(
    tmp_path: Path, synced: SyncedSince
) -> None:
    store = LocalStore(tmp_path / "table")
    root = tmp_path / "table"
    data = table_of(SCHEMA, [(number, "a") for number in range(100)])
    base = create_base_table(store, SCHEMA, ("id",), initial_data=data)
    rows: list[Row | Key] = [(1, "new"), (2,), (200, "new")]
    task = MergeTask(store, SHARD, (write_generation(base, SHARD, 1, rows),), 0)
    before = files_below(root)
    synced(root)
    merge_run(task)
    added = files_below(root) - before
    assert {path.split("/")[0] for path in added} == {"data", "_deletions", "_transactions", "_versions"}
    assert synced(root) == added
    before = files_below(root)
    extend_key_index(base)
    added = files_below(root) - before
    assert {path.split("/")[0] for path in added} == {"_indices", "_transactions", "_versions"}
    assert synced(root) == added


def test_the_names_of_new_files_and_of_their_directories_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "table"
    base = create_base_table(
        LocalStore(root), SCHEMA, ("id",), initial_data=table_of(SCHEMA, [(1, "a"), (2, "b")])
    )
    task = MergeTask(base.store, SHARD, (write_generation(base, SHARD, 1, [(1,), (3, "c")]),), 0)
    events: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        events.append(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), root))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    merge_run(task)
    directories = [event for event in events if (root / event).is_dir()]
    assert {"data", "_deletions", "_transactions", "_versions", "."} == set(directories)
    assert events[-1] == "."


def test_a_store_that_does_not_wait_for_the_disk_syncs_nothing(tmp_path: Path, synced: SyncedSince) -> None:
    base = new_table(tmp_path)
    task = MergeTask(base.store, SHARD, (write_generation(base, SHARD, 1, [(1, "a")]),), 0)
    merge_run(task)
    assert synced(tmp_path) == set()


def test_what_others_committed_in_between_counts(tmp_path: Path) -> None:
    base = new_table(tmp_path, rows=[(1, "a")])
    for number in range(2, 6):
        rows = table_of(SCHEMA, [(number, "b")]).cast(base.schema)
        lance.write_dataset(rows, base.uri, mode="append")
    lance.dataset(base.uri).delete("id = 3")
    # A compaction that moves an index: the library cannot read back its own transaction.
    lance.dataset(base.uri).optimize.compact_files()
    lance.dataset(base.uri).delete("id = 4")
    after = BaseTable.open(base.store)
    added = list(added_files(base.store, base.dataset, after.dataset))
    before, current = (
        {f"data/{file.path}" for fragment in one.dataset.get_fragments() for file in fragment.metadata.files}
        for one in (base, after)
    )
    assert current - before == {path for path in added if path.startswith("data/")}
    assert len([path for path in added if path.startswith("_deletions/")]) == 1
    manifests = [path for path in added if path.startswith("_versions/")]
    assert len(manifests) == after.version - base.version
    assert added[-len(manifests) :] == manifests
    assert list(added_files(base.store, after.dataset, after.dataset)) == []

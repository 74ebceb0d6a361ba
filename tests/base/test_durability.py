from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import lance
import pyarrow as pa
import pytest
from tests.base.table_kit import SCHEMA, Key, Row, new_table, table_of, write_generation
from tests.crashes import run

import weir
from weir.base.create import adopt_base_table, create_base_table
from weir.base.details_commit import update_details
from weir.base.durability import committing, make_durable
from weir.base.index_changes import create_index, drop_index
from weir.base.key_index import extend_key_index
from weir.base.table import BaseTable
from weir.engine.runner import ThreadRunner
from weir.errors import StorageError
from weir.format.table_manifest import decode_files
from weir.indexing.definition import IndexDefinition
from weir.indexing.kinds import IndexKind
from weir.maintenance.catch_up import catch_up_indexes
from weir.maintenance.compact import compact
from weir.merge.commit import merge_runs
from weir.merge.plan import MergeTask
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


def durable_table(directory: Path, rows: list[Row]) -> BaseTable:
    return create_base_table(
        LocalStore(directory / "durable"), SCHEMA, ("id",), initial_data=table_of(SCHEMA, rows)
    )


def test_a_table_without_fsync_waits_for_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False, maintenance="off")
    with table.writer() as writer:
        for number in range(3):
            writer.upsert(table_of(SCHEMA, [(number, "a")]))
            writer.flush()
            table.maintenance.merge()
    table.maintenance.compact()
    assert table.scan().count() == 3
    assert not synced


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
    merge_runs([task])
    added = files_below(root) - before
    tops = {"data", "_deletions", "_transactions", "_versions", "_weir"}
    assert {path.split("/")[0] for path in added} == tops
    assert synced(root) == added
    before = files_below(root)
    extend_key_index(base)
    added = files_below(root) - before
    assert {path.split("/")[0] for path in added} == {"_indices", "_transactions", "_versions", "_weir"}
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
    merge_runs([task])
    # What follows a publication are the checksums of what it refers to.
    events = [event for event in events if "_weir" not in event and event != ".."]
    directories = [event for event in events if (root / event).is_dir()]
    assert {"data", "_deletions", "_transactions", "_versions", "."} == set(directories)
    # Those that hold what the version refers to, and then the name by which it is found.
    assert events[-1] == "_versions"
    assert {"data", "_deletions", "_transactions", "."} <= set(events[:-1])


def test_a_store_that_does_not_wait_for_the_disk_syncs_nothing(tmp_path: Path, synced: SyncedSince) -> None:
    base = new_table(tmp_path)
    task = MergeTask(base.store, SHARD, (write_generation(base, SHARD, 1, [(1, "a")]),), 0)
    merge_runs([task])
    assert synced(tmp_path) == set()


def versions_published(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, set[str]]]:
    """Return a list that grows with every manifest: its path, and what it needs that is not on the disk."""
    real_fsync, real_put = os.fsync, LocalStore.put_if_absent
    inodes: set[tuple[int, int]] = set()
    published: list[tuple[str, set[str]]] = []

    def fsync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        inodes.add((status.st_dev, status.st_ino))
        real_fsync(descriptor)

    def is_synced(location: Path) -> bool:
        status = location.stat()
        return (status.st_dev, status.st_ino) in inodes

    def put_if_absent(self: LocalStore, path: str, data: bytes) -> None:
        if path.startswith("_versions/"):
            files = decode_files(data, where=path)
            needed = {file.path for file in files.needed} | {
                files.transaction.path if files.transaction else ""
            }
            root = Path(self.uri)
            there = {path for path in needed if (root / path).is_file()}
            published.append((path, {path for path in there if not is_synced(root / path)}))
        real_put(self, path, data)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(LocalStore, "put_if_absent", put_if_absent)
    return published


def test_nobody_finds_a_version_that_is_not_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "table"
    lance.write_dataset(table_of(SCHEMA, [(1, "a"), (2, "b")]), root)
    published = versions_published(monkeypatch)
    base = adopt_base_table(LocalStore(root), ("id",))
    for number in range(10, 14):
        # By the library, which syncs nothing.
        lance.write_dataset(table_of(SCHEMA, [(number, "c")]).cast(base.schema), root, mode="append")
        base = base.latest()
        rows: list[Row | Key] = [(1, str(number)), (number,), (100 + number, "d")]
        generation = number - 9
        task = MergeTask(
            base.store, SHARD, (write_generation(base, SHARD, generation, rows),), generation - 1
        )
        merge_runs([task])
        extend_key_index(base)
    base = create_index(base, IndexDefinition("value_idx", "value", IndexKind.BITMAP))
    compact(base, ThreadRunner(), max_deleted=0.0)
    catch_up_indexes(base, ThreadRunner())
    base = update_details(base.latest(), lambda details: replace(details, num_shards=7))
    drop_index(base, "value_idx")
    newest = base.latest()
    assert len(published) > 12
    assert len(published) == newest.version - 5  # all but those of the library
    assert [missing for _, missing in published if missing] == []


def append_and_delete(uri: str, rows: pa.Table) -> None:
    lance.write_dataset(rows, uri, mode="append")
    lance.dataset(uri).delete("id = 2")


def test_a_commit_that_comes_in_between_is_made_durable_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synced: SyncedSince
) -> None:
    base = durable_table(tmp_path, [(1, "a"), (2, "b")])
    root = Path(base.uri)
    rows = table_of(SCHEMA, [(3, "c")]).cast(base.schema)
    real = LocalStore.put_if_absent
    others: list[str] = []

    def put_if_absent(self: LocalStore, name: str, data: bytes) -> None:
        if name.startswith("_versions/") and not others:
            others.append(name)
            run(append_and_delete, base.uri, rows)
        real(self, name, data)

    before = files_below(root)
    synced(root)
    monkeypatch.setattr(LocalStore, "put_if_absent", put_if_absent)
    merged = merge_runs([MergeTask(base.store, SHARD, (write_generation(base, SHARD, 1, [(1, "z")]),), 0)])
    assert merged.version == base.version + 3
    assert files_below(root) - before <= synced(root)
    found = base.latest().dataset.to_table().to_pylist()
    assert sorted((row["id"], row["value"]) for row in found) == [(1, "z"), (3, "c")]


def take_a_snapshot(table: weir.Table) -> None:
    table.snapshot()


def make_a_tag(table: weir.Table) -> None:
    table.tags.create("today")


def make_a_consumer(table: weir.Table) -> None:
    table.changes(consumer="billing", since=table.snapshot(retain=None))


def move_a_consumer_on(table: weir.Table) -> None:
    feed = table.changes(consumer="moving")
    feed.commit(feed.latest())


@pytest.mark.parametrize("name_it", [take_a_snapshot, make_a_tag, make_a_consumer, move_a_consumer_on])
def test_what_names_a_version_to_come_back_to_makes_it_durable(
    tmp_path: Path, synced: SyncedSince, name_it: Callable[[weir.Table], None]
) -> None:
    table = weir.create(tmp_path / "table", SCHEMA, primary_key="id")
    if name_it is move_a_consumer_on:
        table.changes(consumer="moving")
    root = tmp_path / "table"
    before = files_below(root)
    run(append_and_delete, str(root), table_of(SCHEMA, [(2, "b"), (3, "c")]).cast(table.schema))
    new = {path for path in files_below(root) - before if not path.startswith("_transactions/")}
    synced(root)
    name_it(weir.open(root))
    assert len(new) > 3
    assert new <= synced(root)


def test_a_disk_that_refuses_leaves_the_table_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = durable_table(tmp_path, [(1, "a")])
    task = MergeTask(base.store, SHARD, (write_generation(base, SHARD, 1, [(1, "z")]),), 0)
    make_durable(base.store, base.version)

    def fsync(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(StorageError, match="new version durable failed"):
            merge_runs([task])
    assert base.latest() is base
    assert list(Path(base.uri, "_versions").glob("*.manifest-*")) == []
    assert merge_runs([task]).rows_upserted == 1


def test_a_disk_that_does_not_answer_when_a_commit_begins_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = new_table(tmp_path)
    store = LocalStore(base.uri, fsync=True)
    base = BaseTable.open(store)

    def refuse(_: LocalStore, path: str) -> None:
        raise StorageError("the disk does not answer", where=path)

    monkeypatch.setattr(LocalStore, "head", refuse)
    with pytest.raises(StorageError, match="does not answer"), committing(store, base.dataset):
        raise AssertionError("there is nothing to commit with")


def test_many_files_are_made_durable_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "table"
    lance.write_dataset(table_of(SCHEMA, [(n, "a") for n in range(100)]), root, max_rows_per_file=1)
    synced: list[int] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(descriptor)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    make_durable(LocalStore(root), 1)
    assert len(synced) < 3

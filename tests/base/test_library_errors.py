"""The library's own messages, provoked: if it words one differently, the table here is out of date."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pytest
from lance.dataset import LanceOperation, MergeInsertBuilder
from tests.base.table_kit import SCHEMA, new_shard, new_table, table_of

from weir.base.durability import DurableVersions
from weir.base.library_errors import LIBRARY_ERRORS, LibraryFailure, classify, is_panic, storage_failure
from weir.base.manifest import read_manifest
from weir.base.publish import mem_wal_index_change
from weir.storage.local import LocalStore


def caught(action: Callable[[], object]) -> LibraryFailure:
    with pytest.raises(LIBRARY_ERRORS) as info:
        action()
    assert not is_panic(info.value)
    return classify(info.value)


def upsert(dataset: lance.LanceDataset) -> MergeInsertBuilder:
    return dataset.merge_insert(["id"]).use_index(False).when_matched_update_all()


def test_absence(tmp_path: Path) -> None:
    base = new_table(tmp_path)
    assert caught(lambda: lance.dataset(str(tmp_path / "nothing"))) is LibraryFailure.ABSENT
    assert caught(lambda: lance.dataset(base.uri, version=99)) is LibraryFailure.ABSENT
    assert caught(lambda: base.dataset.checkout_version(99)) is LibraryFailure.ABSENT


def test_existence(tmp_path: Path) -> None:
    base = new_table(tmp_path)
    rows = table_of(SCHEMA, [(1, "a")])
    assert caught(lambda: lance.write_dataset(rows, base.uri, mode="create")) is LibraryFailure.EXISTS


def test_progress_that_is_not_above_what_is_recorded(tmp_path: Path) -> None:
    base = new_table(tmp_path)
    rows = table_of(SCHEMA, [(1, "a")]).cast(base.schema)
    mark = lance.CompactedSsTable(str(new_shard()), 3)
    upsert(lance.dataset(base.uri)).mark_sstables_as_compacted([mark]).execute(rows)
    again = upsert(lance.dataset(base.uri)).mark_sstables_as_compacted([mark])
    assert caught(lambda: again.execute(rows)) is LibraryFailure.STALE_PROGRESS


def test_conflicts(tmp_path: Path) -> None:
    base = new_table(tmp_path, rows=[(1, "a")])
    rows = table_of(SCHEMA, [(1, "b")]).cast(base.schema)
    old = lance.dataset(base.uri)
    upsert(lance.dataset(base.uri)).execute(rows)
    pinned = upsert(old).conflict_retries(0)
    assert caught(lambda: pinned.execute(rows)) is LibraryFailure.CONFLICT

    manifest = read_manifest(base.store, base.version)
    change = mem_wal_index_change(base.version, base.details, replaced=manifest.mem_wal_index())
    lance.LanceDataset.commit(base.uri, change, read_version=base.version)
    assert (
        caught(lambda: lance.LanceDataset.commit(base.uri, change, read_version=base.version))
        is LibraryFailure.CONFLICT
    )

    old = lance.dataset(base.uri)
    lance.dataset(base.uri).restore()  # type: ignore[no-untyped-call]
    delete = LanceOperation.Delete([], [old.get_fragments()[0].fragment_id], "true")
    assert (
        caught(lambda: lance.LanceDataset.commit(base.uri, delete, read_version=old.version))
        is LibraryFailure.CONFLICT
    )


def test_a_conflict_with_a_version_that_is_gone_by_the_time_it_is_looked_at(tmp_path: Path) -> None:
    base = new_table(tmp_path, rows=[(1, "a")])
    rows = table_of(SCHEMA, [(1, "b")]).cast(base.schema)
    winner = lance.dataset(base.uri)

    class CleanedUp(DurableVersions):
        def create_table_version(self, request: Any) -> Any:
            for _ in range(2):
                upsert(winner).execute(rows)
            try:
                return super().create_table_version(request)
            finally:
                winner.cleanup_old_versions(timedelta(0), delete_unverified=True)

    loser = lance.LanceDataset(
        base.uri,
        base.version,
        namespace_client=CleanedUp(LocalStore(base.uri)),
        table_id=[base.uri],
        namespace_client_managed_versioning=True,
    )
    assert caught(lambda: upsert(loser).conflict_retries(0).execute(rows)) is LibraryFailure.CONFLICT


def test_anything_else(tmp_path: Path) -> None:
    base = new_table(tmp_path)
    assert caught(lambda: base.dataset.to_table(filter="no such thing(")) is LibraryFailure.OTHER
    error = storage_failure(OSError("disk on fire"), "reading", where="there")
    assert (error.message, error.where) == ("reading failed: disk on fire", "there")


def test_failures_of_the_system_come_with_advice() -> None:
    full = OSError("LanceError(IO): No space left on device (os error 28), /a/b.rs:254:9")
    assert "Free some space" in str(storage_failure(full, "merging", where="/table"))
    assert storage_failure(ValueError("something else"), "merging", where="/table").hint is None

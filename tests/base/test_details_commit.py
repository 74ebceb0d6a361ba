from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID

import lance
import pytest
from lance import CompactedSsTable
from tests.base.table_kit import SCHEMA, new_shard, new_table, table_of, together
from tests.crashes import start, wait_for

from weir.base import details_commit
from weir.base.details_commit import update_details
from weir.base.manifest import read_manifest
from weir.base.publish import mem_wal_index_change, publish_details
from weir.base.table import BaseTable
from weir.errors import ConflictError, InputError, ObjectExistsError, TableNotFoundError
from weir.format.index_details import IndexDetails, MergedGeneration
from weir.storage.interface import Bytes
from weir.storage.local import LocalStore


def counted(name: str) -> Callable[[IndexDetails], IndexDetails]:
    """Return a change that loses a count if it is applied to anything but the newest details."""

    def change(details: IndexDetails) -> IndexDetails:
        defaults = dict(details.writer_config_defaults)
        defaults[name] = str(int(defaults.get(name, "0")) + 1)
        return replace(details, num_shards=details.num_shards + 1, writer_config_defaults=defaults)

    return change


def library_merge(base: BaseTable, shard: UUID, generation: int) -> None:
    """Merge a row the way any user of the library can, with progress in the same commit."""
    row = table_of(SCHEMA, [(generation, str(shard))]).cast(base.schema)
    builder = lance.dataset(base.uri).merge_insert(["id"]).use_index(False)
    builder = builder.when_matched_update_all().when_not_matched_insert_all()
    builder.mark_sstables_as_compacted([CompactedSsTable(str(shard), generation)]).execute(row)


def test_a_change_is_committed_and_the_rest_stays(tmp_path: Path) -> None:
    base = new_table(tmp_path, rows=[(1, "a")])
    newer = update_details(base, lambda old: replace(old, maintained_indexes=("vector_idx",)))
    assert newer.version == base.version + 1
    assert newer.details == replace(base.details, maintained_indexes=("id_idx", "vector_idx"))
    assert newer.dataset.to_table() == base.dataset.to_table()
    assert newer.dataset.mem_wal_index_details() == {
        **(base.dataset.mem_wal_index_details() or {}),
        "maintained_indexes": ["id_idx", "vector_idx"],
    }
    # Committed like any other change: the library sees the transaction and commits on top of it.
    transaction = newer.dataset.read_transaction(newer.version)
    assert transaction is not None
    assert transaction.read_version == base.version
    library_merge(newer, new_shard(), 5)
    assert newer.latest().dataset.count_rows() == 2


def test_nothing_is_committed_when_nothing_changes(tmp_path: Path) -> None:
    base = new_table(tmp_path)
    assert update_details(base, lambda old: replace(old)) is base


def test_a_change_that_raises_commits_nothing(tmp_path: Path) -> None:
    base = new_table(tmp_path)

    def refuse(_: IndexDetails) -> IndexDetails:
        raise InputError("not like this")

    with pytest.raises(InputError, match="not like this"):
        update_details(base, refuse)
    assert base.latest() is base


def test_progress_cannot_be_taken_back(tmp_path: Path) -> None:
    base = new_table(tmp_path)
    shard = new_shard()
    library_merge(base, shard, 5)
    with pytest.raises(InputError, match="cannot go back from generation 5 to 0"):
        update_details(base, lambda old: replace(old, merged_generations=()))
    with pytest.raises(InputError, match="from generation 5 to 4"):
        update_details(base, lambda old: replace(old, merged_generations=(MergedGeneration(shard, 4),)))
    assert base.latest().details.merged_generation(shard) == 5


def test_a_change_sees_what_was_committed_since_the_handle_was_opened(tmp_path: Path) -> None:
    base = new_table(tmp_path)
    shard = new_shard()
    library_merge(base, shard, 3)
    newer = update_details(base, lambda old: replace(old, num_shards=old.num_shards + 1))
    assert (newer.details.num_shards, newer.details.merged_generation(shard)) == (1, 3)


def test_a_commit_in_between_is_noticed_and_the_change_applied_to_it(tmp_path: Path) -> None:
    base = new_table(tmp_path)
    shard = new_shard()
    seen: list[int] = []

    def change(details: IndexDetails) -> IndexDetails:
        seen.append(details.merged_generation(shard))
        if len(seen) == 1:
            library_merge(base, shard, 6)
        return replace(details, num_shards=9)

    newer = update_details(base, change)
    assert seen == [0, 6]
    assert (newer.details.num_shards, newer.details.merged_generation(shard)) == (9, 6)
    # The version that lost the race has left nothing behind. The first has its transaction in the manifest.
    transactions = [entry.path for entry in base.store.list("_transactions")]
    assert len(transactions) == len(list((Path(base.uri) / "_versions").glob("*.manifest"))) - 1


def test_the_librarys_own_commit_of_details_would_lose_progress(tmp_path: Path) -> None:
    # Why details are not committed with LanceDataset.commit. When this fails, the library has learnt
    # to reject such a commit, and weir.base.publish can go.
    base = new_table(tmp_path)
    shard = new_shard()
    manifest = read_manifest(base.store, base.version)
    stale = mem_wal_index_change(base.version, base.details, replaced=manifest.mem_wal_index())
    library_merge(base, shard, 6)
    assert base.latest().details.merged_generation(shard) == 6
    lance.LanceDataset.commit(base.uri, stale, read_version=base.version, max_retries=0)
    assert base.latest().details.merged_generation(shard) == 0


class ForgetfulStore(LocalStore):
    """Publishes what it is given, and says that somebody else has."""

    def put_if_absent(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
        super().put_if_absent(path, data)
        raise ObjectExistsError("there is one", where=path)


def test_a_commit_whose_answer_was_lost_is_recognised_as_our_own(tmp_path: Path) -> None:
    created = new_table(tmp_path)
    base = BaseTable.open(ForgetfulStore(created.uri, fsync=False))
    newer = update_details(base, counted("times"))
    assert newer.version == base.version + 1
    assert newer.details.writer_config_defaults["times"] == "1"


def test_a_version_that_is_taken_is_not_published(tmp_path: Path) -> None:
    base = new_table(tmp_path)
    manifest = read_manifest(base.store, base.version)
    assert publish_details(base.store, manifest, replace(base.details, num_shards=1)) == base.version + 1
    assert publish_details(base.store, manifest, replace(base.details, num_shards=2)) is None
    assert base.latest().details.num_shards == 1


def test_giving_up_is_a_conflict(tmp_path: Path) -> None:
    base = new_table(tmp_path)
    shard = new_shard()
    calls: list[int] = []

    def always_too_late(details: IndexDetails) -> IndexDetails:
        calls.append(len(calls) + 1)
        library_merge(base, shard, len(calls))
        return replace(details, num_shards=9)

    with pytest.raises(ConflictError, match="3 attempts"):
        update_details(base, always_too_late, max_attempts=3)
    assert calls == [1, 2, 3]
    assert base.latest().details.num_shards == 0


def test_a_table_that_lost_its_index_is_named(tmp_path: Path) -> None:
    base = new_table(tmp_path)
    rows = table_of(SCHEMA, [(1, "a")])
    lance.write_dataset(rows, base.uri, mode="overwrite")
    with pytest.raises(TableNotFoundError, match="no MemWAL index"):
        update_details(base, lambda old: replace(old, num_shards=1))


def test_many_threads_and_merges_lose_nothing(tmp_path: Path) -> None:
    base = new_table(tmp_path)
    shards = [new_shard() for _ in range(3)]
    updaters, times, generations = 6, 8, 12

    def update(number: int) -> None:
        mine = base
        for _ in range(times):
            mine = update_details(mine, counted(f"t{number}"))

    def merge(shard: UUID, first_key: int) -> None:
        for generation in range(1, generations + 1):
            row = table_of(SCHEMA, [(first_key + generation, "merged")]).cast(base.schema)
            builder = lance.dataset(base.uri).merge_insert(["id"]).use_index(False).conflict_retries(50)
            builder = builder.when_matched_update_all().when_not_matched_insert_all()
            builder.mark_sstables_as_compacted([CompactedSsTable(str(shard), generation)]).execute(row)

    together(
        *(lambda number=number: update(number) for number in range(updaters)),
        *(lambda shard=shard, at=at: merge(shard, at * 100) for at, shard in enumerate(shards)),
    )
    after = base.latest()
    assert after.details.num_shards == updaters * times
    assert [after.details.writer_config_defaults[f"t{number}"] for number in range(updaters)] == (
        [str(times)] * updaters
    )
    assert [after.details.merged_generation(shard) for shard in shards] == [generations] * len(shards)
    assert after.dataset.count_rows() == generations * len(shards)
    # At no version was anything lost that was there before.
    versions = [base.at_version(version) for version in range(base.version, after.version + 1)]
    for shard in shards:
        recorded = [one.details.merged_generation(shard) for one in versions]
        assert recorded == sorted(recorded)
    assert [one.details.num_shards for one in versions] == sorted(one.details.num_shards for one in versions)


def ten_shards_more(base: BaseTable) -> None:
    for _ in range(10):
        base = update_details(base, lambda old: replace(old, num_shards=old.num_shards + 1))


def test_processes_lose_nothing(tmp_path: Path) -> None:
    base = new_table(tmp_path)
    for process in [start(ten_shards_more, base) for _ in range(2)]:
        assert not wait_for(process).was_killed
    assert base.latest().details.num_shards == 20


def test_waiting_grows_and_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    # For this module alone: other threads of the process wait by the clock.
    monkeypatch.setattr("weir.base.details_commit.time", SimpleNamespace(sleep=waits.append))
    monkeypatch.setattr("weir.base.details_commit.random", SimpleNamespace(uniform=lambda low, high: high))
    for attempt in range(40):
        details_commit.wait_for_turn(attempt)
    assert len(waits) == 39
    assert waits == sorted(waits)
    assert waits[-1] <= 0.5

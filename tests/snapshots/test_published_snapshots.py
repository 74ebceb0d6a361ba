"""``consistency="snapshot"`` reads what is published alone; stale, it is less fresh and never wrong."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import lance
import pyarrow as pa
import pytest
from lance.mem_wal import LsmScanner, ShardSnapshot

import weir
import weir.base.published
import weir.snapshots.snapshot
from weir.base.key_index_files import refuse_damaged_key_index
from weir.base.published import publish_shards, published_shards
from weir.base.table import BaseTable
from weir.engine import failpoint
from weir.engine.context import default_context
from weir.engine.failpoint import FailpointError
from weir.engine.runner import ThreadRunner
from weir.format import layout
from weir.log.manifest_store import list_shards
from weir.maintenance.garbage.garbage import collect_garbage
from weir.merge.commit import merge_runs
from weir.merge.plan import plan_merge
from weir.sharding.shard_values import field_types
from weir.storage.counting import CountingStore
from weir.storage.interface import ObjectStore
from weir.storage.open import open_store

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])


@pytest.fixture(params=["inline", "file"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each form, with the limit between them where three shards can reach it."""
    if request.param == "file":
        monkeypatch.setattr(weir.base.published, "INLINE_SHARDS", 2)
    return str(request.param)


@pytest.fixture
def table(tmp_path: Path, form: str) -> weir.Table:
    """A table of three shards in which ids 0 to 9 are merged, and the shards published."""
    made = weir.create(tmp_path / "t", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 3), fsync=False)
    write(made, range(10), "merged")
    made.maintenance.merge()
    details = BaseTable.open(open_store(made.uri)).details
    assert (details.inline_snapshots is None) == (form == "file")
    return made


def write(table: weir.Table, ids: range, name: str, *, flush: bool = True) -> None:
    with table.writer(flush_on_close=flush) as writer:
        writer.upsert([{"id": one, "name": name} for one in ids])


def publish(table: weir.Table) -> None:
    """Publish the shards as they are, as a merge does after its commits."""
    snapshot = table.internals.reader.take_newest()
    types = field_types(snapshot.base.details.shard_specs)
    publish_shards(snapshot.base, [view.manifest for view in snapshot.shards], types)


def names(found: pa.Table) -> dict[int, str]:
    assert len(set(found.column("id").to_pylist())) == found.num_rows
    return dict(zip(found.column("id").to_pylist(), found.column("name").to_pylist(), strict=True))


def read(table: weir.Table) -> dict[int, str]:
    scanned = names(table.scan(consistency="snapshot").to_table())
    assert names(table.get(list(range(30)), consistency="snapshot")) == scanned
    return scanned


MERGED = dict.fromkeys(range(10), "merged")


def test_published_generations_are_read_and_nothing_newer(table: weir.Table) -> None:
    write(table, range(5, 15), "published")
    publish(table)
    write(table, range(8, 20), "not published")
    write(table, range(3), "in the log", flush=False)
    assert read(table) == MERGED | dict.fromkeys(range(5, 15), "published")


def test_no_listing_no_manifest_and_no_log_is_read(table: weir.Table) -> None:
    write(table, range(5, 15), "published")
    publish(table)
    store = CountingStore(open_store(table.uri))
    reader = weir.Table(store, BaseTable.open(store))
    # On local disk a process compares deletion files and key index with their checksums, each once.
    reader.internals.base.refuse_damaged_deletions()
    refuse_damaged_key_index(reader.internals.base)
    default_context().cache.clear()
    store.reset()
    reader.scan(consistency="snapshot").to_table()
    asked = dict(store.counts)
    # The base table's manifest, by which the files of the key index on local disk are known, and the file
    # of the snapshot, if it has one; what the generations need is read by the library.
    assert asked in ({"get": 1}, {"get": 2})
    store.reset()
    reader.scan(consistency="snapshot").to_table()
    assert dict(store.counts) == {}


def test_generations_that_have_been_merged_since_do_not_count(table: weir.Table) -> None:
    """A listed generation that is merged would outrank what a later merge has made newer."""
    write(table, range(5, 15), "older")
    publish(table)
    base = BaseTable.open(open_store(table.uri))
    stale = published_shards(base)
    write(table, range(5, 15), "newer")
    # Merged by somebody who publishes nothing.
    manifests = [view.manifest for view in table.internals.reader.take_newest().shards]
    for task in plan_merge(base.store, base.details, manifests):
        merge_runs([task])
    assert published_shards(base.latest()) == stale
    assert any(one.flushed_generations for one in stale)
    assert read(table) == MERGED | dict.fromkeys(range(5, 15), "newer")


def test_generations_that_have_been_collected_since_are_not_missed(table: weir.Table) -> None:
    write(table, range(5, 15), "published")
    publish(table)
    reader = weir.open(table.uri, fsync=False)
    assert read(reader) == MERGED | dict.fromkeys(range(5, 15), "published")
    listed = {
        one.path
        for shard in published_shards(reader.internals.base.latest())
        for one in shard.flushed_generations
    }
    table.maintenance.merge()
    # The published list is that of before, as if the merge had died before it published.
    base = BaseTable.open(open_store(table.uri))
    for _ in range(2):
        collect_garbage(base, ThreadRunner(), horizon=timedelta(0), version_retention=timedelta(0))
    left = {one.path.split("/")[2] for one in base.store.list(layout.MEM_WAL)}
    assert not listed & left
    assert read(reader) == MERGED | dict.fromkeys(range(5, 15), "published")
    assert read(weir.open(table.uri, fsync=False)) == MERGED | dict.fromkeys(range(5, 15), "published")


def interrupt_merge(table: weir.Table) -> None:
    with failpoint.armed("merge.between_passes", "raise"), pytest.raises(FailpointError):
        table.maintenance.merge()


@pytest.mark.covering
@pytest.mark.parametrize("are_listed", [False, True], ids=["unlisted", "listed"])
def test_deletes_of_a_merge_are_not_shown_without_its_rows(table: weir.Table, are_listed: bool) -> None:
    """A row that is replaced by one with another key: at no moment neither is there."""
    with table.writer() as writer:
        writer.delete([0, 1, 2, 3])
        writer.upsert([{"id": key, "name": "instead"} for key in (10, 11, 12, 13)])
    expected = {key: name for key, name in MERGED.items() if key > 3}
    expected |= dict.fromkeys(range(10, 14), "instead")
    if are_listed:
        publish(table)
    interrupt_merge(table)
    assert lance.dataset(table.uri).count_rows() == 6
    assert read(table) == read(weir.open(table.uri, fsync=False)) == expected
    store = CountingStore(open_store(table.uri))
    reader = weir.Table(store, BaseTable.open(store))
    # On local disk a process compares deletion files and key index with their checksums, each once.
    reader.internals.base.refuse_damaged_deletions()
    refuse_damaged_key_index(reader.internals.base)
    default_context().cache.clear()
    store.reset()
    reader.scan(consistency="snapshot").to_table()
    assert ("list_directories" in store.counts) != are_listed
    # What comes after is shown of no shard, or of those that had to be looked at.
    write(table, range(20, 21), "later")
    assert read(table) in (expected, expected | {20: "later"})
    # Started over, with more, and interrupted again: the mark is raised.
    with table.writer() as writer:
        writer.delete([4])
        writer.upsert([{"id": 5, "name": "later"}])
    interrupt_merge(table)
    del expected[4]
    assert read(table) == expected | {5: "later", 20: "later"}
    # And once more, with nothing that is new.
    interrupt_merge(table)
    assert read(table) == expected | {5: "later", 20: "later"}
    table.maintenance.merge()
    assert read(table) == expected | {5: "later", 20: "later"}
    store.reset()
    reader.scan(consistency="snapshot").to_table()
    assert set(store.counts) <= {"get"}
    assert not table.maintenance.verify().findings


def test_deletes_of_the_first_merge_of_a_shard_are_not_shown_without_its_rows(tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"id": [1, 2], "name": ["old", "old"]}), tmp_path / "t")
    table = weir.adopt(tmp_path / "t", primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.delete([1])
        writer.upsert([{"id": 3, "name": "new"}])
    # Nothing is known of the shard yet.
    assert read(table) == {1: "old", 2: "old"}
    interrupt_merge(table)
    assert read(table) == {2: "old", 3: "new"}
    assert not table.maintenance.verify().findings
    assert table.status().unmerged_rows == 2
    table.maintenance.merge()
    assert read(table) == {2: "old", 3: "new"}


def test_generations_that_are_merged_and_collected_while_they_are_looked_for(
    table: weir.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the base table, which shows half of them, and the one at the shards."""
    with table.writer() as writer:
        writer.delete([0, 1, 2, 3])
        writer.upsert([{"id": key, "name": "instead"} for key in (10, 11, 12, 13)])
    interrupt_merge(table)
    reader = weir.open(table.uri, fsync=False)
    done: list[bool] = []

    def collected_before(store: ObjectStore) -> tuple[UUID, ...]:
        if not done:
            done.append(True)
            table.maintenance.merge()
            for _ in range(2):
                collect_garbage(
                    BaseTable.open(store),
                    ThreadRunner(),
                    horizon=timedelta(0),
                    version_retention=timedelta(0),
                )
        return list_shards(store)

    monkeypatch.setattr(weir.snapshots.snapshot, "list_shards", collected_before)
    found = names(reader.scan(consistency="snapshot").to_table())
    assert done
    assert found == dict.fromkeys(range(4, 10), "merged") | dict.fromkeys(range(10, 14), "instead")


def test_shards_that_are_not_listed_yet_are_seen_later(table: weir.Table, tmp_path: Path) -> None:
    fresh = weir.create(tmp_path / "n", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 3), fsync=False)
    write(fresh, range(4), "new")
    assert read(fresh) == {}
    publish(fresh)
    assert read(fresh) == dict.fromkeys(range(4), "new")


def test_a_snapshot_whose_file_is_gone_shows_the_base_table(table: weir.Table, form: str) -> None:
    write(table, range(5, 15), "published")
    publish(table)
    store = open_store(table.uri)
    store.delete([one.path for one in store.list("_indices") if one.path.endswith("/index.lance")])
    default_context().cache.clear()
    expected = MERGED if form == "file" else MERGED | dict.fromkeys(range(5, 15), "published")
    assert read(weir.open(table.uri, fsync=False)) == expected


def test_shards_are_pruned_by_published_values(table: weir.Table) -> None:
    write(table, range(5, 15), "published")
    publish(table)
    reader = weir.open(table.uri, fsync=False)
    plan = str(reader.scan(filter="id = 7", consistency="snapshot").explain())
    assert "1 of 3 shards" in plan
    assert names(reader.scan(filter="id = 7", consistency="snapshot").to_table()) == {7: "published"}


def test_the_library_reads_and_writes_a_table_with_either_form(table: weir.Table) -> None:
    write(table, range(5, 15), "published")
    publish(table)
    expected = MERGED | dict.fromkeys(range(5, 15), "published")
    dataset = lance.dataset(table.uri)
    details = dataset.mem_wal_index_details()
    assert details is not None
    assert details["num_shards"] == 3
    assert dataset.stats.index_stats("__lance_mem_wal")["num_shards"] == 3
    snapshot = table.internals.reader.take_newest()
    listed = []
    for view in snapshot.shards:
        shard = ShardSnapshot(str(view.shard_id)).with_current_generation(view.manifest.current_generation)
        for one in snapshot.unmerged(view):
            shard = shard.with_sstable(one.generation, one.path)
        listed.append(shard)
    assert names(LsmScanner.from_snapshots(dataset, listed).to_table()) == expected
    shard_id = snapshot.shards[0].shard_id
    (owned,) = table.internals.sharding.catalog.values_of([snapshot.shards[0].manifest]).values()
    assert owned is not None
    own = next(
        one for one in range(10) if table.internals.sharding.router.partition(_row(one)).values == (owned,)
    )
    with dataset.mem_wal_writer(str(shard_id)) as writer:
        writer.put(pa.Table.from_pylist([{"id": own, "name": "library"}], SCHEMA))
    assert names(table.scan().to_table())[own] == "library"
    dataset.create_scalar_index("name", "BTREE")
    dataset.optimize.compact_files()
    table.maintenance.merge()
    assert names(lance.dataset(table.uri).to_table()) == expected | {own: "library"}
    assert read(table) == expected | {own: "library"}


def _row(key: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array([key]), pa.array([str(uuid4())])], schema=SCHEMA)

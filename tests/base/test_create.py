from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import lance
import pyarrow as pa
import pytest
from lance.mem_wal import LsmPointLookupPlanner, LsmScanner, ShardSnapshot
from tests.base.table_kit import (
    SCHEMA,
    Key,
    Row,
    contents,
    new_store,
    new_table,
    newest_manifest,
    table_of,
    write_generation,
)
from tests.crashes import kill_at

from weir.base.create import adopt_base_table, create_base_table
from weir.base.details_commit import update_details
from weir.base.key_index import extend_key_index
from weir.base.table import BaseTable
from weir.engine import failpoint
from weir.errors import (
    KeyValueError,
    SchemaError,
    ShardingError,
    TableExistsError,
    TableNotFoundError,
)
from weir.format import layout
from weir.format.index_details import ShardFieldSpec, ShardSpec
from weir.merge.commit import merge_runs
from weir.merge.plan import MergeTask
from weir.storage.local import LocalStore

SHARD = UUID("8f3b0d9e-7f2c-4b5e-9c51-2a6de1c0a007")
BUCKET = ShardSpec(1, (ShardFieldSpec("bucket", (0,), "bucket", None, "int32", {"num_buckets": "4"}),))
KEYED = pa.field("id", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"})


def files_of(store: LocalStore) -> list[str]:
    return [entry.path for entry in store.list("")]


def index_names(base: BaseTable) -> list[str]:
    return [index.name for index in base.dataset.describe_indices()]


# ------------------------------------------------------------------ creating


def test_a_new_table_is_empty_and_complete(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    base = create_base_table(
        store, SCHEMA, ("id",), shard_specs=(BUCKET,), writer_defaults={"durable_write": "true"}
    )
    assert base.version == base.latest().version
    assert base.primary_key == ("id",)
    assert contents(base) == {}
    assert base.details.shard_specs == (BUCKET,)
    assert base.details.writer_config_defaults["durable_write"] == "true"
    assert base.details.maintain_all_indexes
    assert index_names(base) == ["__lance_mem_wal", "id_idx"]
    assert BaseTable.open(store).details == base.details


def test_two_tables_have_different_identities(tmp_path: Path) -> None:
    assert new_table(tmp_path).identity != new_table(tmp_path).identity


def test_the_library_opens_writes_and_reads_it(tmp_path: Path) -> None:
    base = create_base_table(
        new_store(tmp_path),
        SCHEMA,
        ("id",),
        shard_specs=(BUCKET,),
        initial_data=table_of(SCHEMA, [(1, "a"), (2, "b")]),
    )
    dataset = lance.dataset(base.uri)
    details = dataset.mem_wal_index_details()
    assert details is not None
    assert details["sharding_specs"][0]["fields"][0]["parameters"] == {"num_buckets": "4"}
    shard_id = uuid4()
    with dataset.mem_wal_writer(str(shard_id)) as writer:
        writer.put(table_of(SCHEMA, [(2, "newer"), (3, "c")]).cast(dataset.schema))
        writer.delete(pa.table({"id": [1]}))
    snapshot = ShardSnapshot(str(shard_id)).with_current_generation(2)
    for flushed in newest_manifest(base.store, shard_id).flushed_generations:
        snapshot = snapshot.with_sstable(flushed.generation, flushed.path)
    rows = LsmScanner.from_snapshots(dataset, [snapshot]).to_table().sort_by("id").to_pylist()
    assert rows == [{"id": 2, "value": "newer"}, {"id": 3, "value": "c"}]
    lookup = LsmPointLookupPlanner(dataset, [snapshot]).plan_lookup(pa.array([3], pa.int64()))
    assert lookup.to_table().to_pylist() == [{"id": 3, "value": "c"}]


def test_a_composite_key_has_an_index_per_column_and_works_in_the_library(tmp_path: Path) -> None:
    schema = pa.schema([("tenant", pa.string()), ("id", pa.int64()), ("value", pa.string())])
    base = new_table(tmp_path, schema, ("tenant", "id"), [("x", 1, "a"), ("y", 1, "b")])
    assert index_names(base) == ["__lance_mem_wal", "id_idx", "tenant_idx"]
    shard_id = uuid4()
    with lance.dataset(base.uri).mem_wal_writer(str(shard_id)) as writer:
        writer.put(table_of(schema, [("x", 1, "newer")]).cast(base.schema))
    (flushed,) = newest_manifest(base.store, shard_id).flushed_generations
    snapshot = ShardSnapshot(str(shard_id)).with_current_generation(2).with_sstable(1, flushed.path)
    rows = LsmScanner.from_snapshots(base.dataset, [snapshot]).to_table().sort_by("tenant").to_pylist()
    assert [row["value"] for row in rows] == ["newer", "b"]


def test_initial_data_is_an_upsert(tmp_path: Path) -> None:
    rows = table_of(SCHEMA, [(1, "old"), (2, "b"), (1, "new")])
    for data in (rows, rows.combine_chunks().to_batches()[0], rows.to_reader(max_chunksize=1)):
        base = create_base_table(new_store(tmp_path), SCHEMA, ("id",), initial_data=data)
        assert contents(base) == {(1,): (1, "new"), (2,): (2, "b")}


def test_initial_data_is_cast_and_its_columns_put_in_order(tmp_path: Path) -> None:
    data = pa.table({"value": pa.array(["a"], pa.large_string()), "id": pa.array([7], pa.int16())})
    assert contents(create_base_table(new_store(tmp_path), SCHEMA, ("id",), initial_data=data)) == {
        (7,): (7, "a")
    }


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (pa.table({"id": pa.array([1, None], pa.int64()), "value": ["a", "b"]}), KeyValueError, "1 rows"),
        (pa.table({"id": [1]}), SchemaError, "value"),
        (pa.table({"id": [1], "value": ["a"], "more": [1]}), SchemaError, "more"),
        (pa.table({"id": ["one"], "value": ["a"]}), SchemaError, "string"),
        ([{"id": 1, "value": "a"}], SchemaError, "not list"),
    ],
)
def test_unfit_initial_data_leaves_nothing(
    tmp_path: Path, data: object, error: type[Exception], message: str
) -> None:
    store = new_store(tmp_path)
    with pytest.raises(error, match=message):
        create_base_table(store, SCHEMA, ("id",), initial_data=data)
    assert files_of(store) == []


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        ((ShardSpec(0),), "not positive"),
        ((ShardSpec(2), ShardSpec(2)), "used twice"),
        ((ShardSpec(1, (ShardFieldSpec("f", (9,), "identity", None, "int64"),)),), "id 9"),
    ],
)
def test_unfit_shard_specs_leave_nothing(tmp_path: Path, specs: tuple[ShardSpec, ...], message: str) -> None:
    store = new_store(tmp_path)
    with pytest.raises(ShardingError, match=message):
        create_base_table(store, SCHEMA, ("id",), shard_specs=specs)
    assert files_of(store) == []


def test_a_name_too_long_for_a_column_leaves_nothing(tmp_path: Path) -> None:
    schema = pa.schema([KEYED, ("n", pa.struct([("x" * 256, pa.int8())]))])
    store = new_store(tmp_path)
    with pytest.raises(SchemaError, match=r"a column name has at most 255 characters, and 'xxx.* has 256"):
        create_base_table(store, schema, ("id",))
    assert files_of(store) == []


def test_what_is_there_is_not_replaced(tmp_path: Path) -> None:
    base = new_table(tmp_path, rows=[(1, "a")])
    plain = new_store(tmp_path)
    lance.write_dataset(table_of(SCHEMA, [(1, "a")]), plain.uri)
    for store in (base.store, plain):
        assert isinstance(store, LocalStore)
        before = files_of(store)
        with pytest.raises(TableExistsError, match="adopt"):
            create_base_table(store, SCHEMA, ("id",), initial_data=table_of(SCHEMA, [(2, "b")]))
        assert files_of(store) == before


def test_shards_of_a_former_table_are_not_taken_over(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    store.put(layout.version_hint_path(uuid4()), b"{}")
    with pytest.raises(TableExistsError, match="former table"):
        create_base_table(store, SCHEMA, ("id",))


def test_of_many_that_create_at_once_one_succeeds(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    outcomes: list[str] = []

    def create(number: int) -> None:
        rows = table_of(SCHEMA, [(number, "mine")])
        try:
            create_base_table(store, SCHEMA, ("id",), initial_data=rows)
            outcomes.append(f"created {number}")
        except TableExistsError:
            outcomes.append("exists")

    threads = [threading.Thread(target=create, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [int(outcome.split()[1]) for outcome in outcomes if outcome.startswith("created")]
    assert contents(BaseTable.open(store)) == {(winner,): (winner, "mine")}
    # The losers take their rows with them.
    assert len([path for path in files_of(store) if path.startswith("data/")]) == 1


@pytest.mark.parametrize(
    ("first", "second"), [((), ("id",)), (("id",), ("id", "value")), ((), ("id", "value"))]
)
def test_of_two_that_create_different_tables_at_once_one_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: tuple[str, ...], second: tuple[str, ...]
) -> None:
    """The library takes a step for each column of the key, if there are no rows."""
    store = new_store(tmp_path)
    outcomes: dict[tuple[str, ...], BaseTable | TableExistsError] = {}
    both_are_here = threading.Barrier(2)

    def create(key: tuple[str, ...]) -> None:
        rows = None if key else table_of(SCHEMA, [(1, "mine")])
        try:
            outcomes[key] = create_base_table(store, SCHEMA, key or ("id",), initial_data=rows)
        except TableExistsError as error:
            outcomes[key] = error

    monkeypatch.setattr(
        failpoint, "reach", lambda name: both_are_here.wait() if name == "create.before_publish" else None
    )
    threads = [threading.Thread(target=create, args=(key,)) for key in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [one for one in outcomes.values() if isinstance(one, BaseTable)]
    assert len(outcomes) == 2
    assert BaseTable.open(store).identity == winner.identity
    assert {
        BaseTable.open(store, version=found["version"]).identity for found in winner.dataset.versions()
    } == {winner.identity}


@pytest.mark.parametrize("place", ["create.before_data", "create.before_publish"])
def test_a_crash_before_the_table_exists_leaves_no_table(tmp_path: Path, place: str) -> None:
    store = new_store(tmp_path)
    data = table_of(SCHEMA, [(1, "a")])
    with failpoint.armed(place, "raise"), pytest.raises(failpoint.FailpointError):
        create_base_table(store, SCHEMA, ("id",), initial_data=data)
    with pytest.raises(TableNotFoundError):
        BaseTable.open(store)
    assert contents(create_base_table(store, SCHEMA, ("id",), initial_data=data)) == {(1,): (1, "a")}


def create_with_a_row(store: LocalStore) -> None:
    create_base_table(store, SCHEMA, ("id",), initial_data=table_of(SCHEMA, [(1, "a")]))


def test_a_killed_process_leaves_a_table_without_key_index_that_works(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    kill_at("create.before_key_index", create_with_a_row, store)
    base = BaseTable.open(store)
    assert index_names(base) == ["__lance_mem_wal"]
    repaired = extend_key_index(base)
    assert index_names(repaired) == ["__lance_mem_wal", "id_idx"]
    with pytest.raises(TableExistsError):
        create_base_table(store, SCHEMA, ("id",))


def test_the_library_cleans_up_its_old_versions(tmp_path: Path) -> None:
    base = new_table(tmp_path, rows=[(1, "a")])
    lance.dataset(base.uri).cleanup_old_versions(older_than=timedelta(0))
    assert contents(BaseTable.open(base.store)) == {(1,): (1, "a")}


# ------------------------------------------------------------------ adopting


def test_a_dataset_with_a_key_is_adopted(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    schema = pa.schema([KEYED, ("value", pa.string())])
    lance.write_dataset(table_of(schema, [(1, "a"), (2, "b")]).cast(schema), store.uri)
    with pytest.raises(TableNotFoundError, match="adopt"):
        BaseTable.open(store)
    base = adopt_base_table(store, shard_specs=(BUCKET,))
    assert contents(base) == {(1,): (1, "a"), (2,): (2, "b")}
    assert base.details.shard_specs == (BUCKET,)
    assert index_names(base) == ["__lance_mem_wal", "id_idx"]
    with pytest.raises(TableExistsError):
        adopt_base_table(store)


def test_a_dataset_without_a_key_is_given_one(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    schema = pa.schema([("b", pa.int64()), ("a", pa.string()), ("v", pa.string())])
    lance.write_dataset(table_of(schema, [(1, "x", "1"), (2, "x", "2")]), store.uri)
    with pytest.raises(SchemaError, match="no primary key"):
        adopt_base_table(store)
    base = adopt_base_table(store, ("a", "b"))
    assert base.primary_key == ("a", "b")
    assert not base.schema.field("a").nullable
    assert base.dataset.count_rows() == 2


def test_manifests_of_lances_first_naming_scheme(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    schema = pa.schema([KEYED, ("value", pa.string())])
    lance.write_dataset(table_of(schema, [(1, "a")]).cast(schema), store.uri, enable_v2_manifest_paths=False)
    base = adopt_base_table(store)
    assert contents(base) == {(1,): (1, "a")}
    assert (Path(store.uri) / "_versions" / f"{base.version}.manifest").exists()


@pytest.mark.parametrize("kind", ["stable row ids", "older files", "cleans up by itself"])
def test_datasets_of_every_kind_become_tables_that_merge(tmp_path: Path, kind: str) -> None:
    store = new_store(tmp_path)
    schema = pa.schema([KEYED, ("value", pa.string())])
    dataset = lance.write_dataset(
        table_of(schema, [(1, "a"), (2, "b")]).cast(schema),
        store.uri,
        enable_stable_row_ids=kind == "stable row ids",
        data_storage_version="2.0" if kind == "older files" else "stable",
    )
    if kind == "cleans up by itself":
        dataset.optimize.enable_auto_cleanup({"interval": 1, "older_than_seconds": 0})
    base = adopt_base_table(store)
    for number in range(1, 4):
        rows: list[Row | Key] = [(1, f"{number}"), (number + 1,), (number + 10, "new")]
        flushed = write_generation(base, SHARD, number, rows)
        merge_runs([MergeTask(store, SHARD, (flushed,), number - 1)])
        base = extend_key_index(update_details(base, lambda old: replace(old, num_shards=old.num_shards + 1)))
    assert contents(base) == {(1,): (1, "3"), (11,): (11, "new"), (12,): (12, "new"), (13,): (13, "new")}
    assert (base.details.num_shards, base.details.merged_generation(SHARD)) == (3, 3)


def test_what_the_library_has_set_up_is_a_table_already(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    schema = pa.schema([KEYED, ("value", pa.string())])
    dataset = lance.write_dataset(table_of(schema, [(1, "a")]).cast(schema), store.uri)
    dataset.initialize_mem_wal(bucket_column="id", num_buckets=4, max_memtable_rows=77)
    base = BaseTable.open(store)
    assert base.primary_key == ("id",)
    assert base.details.shard_specs[0].fields[0].parameters == {"num_buckets": "4"}
    assert base.details.writer_config_defaults["max_memtable_rows"] == "77"
    assert base.identity == store.uri
    with pytest.raises(TableExistsError):
        adopt_base_table(store)


def test_what_cannot_be_adopted_stays_as_it_is(tmp_path: Path) -> None:
    keyed = pa.schema([KEYED, ("value", pa.string())])
    doubled = new_store(tmp_path)
    lance.write_dataset(table_of(keyed, [(1, "a"), (1, "b"), (2, "c")]).cast(keyed), doubled.uri)
    with pytest.raises(KeyValueError, match="1 rows repeat"):
        adopt_base_table(doubled)
    with pytest.raises(SchemaError, match="cannot be changed"):
        adopt_base_table(doubled, ("value",))
    nameless = new_store(tmp_path)
    lance.write_dataset(pa.table({"id": [1, None], "_score": [1.0, 2.0]}), nameless.uri)
    with pytest.raises(SchemaError, match="_score"):
        adopt_base_table(nameless, ("id",))
    everything = new_store(tmp_path)
    lance.write_dataset(pa.table({"id": [1, 2], "*": [1.0, 2.0]}), everything.uri)
    with pytest.raises(SchemaError, match="reserved"):
        adopt_base_table(everything, ("id",))
    holes = new_store(tmp_path)
    lance.write_dataset(pa.table({"id": [1, None], "price": [1.0, 2.0]}), holes.uri)
    with pytest.raises(KeyValueError, match="1 rows have no key"):
        adopt_base_table(holes, ("id",))
    with pytest.raises(SchemaError, match="'price'"):
        adopt_base_table(holes, ("price",))
    with pytest.raises(SchemaError, match="'nothing'"):
        adopt_base_table(holes, ("nothing",))
    with pytest.raises(TableNotFoundError):
        adopt_base_table(new_store(tmp_path), ("id",))
    for store in (doubled, nameless, holes):
        assert lance.dataset(store.uri).version == 1


def test_keys_are_taken_on_trust_when_asked(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    schema = pa.schema([KEYED, ("value", pa.string())])
    lance.write_dataset(table_of(schema, [(1, "a"), (1, "b")]).cast(schema), store.uri)
    assert adopt_base_table(store, check_keys=False).dataset.count_rows() == 2


def test_rows_that_arrive_while_a_dataset_is_adopted_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = new_store(tmp_path)
    schema = pa.schema([KEYED, ("value", pa.string())])
    lance.write_dataset(table_of(schema, [(1, "a")]).cast(schema), store.uri)
    arriving = [(2, "b"), (3, "c")]

    def append(place: str) -> None:
        if place == "adopt.before_publish" and arriving:
            lance.write_dataset(table_of(schema, [arriving.pop()]).cast(schema), store.uri, mode="append")

    monkeypatch.setattr(failpoint, "reach", append)
    assert sorted(contents(adopt_base_table(store))) == [(1,), (2,), (3,)]

"""Indexes of a table through its whole life: declared, built in generations, caught up, trained again."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import weir
from weir.base import index_changes
from weir.base.details_commit import update_details
from weir.base.index_list import existing_indexes
from weir.base.maintained_indexes import maintained_indexes
from weir.base.published import publish_shards
from weir.base.table import BaseTable
from weir.engine.context import default_context
from weir.engine.runner import ThreadRunner
from weir.errors import (
    IndexDefinitionError,
    IndexExistsError,
    IndexNotFoundError,
    OptionError,
    StorageError,
    WeirError,
)
from weir.indexing import build_plan
from weir.indexing.build import build_index
from weir.indexing.definition import IndexDefinition
from weir.indexing.describe import ExistingIndex
from weir.indexing.kinds import IndexKind
from weir.maintenance import catch_up
from weir.storage.local import LocalStore

DIMENSION = 16
KEY = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("category", pa.int32()),
        ("text", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("at", pa.timestamp("us")),
        ("vector", pa.list_(pa.float32(), DIMENSION)),
    ]
)
KINDS = {
    "category": ["BITMAP", "ZONEMAP", "BLOOMFILTER"],
    "text": ["INVERTED", "NGRAM"],
    "tags": ["LABEL_LIST"],
    "at": ["BTREE"],
    "vector": ["IVF_FLAT", "IVF_PQ", "IVF_HNSW_SQ"],
}
POLICY = weir.IndexPolicy(kinds=KINDS)


def rows(start: int, count: int, *, centre: float = 0.0) -> pa.Table:
    random = np.random.default_rng(start)
    numbers = np.arange(start, start + count)
    vectors = random.normal(centre, size=count * DIMENSION).astype(np.float32)
    return pa.table(
        {
            "id": numbers,
            "category": (numbers % 7).astype(np.int32),
            "text": [f"running water number {number % 97}" for number in numbers],
            "tags": [[f"tag{number % 5}"] for number in numbers],
            "at": pa.array(numbers * 1000, pa.timestamp("us")),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors), DIMENSION),
        },
        schema=SCHEMA,
    )


def upsert(table: weir.Table, *parts: pa.Table) -> None:
    """Write each part to a generation of its own."""
    with table.writer() as writer:
        for part in parts:
            writer.upsert(part)
            writer.flush()


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    return weir.create(tmp_path / "table", SCHEMA, primary_key="id", fsync=False)


@pytest.fixture
def small_generations_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_plan, "_MIN_ROWS", dict.fromkeys(IndexKind, 1))


def described(dataset: lance.LanceDataset) -> tuple[ExistingIndex, ...]:
    return existing_indexes(dataset, default_context().cache)


def generations(table: weir.Table) -> list[lance.LanceDataset]:
    found = Path(table.uri).glob("_mem_wal/*/*_gen_*")
    return [lance.dataset(path) for path in sorted(found, key=lambda path: int(path.name.split("_gen_")[1]))]


def covers_everything(table: weir.Table) -> bool:
    base = table.internals.base.latest()
    fragments = {one.fragment_id for one in base.dataset.get_fragments()}
    return all(index.fragment_ids >= fragments for index in table.indexes.list())


def caught_up(table: weir.Table) -> dict[str, int]:
    """Return how far each index is, in the only shard."""
    details = table.internals.base.latest().details
    return {
        one.index_name: max((item.generation for item in one.caught_up), default=0)
        for one in details.index_catchup
    }


@pytest.mark.usefixtures("small_generations_gain")
def test_every_kind_through_a_whole_life(table: weir.Table) -> None:
    created = table.indexes.policy(POLICY)
    assert sorted(str(one.kind) for one in created) == sorted(
        kind for kinds in KINDS.values() for kind in kinds
    )
    assert table.indexes.policy(POLICY) == ()

    upsert(table, rows(0, 600))
    # Nothing has been learnt of vectors so far.
    (first,) = generations(table)
    assert {one.library_kind for one in described(first)} == {
        "Bitmap", "ZoneMap", "BloomFilter", "Inverted", "NGram", "LabelList", "BTree"
    }  # fmt: skip
    table.maintenance.merge()
    assert not covers_everything(table)
    report = table.maintenance.catch_up_indexes()
    assert covers_everything(table)
    actions = {one.name: one.action for one in report.indexes}
    vectors = {one.name for one in created if one.kind.is_vector}
    assert {name for name, action in actions.items() if action == "built"} == vectors
    assert report.version == table.internals.base.latest().version

    upsert(table, rows(500, 300), rows(900, 300))
    for dataset in generations(table)[1:]:
        of_base = {one.name: one.definition for one in table.indexes.list()}
        of_generation = {one.name: one.definition for one in described(dataset)}
        assert of_generation == of_base
    table.maintenance.merge()
    report = table.maintenance.catch_up_indexes()
    assert covers_everything(table)
    assert {one.action for one in report.indexes if one.name != "id_idx"} == {"extended"}
    assert caught_up(table) == dict.fromkeys(maintained_indexes(table.internals.base.latest()), 3)
    assert {one.action for one in table.maintenance.catch_up_indexes().indexes} == {"nothing to do"}


@pytest.mark.usefixtures("small_generations_gain")
def test_zones_are_as_large_as_was_asked_of_a_table_without_rows(table: weir.Table) -> None:
    """The library forgets it of an index that covers none."""
    asked: dict[str, tuple[str, dict[str, Any]]] = {
        "id": ("ZONEMAP", {"rows_per_zone": 64}),
        "text": ("BLOOMFILTER", {"number_of_items": 32}),
    }
    for column, (kind, parameters) in asked.items():
        table.indexes.create(column, kind, name=f"{column}_zones", **parameters)
    for _ in range(2):
        upsert(table, rows(0, 300))
        table.maintenance.merge()
        table.maintenance.catch_up_indexes()
    sources = [*(described(one) for one in generations(table)), table.indexes.list()]
    assert len(sources) == 3
    for source in sources:
        found = {one.column: one.definition for one in source if one.name.endswith("_zones")}
        for column, (_, parameters) in asked.items():
            definition = found[column]
            assert definition is not None
            assert definition.parameters.items() >= parameters.items()


@pytest.mark.usefixtures("small_generations_gain")
def test_a_generation_codes_vectors_as_the_base_table_does(table: weir.Table) -> None:
    upsert(table, rows(0, 2000))
    table.maintenance.merge()
    table.indexes.create("vector", "IVF_PQ", num_partitions=4, num_sub_vectors=4)
    upsert(table, rows(0, 2000))
    query = {"column": "vector", "q": np.zeros(DIMENSION, np.float32), "k": 2000, "nprobes": 4}

    def estimated(dataset: lance.LanceDataset) -> dict[int, float]:
        found = dataset.scanner(columns=["id", "_distance"], nearest=query).to_table()
        return dict(zip(found["id"].to_pylist(), found["_distance"].to_pylist(), strict=True))

    # The same vectors in both: the same estimates, which are not the distances themselves.
    of_generation = estimated(generations(table)[1])
    assert of_generation == estimated(lance.dataset(table.uri))
    exact = np.square(np.array(rows(0, 2000)["vector"].to_pylist())).sum(axis=1)
    assert not np.allclose([of_generation[number] for number in range(2000)], exact)


def test_a_small_generation_is_left_without(table: weir.Table) -> None:
    table.indexes.policy(POLICY)
    upsert(table, rows(0, 50))
    assert [described(one) for one in generations(table)] == [()]


@pytest.mark.usefixtures("small_generations_gain")
def test_an_index_that_cannot_be_built_does_not_stop_the_flush(
    table: weir.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.indexes.policy(POLICY)

    def refused(dataset: lance.LanceDataset, definition: weir.IndexDefinition, model: object) -> None:
        if definition.column == "text":
            raise RuntimeError("no room")
        build_index(dataset, definition, None)

    monkeypatch.setattr(build_plan, "build_index", refused)

    upsert(table, rows(0, 50))
    (dataset,) = generations(table)
    built = {one.column for one in described(dataset)}
    assert "text" not in built
    assert "category" in built
    assert table.scan().count() == 50


def test_partitions_that_have_become_unequal_are_learnt_again(table: weir.Table) -> None:
    two_clouds = pa.concat_tables([rows(0, 1000, centre=-5), rows(1000, 1000, centre=5)])
    upsert(table, two_clouds)
    table.maintenance.merge()
    table.indexes.create("vector", "IVF_FLAT", num_partitions=2)
    (report,) = table.maintenance.catch_up_indexes(names=["vector_idx"]).indexes
    assert report.imbalance is not None
    assert report.imbalance < 2
    upsert(table, rows(2000, 9000, centre=5))
    table.maintenance.merge()
    (report,) = table.maintenance.catch_up_indexes(names=["vector_idx"]).indexes
    assert report.action == "extended"
    (report,) = table.maintenance.catch_up_indexes(
        names=["vector_idx"], retrain_imbalance_threshold=50
    ).indexes
    assert report.action == "nothing to do"
    assert report.imbalance == pytest.approx(10, abs=1)
    (report,) = table.maintenance.catch_up_indexes(names=["vector_idx"]).indexes
    assert (report.action, report.segments) == ("retrained", 1)
    assert report.imbalance == pytest.approx(10, abs=1)
    # The clouds are of different sizes for good: nothing has come in that could be learnt from.
    (report,) = table.maintenance.catch_up_indexes(names=["vector_idx"]).indexes
    assert report.action == "nothing to do"


def test_many_segments_become_one(table: weir.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catch_up, "MAX_SEGMENTS", 2)
    table.indexes.create("category", "BITMAP")
    for number in range(4):
        upsert(table, rows(number * 10, 10))
        table.maintenance.merge()
        (report,) = table.maintenance.catch_up_indexes(names=["category_idx"]).indexes
        assert report.segments <= 2
    assert covers_everything(table)
    assert lance.dataset(table.uri).count_rows(filter="category = 3") == 6


def test_what_is_asked_to_be_maintained_is(tmp_path: Path) -> None:
    """An index that the table does not maintain is left as it is, and its name can be asked for."""
    table = weir.create(tmp_path / "table", SCHEMA, primary_key="id", fsync=False)
    upsert(table, rows(0, 20))
    table.maintenance.merge()
    lance.dataset(table.uri).create_scalar_index("category", "BITMAP", name="by_library")
    table.indexes.create("at", "BTREE")
    upsert(table, rows(20, 20))
    table.maintenance.merge()
    names = [one.name for one in table.maintenance.catch_up_indexes().indexes]
    assert names == ["at_idx", "by_library", "id_idx"]
    assert covers_everything(table)


def unnamed(table: weir.Table, since: int = 0) -> dict[int, set[str]]:
    """Return by version the indexes that a version has and its details do not name, without the key's."""
    found = {}
    for one in lance.dataset(table.uri).versions()[since:]:
        base = BaseTable.open(LocalStore(table.uri, fsync=False), version=one["version"])
        indexes = {index.name for index in described(base.dataset)} - {"id_idx"}
        found[base.version] = indexes.difference(base.details.maintained_indexes)
    return {version: names for version, names in found.items() if names}


def test_no_version_has_an_index_that_it_does_not_name(table: weir.Table) -> None:
    """LanceDB searches by none that is not named, and stays at the version that it was opened at."""
    upsert(table, rows(0, 60))
    table.maintenance.merge()
    table.indexes.create("category", "BITMAP")
    table.indexes.create("vector", "IVF_FLAT", num_partitions=1)
    upsert(table, rows(30, 60))
    table.maintenance.merge()
    table.indexes.create("vector", "IVF_FLAT", name="vector_idx", num_partitions=2, replace=True)
    table.indexes.drop("category_idx")
    table.indexes.create("category", "ZONEMAP", name="by_zone")
    table.alter(add=[pa.field("n", pa.int32())])
    table.alter(rename={"n": "m"})
    table.alter(widen={"m": pa.int64()})
    table.maintenance.compact()
    table.maintenance.run()
    assert unnamed(table) == {}


def test_an_adopted_table_names_what_it_has(tmp_path: Path) -> None:
    dataset = lance.write_dataset(rows(0, 60), str(tmp_path / "table"))
    dataset.create_scalar_index("category", "BITMAP")
    # The version after the last one marks the key, and the one after that is a table.
    table = weir.adopt(tmp_path / "table", primary_key="id", fsync=False)
    assert unnamed(table, since=dataset.version + 1) == {}
    assert table.indexes.list()


def test_what_a_table_that_is_behind_publishes_takes_no_name_away(table: weir.Table) -> None:
    upsert(table, rows(0, 60))
    table.maintenance.merge()
    behind = table.internals.base.latest()
    table.indexes.create("category", "BITMAP")
    publish_shards(behind, ())
    assert "category_idx" in table.internals.base.latest().details.maintained_indexes
    assert unnamed(table) == {}


def test_of_an_index_that_cannot_be_built_no_name_is_left(table: weir.Table) -> None:
    upsert(table, rows(0, 60))
    table.maintenance.merge()
    with pytest.raises(IndexDefinitionError, match="cannot be built"):
        table.indexes.create("vector", "IVF_PQ", num_sub_vectors=5)
    assert table.internals.base.latest().details.maintained_indexes == ("id_idx",)


def test_two_catch_ups_at_once_beside_merges(table: weir.Table) -> None:
    table.indexes.create("category", "BITMAP")
    table.indexes.create("text", "INVERTED")
    failures: list[BaseException] = []
    done = threading.Event()

    def catch_up_forever() -> None:
        try:
            while not done.is_set():
                table.maintenance.catch_up_indexes()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=catch_up_forever) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for number in range(3):
            upsert(table, rows(number * 60, 100))
            table.maintenance.merge()
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert failures == []
    table.maintenance.catch_up_indexes()
    assert covers_everything(table)
    dataset = lance.dataset(table.uri)
    assert dataset.count_rows() == 220
    for category in range(7):
        expected = sum(number % 7 == category for number in range(220))
        assert dataset.count_rows(filter=f"category = {category}") == expected


def test_a_compaction_while_segments_are_built(table: weir.Table) -> None:
    table.indexes.create("category", "BITMAP")
    upsert(table, rows(0, 50), rows(50, 50))
    table.maintenance.merge()

    class Meanwhile(ThreadRunner):
        def run(self, function, tasks):  # type: ignore[no-untyped-def]
            built = list(super().run(function, tasks))
            lance.dataset(table.uri).optimize.compact_files()
            yield from built

    table.maintenance.catch_up_indexes(runner=Meanwhile())
    assert lance.dataset(table.uri).count_rows(filter="category = 3") == 14
    table.maintenance.catch_up_indexes()
    assert covers_everything(table)
    assert lance.dataset(table.uri).count_rows(filter="category = 3") == 14


def test_names(table: weir.Table) -> None:
    assert table.indexes.create("category", "bitmap").name == "category_idx"
    assert table.indexes.create("category", "ZONEMAP").name == "category_zonemap_idx"
    with pytest.raises(IndexExistsError, match="already has an index of kind BITMAP, 'category_idx'"):
        table.indexes.create("category", "BITMAP")
    with pytest.raises(IndexExistsError, match="already has an index 'category_idx'"):
        table.indexes.create("category", "BTREE", name="category_idx")
    assert table.indexes.create("category", "BTREE", name="category_idx", replace=True).kind == "BTREE"
    table.indexes.drop("category_zonemap_idx")
    assert [one.name for one in table.indexes.list()] == ["category_idx", "id_idx"]
    with pytest.raises(IndexNotFoundError, match="no index 'category_zonemap_idx'"):
        table.indexes.drop("category_zonemap_idx")
    with pytest.raises(IndexNotFoundError, match="no index 'nothing'"):
        table.maintenance.catch_up_indexes(names=["nothing"])


def test_the_key_index_is_kept(table: weir.Table) -> None:
    upsert(table, rows(0, 10))
    table.maintenance.merge()
    with pytest.raises(IndexDefinitionError, match="index of the primary key"):
        table.indexes.drop("id_idx")
    with pytest.raises(IndexDefinitionError, match="index of the primary key"):
        table.indexes.create("category", "BITMAP", name="id_idx", replace=True)


BAD_DEFINITIONS: list[tuple[str, str, dict[str, Any], str]] = [
    ("nothing", "BTREE", {}, "no column 'nothing'"),
    ("category", "IVF_PQ", {}, "type int32 cannot have an index of kind IVF_PQ"),
    ("vector", "IVF_PQ", {"num_sub_vectors": 5}, "cannot be built"),
    ("vector", "IVF_PQ", {"partitions": 5}, "no parameter 'partitions'"),
    ("vector", "IVF_FLAT", {"metric": "manhattan"}, "no metric"),
    ("text", "INVERTED", {"base_tokenizer": "none such"}, "cannot be built"),
    ("category", "HASH", {}, "no kind of index 'HASH'"),
]


@pytest.mark.parametrize(("column", "kind", "parameters", "message"), BAD_DEFINITIONS)
def test_a_bad_definition_changes_nothing(
    table: weir.Table, column: str, kind: str, parameters: dict[str, Any], message: str
) -> None:
    upsert(table, rows(0, 300))
    table.maintenance.merge()
    before = table.indexes.list()
    with pytest.raises(IndexDefinitionError, match=message):
        table.indexes.create(column, kind, **parameters)
    assert table.indexes.list() == before


def test_a_bad_threshold(table: weir.Table) -> None:
    with pytest.raises(OptionError, match="at least 1"):
        table.maintenance.catch_up_indexes(retrain_imbalance_threshold=0.5)


def test_one_name_is_no_list_of_names(table: weir.Table) -> None:
    with pytest.raises(OptionError, match="list of names"):
        table.maintenance.catch_up_indexes(names="id_idx")


def test_a_failing_task_says_so(table: weir.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.indexes.create("category", "BITMAP")
    upsert(table, rows(0, 10))
    table.maintenance.merge()

    def fails(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("weir.base.index_upkeep.build_segment", fails)
    with pytest.raises(StorageError, match="extending the index 'category_idx' failed: the disk is full"):
        table.maintenance.catch_up_indexes()


def test_a_vector_index_needs_no_parameter_and_no_vectors_yet(table: weir.Table) -> None:
    built = table.indexes.create("vector", "IVF_PQ")
    assert built.parameters["num_sub_vectors"] == 2
    nothing = pa.array([None], SCHEMA.field("vector").type)
    upsert(table, rows(0, 1).set_column(5, "vector", nothing))
    table.maintenance.merge()
    actions = {one.name: one.action for one in table.maintenance.catch_up_indexes().indexes}
    assert actions["vector_idx"] == "nothing to do"
    assert table.search([0.0] * DIMENSION, k=1).to_table().num_rows == 0
    upsert(table, rows(1, 500))
    table.maintenance.merge()
    actions = {one.name: one.action for one in table.maintenance.catch_up_indexes().indexes}
    assert actions["vector_idx"] == "built"
    assert table.search([0.0] * DIMENSION, k=3, nprobes=100).to_table().num_rows == 3


def test_a_policy_waits_for_rows_where_text_would_tell_the_kind(table: weir.Table) -> None:
    assert "text" not in {one.column for one in table.indexes.policy()}
    with pytest.raises(IndexDefinitionError, match="kind of index cannot be inferred"):
        table.indexes.create("text")
    upsert(table, rows(0, 200))
    table.maintenance.merge()
    assert [one.kind for one in table.indexes.policy()] == [IndexKind.BITMAP]


def test_an_index_that_somebody_else_has_built_meanwhile_stays_maintained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    dataset = lance.write_dataset(
        pa.table({"id": [1], "name": ["a"]}, schema=schema.set(0, schema.field(0).with_metadata(KEY))),
        str(tmp_path / "t"),
    )
    # Of a table of the library what is maintained is what is named.
    dataset.create_scalar_index("id", "BTREE")
    dataset.initialize_mem_wal(bucket_column="id", num_buckets=1, maintained_indexes=["id_idx"])
    base = BaseTable.open(LocalStore(tmp_path / "t"))
    assert not base.details.maintain_all_indexes
    definition = IndexDefinition("by_name", "name", IndexKind.BTREE)

    def late(target: lance.LanceDataset, wanted: IndexDefinition) -> None:
        monkeypatch.undo()
        index_changes.create_index(base, wanted)
        build_index(target, wanted)

    monkeypatch.setattr(index_changes, "build_index", late)
    with pytest.raises(WeirError):
        index_changes.create_index(base, definition)
    assert "by_name" in base.latest().details.maintained_indexes

    index_changes.drop_index(base, "by_name")
    begun = update_details(
        base, lambda details: replace(details, maintained_indexes=(*details.maintained_indexes, "by_name"))
    )
    index_changes.create_index(begun, definition)
    # A catch-up that has seen the table before the index was built.
    assert "by_name" in catch_up._with_names(begun).details.maintained_indexes


def test_a_table_is_written_to_beside_an_index_by_differing_bits(tmp_path: Path) -> None:
    """Weir builds none by this metric; plain Lance does, and a definition of it could not be made."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("bits", pa.list_(pa.uint8(), 8))])
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    table.upsert([{"id": number, "bits": [number % 256] * 8} for number in range(400)])
    table.maintenance.merge()
    lance.dataset(table.uri).create_index("bits", "IVF_FLAT", metric="hamming", num_partitions=1)
    with table.writer() as writer:
        writer.upsert([{"id": 400, "bits": [7, 7, 7, 7, 7, 7, 7, 6]}])
        writer.flush()
    table.maintenance.merge()
    assert [index.name for index in table.indexes.list() if index.column == "bits"] == ["bits_idx"]
    found = table.search([7] * 8, 3).to_table()
    assert found["id"].to_pylist() == [7, 263, 400]
    assert found["_distance"].to_pylist() == [0.0, 0.0, 1.0]

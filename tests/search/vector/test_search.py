"""Vector search over base table, generations and log."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from tests.search.search_model import check_ranking, nearest

import weir
from weir.search.search import Search
from weir.search.vector import ivf_partitions as vector_division
from weir.search.vector import rows as vector_rows_module
from weir.search.vector.search import VectorSearchPlan

DIMENSION = 8


def schema(value: pa.DataType) -> pa.Schema:
    vector = pa.list_(value, DIMENSION)
    return pa.schema([pa.field("id", pa.int64(), nullable=False), ("vector", vector), ("number", pa.int32())])


def rows(generator: np.random.Generator, ids: Any, kind: type = np.float32) -> pa.Table:
    ids = np.asarray(ids)
    if kind is np.uint8:
        values = generator.integers(0, 256, (len(ids), DIMENSION)).astype(kind)
    else:
        values = generator.standard_normal((len(ids), DIMENSION)).astype(kind)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), DIMENSION)
    return pa.table(
        [pa.array(ids), vectors, pa.array((ids % 5).astype(np.int32))], ["id", "vector", "number"]
    )


def model_of(table: pa.Table) -> dict[tuple[int], dict[str, Any]]:
    return {(row["id"],): row for row in table.to_pylist()}


@pytest.mark.parametrize(
    ("value", "kind", "metrics"),
    [
        (pa.float32(), np.float32, ["l2", "cosine", "dot"]),
        (pa.float64(), np.float64, ["l2", "cosine", "dot"]),
        (pa.float16(), np.float16, ["l2", "cosine", "dot"]),
        (pa.uint8(), np.uint8, ["hamming"]),
    ],
)
def test_every_type_and_metric_in_every_level(
    tmp_path: Path, value: pa.DataType, kind: type, metrics: list[str]
) -> None:
    generator = np.random.default_rng(1)
    table = weir.create(tmp_path / "t", schema(value), primary_key="id", fsync=False)
    model: dict[tuple[int], dict[str, Any]] = {}
    with table.writer() as writer:
        for step, ids in enumerate([range(60), range(40, 80), range(70, 90)]):
            written = rows(generator, ids, kind)
            writer.upsert(written)
            model |= model_of(written)
            if step < 2:
                writer.flush()
            if step == 0:
                table.maintenance.merge()
        writer.delete([1, 41, 71])
        for key in (1, 41, 71):
            del model[key,]
        for metric in metrics:
            query = rows(generator, [0], kind)["vector"][0].as_py()
            found = table.search(query, 12, metric=metric).to_table()
            expected = nearest(model, query, metric)
            if kind is np.float16:
                values = found["_distance"].to_pylist()
                np.testing.assert_allclose(values, sorted(expected.values())[:12], rtol=1e-2, atol=1e-2)
            else:
                check_ranking(found, ["id"], "_distance", expected, 12, descending=False)


def test_replaced_rows_make_room_for_others(tmp_path: Path) -> None:
    # Everything near the query has been replaced by something far away: only those rows are blocked.
    table = weir.create(tmp_path / "t", schema(pa.float32()), primary_key="id", fsync=False)
    generator = np.random.default_rng(2)
    near = rows(generator, range(400))
    with table.writer() as writer:
        writer.upsert(near)
        writer.flush()
        table.maintenance.merge()
        query = near["vector"][7].as_py()
        order = table.search(query, 400).to_table()["id"].to_pylist()
        far = pa.table(
            [pa.array(order[:150]), pa.array([[1e3] * DIMENSION] * 150, pa.list_(pa.float32(), DIMENSION))],
            ["id", "vector"],
        )
        writer.upsert(far)
        assert table.search(query, 20).to_table()["id"].to_pylist() == order[150:170]
        writer.delete(order[150:160])
        assert table.search(query, 20).to_table()["id"].to_pylist() == order[160:180]


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[weir.Table, dict[Any, Any], Any]]:
    place = tmp_path_factory.mktemp("indexed") / "t"
    table = weir.create(place, schema(pa.float32()), primary_key="id", fsync=False)
    generator = np.random.default_rng(5)
    model: dict[Any, Any] = {}
    with table.writer() as writer:
        written = rows(generator, range(6_000))
        writer.upsert(written)
        model |= model_of(written)
        writer.flush()
        table.maintenance.merge()
        for ids in (range(5_000, 7_000), range(6_900, 7_500)):
            written = rows(generator, ids)
            writer.upsert(written)
            model |= model_of(written)
            writer.flush()
        writer.delete(list(range(5_500, 5_700)))
        for key in range(5_500, 5_700):
            del model[key,]
        # One that is opened now sees generations, where another would keep what it read of the log.
        yield weir.open(place, fsync=False), model, generator


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("kind", "metric"),
    [("IVF_FLAT", "l2"), ("IVF_FLAT", "dot"), ("IVF_PQ", "cosine"), ("IVF_PQ", "l2"), ("IVF_HNSW_SQ", "l2")],
)
def test_an_index_finds_nearly_all_and_its_distances_are_exact(
    indexed: tuple[weir.Table, dict[Any, Any], np.random.Generator],
    kind: str,
    metric: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table, model, generator = indexed
    options: dict[str, Any] = {"num_sub_vectors": 4} if kind == "IVF_PQ" else {}
    dataset = lance.dataset(table.uri)
    dataset.create_index("vector", kind, metric=metric, num_partitions=12, replace=True, **options)
    # Generations this small would not be divided.
    monkeypatch.setattr(vector_division, "_DIVIDED_FROM", 100)
    hits = total = 0
    for _ in range(30):
        query = generator.standard_normal(DIMENSION).astype(np.float32)
        found = table.search(query, 10, nprobes=9, refine=20).to_table()
        expected = nearest(model, query, metric)
        truth = sorted(expected, key=lambda key: expected[key])[:10]
        ids = [(one,) for one in found["id"].to_pylist()]
        hits += len(set(ids) & set(truth))
        total += 10
        exact = [expected[key] for key in ids]
        np.testing.assert_allclose(found["_distance"].to_numpy(), exact, rtol=1e-4, atol=1e-5)
        assert found["_distance"].to_pylist() == sorted(found["_distance"].to_pylist())
    assert hits / total >= 0.95
    assert kind in table.search([1.0] * DIMENSION).explain()
    # By default the metric is that of the index; another one goes without it.
    other = "dot" if metric == "l2" else "l2"
    query = generator.standard_normal(DIMENSION).astype(np.float32)
    check_ranking(
        table.search(query, 10, metric=other).to_table(),
        ["id"],
        "_distance",
        nearest(model, query, other),
        10,
        descending=False,
    )


def test_distances_are_exact_where_the_library_has_a_choice_of_indexes(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", schema(pa.float32()), primary_key="id", fsync=False)
    written = rows(np.random.default_rng(3), range(600))
    with table.writer() as writer:
        writer.upsert(written)
    table.maintenance.merge()
    # The library takes the first, and lists them by name.
    options: dict[str, Any] = {"num_partitions": 1, "replace": False}
    lance.dataset(table.uri).create_index("vector", "IVF_PQ", name="late", num_sub_vectors=2, **options)
    lance.dataset(table.uri).create_index("vector", "IVF_FLAT", name="early", **options)
    query = written["vector"][7].as_py()
    found = table.search(query, 10).to_table()
    expected = nearest(model_of(written), query, "l2")
    exact = [expected[key,] for key in found["id"].to_pylist()]
    np.testing.assert_allclose(found["_distance"].to_numpy(), exact, rtol=1e-4, atol=1e-5)


def test_vectors_without_a_cosine_do_not_use_up_the_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_division, "_DIVIDED_FROM", 100)
    generator = np.random.default_rng(9)
    with weir.create(tmp_path / "t", schema(pa.float32()), primary_key="id", fsync=False).writer() as writer:
        writer.upsert(rows(generator, range(300)))
        writer.flush()
        table = weir.open(tmp_path / "t", fsync=False)
        table.maintenance.merge()
        table.indexes.create("vector", "IVF_FLAT", metric="cosine", num_partitions=4)
        nothing = pa.array([[0.0] * DIMENSION] * 200, pa.list_(pa.float32(), DIMENSION))
        writer.upsert(rows(generator, range(1_000, 1_100)))
        writer.upsert(pa.table([pa.array(range(2_000, 2_200)), nothing], ["id", "vector"]))
        writer.flush()
        table = weir.open(tmp_path / "t", fsync=False)
        # All of them are in one of the partitions, which some of the queries look into.
        for query in generator.standard_normal((40, DIMENSION)):
            found = table.search(query, 60, nprobes=1, filter="id >= 1000").to_table()
            assert found.num_rows == 60


def test_a_batch_is_its_queries_one_by_one(
    indexed: tuple[weir.Table, dict[Any, Any], np.random.Generator],
) -> None:
    table, _, generator = indexed
    queries: npt.NDArray[np.float32] = generator.standard_normal((4, DIMENSION)).astype(np.float32)
    batch = table.search(queries, 6, metric="l2", filter="number <> 2", columns=["number", "id"]).to_table()
    assert batch.schema.names == ["number", "id", "_query_index", "_distance"]
    for at, query in enumerate(queries):
        alone = table.search(query, 6, metric="l2", filter="number <> 2", columns=["number", "id"]).to_table()
        mine = batch.filter(pa.compute.equal(batch["_query_index"], at)).drop_columns(["_query_index"])
        assert mine.equals(alone.cast(mine.schema))
    lists = table.search(queries.tolist(), 6, metric="l2", filter="number <> 2").to_table()
    assert lists["id"].to_pylist() == batch["id"].to_pylist()


def test_tasks_can_be_run_elsewhere(
    indexed: tuple[weir.Table, dict[Any, Any], np.random.Generator],
) -> None:
    table, _, generator = indexed
    plan = table.search(generator.standard_normal(DIMENSION), 7, filter="number = 1").plan()
    assert isinstance(plan, VectorSearchPlan)
    elsewhere = [pickle.loads(pickle.dumps(task)) for task in plan.tasks]
    assert plan.merge([task.candidates() for task in elsewhere]).equals(plan.run())


def test_a_generation_too_large_for_memory_is_searched_by_lance(
    indexed: tuple[weir.Table, dict[Any, Any], np.random.Generator], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, model, generator = indexed
    monkeypatch.setattr(vector_rows_module, "_LARGEST_BYTES", 0)
    query = generator.standard_normal(DIMENSION).astype(np.float32)
    plan = table.search(query, 15, metric="l2").plan()
    assert isinstance(plan, VectorSearchPlan)
    assert plan.describe().count("flat search of vector") >= 2
    search = table.search(query, 15, metric="l2", nprobes=12, refine=50)
    check_ranking(search.to_table(), ["id"], "_distance", nearest(model, query, "l2"), 15, descending=False)


def test_a_generation_too_large_for_memory_is_searched_through_its_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = weir.create(tmp_path / "t", schema(pa.float32()), primary_key="id", fsync=False)
    generator = np.random.default_rng(12)
    model: dict[tuple[int], dict[str, Any]] = {}
    with table.writer() as writer:
        for ids, flushed in ((range(600), True), (range(300, 900), True), (range(850, 950), False)):
            written = rows(generator, ids)
            writer.upsert(written)
            model |= model_of(written)
            if flushed:
                writer.flush()
            if len(model) == 600:
                table.maintenance.merge()
                table.indexes.create("vector", "IVF_PQ", num_partitions=2, num_sub_vectors=2)
        writer.delete([301, 899])
        del model[301,], model[899,]
        monkeypatch.setattr(vector_rows_module, "_LARGEST_BYTES", 0)
        # One that has not followed the log finds what was flushed in its generation.
        reader = weir.open(table.uri)
        query = generator.standard_normal(DIMENSION).astype(np.float32)
        # All partitions, and all rows ranked by their vectors.
        search = reader.search(query, 15, nprobes=2, refine=60)
        assert search.explain().count("index search of vector") == 2
        expected = nearest(model, query, "l2")
        check_ranking(search.to_table(), ["id"], "_distance", expected, 15, descending=False)
        some = reader.search(query, 15, filter="number = 2", nprobes=2, refine=60).to_table()
        expected = nearest(model, query, "l2", keep=lambda row: row["number"] == 2)
        check_ranking(some, ["id"], "_distance", expected, 15, descending=False)
        # An index for another metric is of no use.
        assert reader.search(query, 5, metric="dot").explain().count("flat search of vector") == 2


def test_the_snapshot_is_the_state_that_was_seen(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", schema(pa.float32()), primary_key="id", fsync=False)
    generator = np.random.default_rng(8)
    with table.writer() as writer:
        writer.upsert(rows(generator, range(20)))
        search = table.search([0.0] * DIMENSION, 5)
        seen, token = search.to_table(), search.snapshot
        writer.upsert(rows(generator, range(20)))
        again = table.search([0.0] * DIMENSION, 5, at=token)
        assert again.to_table().equals(seen)
        assert again.snapshot == token
        assert not search.to_table().equals(seen)
        assert search.snapshot != token


def test_the_result_comes_in_every_form(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", schema(pa.float32()), primary_key="id", fsync=False)
    assert table.search([0.0] * DIMENSION).to_table().num_rows == 0
    with table.writer() as writer:
        writer.upsert(rows(np.random.default_rng(0), range(5)))
        search = table.search([0.0] * DIMENSION, 3, columns=["id"])
        assert isinstance(search, Search)
        whole = search.to_table()
        assert whole.schema == pa.schema([table.schema.field("id"), ("_distance", pa.float32())])
        assert pa.Table.from_batches(list(search.to_batches())).equals(whole)
        assert search.to_pandas()["id"].tolist() == whole["id"].to_pylist()
        assert 'indexes.create("vector", "IVF_PQ")' in search.explain()


def test_searches_are_right_while_rows_are_flushed_and_merged(tmp_path: Path) -> None:
    table = weir.create(
        tmp_path / "t", schema(pa.float32()), primary_key="id", shard_by=weir.bucket("id", 2), fsync=False
    )
    # Each round writes every key anew, nearer to the origin, with one entry of the log per shard: each key is
    # found once, the keys of a shard are of one round, and no shard goes back. A reader takes one shard
    # after the other: how far they are apart, nothing tells.
    keys = np.arange(60)
    done = threading.Event()

    def write() -> None:
        try:
            with table.writer() as writer:
                for number in range(1, 13):
                    vectors = [[100.0 - number] + [0.0] * (DIMENSION - 1)] * len(keys)
                    kind = pa.list_(pa.float32(), DIMENSION)
                    writer.upsert(pa.table([pa.array(keys), pa.array(vectors, kind)], ["id", "vector"]))
                    if number % 2 == 0:
                        writer.flush()
                    if number % 4 == 0:
                        table.maintenance.merge()
        finally:
            done.set()

    reader = weir.open(table.uri, fsync=False)
    thread = threading.Thread(target=write)
    thread.start()
    seen = []
    try:
        while not done.is_set():
            found = reader.search([0.0] * DIMENSION, 200).to_table().sort_by("id")
            rounds = np.round(100.0 - np.sqrt(found["_distance"].to_numpy().astype(np.float64)))
            seen.append((found["id"].to_numpy(), rounds))
    finally:
        thread.join()
    assert reader.search([0.0] * DIMENSION, 200).to_table()["_distance"].to_pylist() == [88.0**2] * 60
    shards = {key: batch.shard_id for batch in table.changes() for key in batch.rows["id"].to_pylist()}
    assert seen
    assert len(set(shards.values())) == 2
    for shard in set(shards.values()):
        of_shard = [key for key in keys.tolist() if shards[key] == shard]
        last = 0.0
        for found_keys, found_rounds in seen:
            inside = np.isin(found_keys, of_shard)
            if last or inside.any():
                assert found_keys[inside].tolist() == of_shard
                (round_of_shard,) = set(found_rounds[inside].tolist())
                assert round_of_shard >= last
                last = round_of_shard


def test_shards_that_a_filter_rules_out_are_not_searched(tmp_path: Path) -> None:
    table = weir.create(
        tmp_path / "t", schema(pa.float32()), primary_key="id", shard_by=weir.bucket("id", 4), fsync=False
    )
    with table.writer() as writer:
        writer.upsert(rows(np.random.default_rng(1), range(40)))
    search = table.search([0.0] * DIMENSION, k=3, column="vector", filter="id = 5")
    assert search.explain().count("pruned shard") == 3
    assert search.to_table().column("id").to_pylist() == [5]

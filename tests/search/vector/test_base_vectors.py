"""Vectors of the base table that are compared in memory."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.search.search_model import check_ranking, nearest

import weir
from weir.search.vector import base_vectors
from weir.search.vector.search import VectorSearchPlan

DIMENSION = 8
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("vector", pa.list_(pa.float32(), DIMENSION)),
        ("number", pa.int32()),
    ]
)
Rows = list[dict[str, Any]]


def rows(generator: np.random.Generator, ids: range) -> Rows:
    return [
        {
            "id": f"document {id}",
            "vector": None if id % 10 == 3 else generator.standard_normal(DIMENSION).tolist(),
            "number": id,
        }
        for id in ids
    ]


def search_often(table: weir.Table, **options: Any) -> None:
    for _ in range(base_vectors._SEARCHES_BEFORE + 1):
        table.search([1.0] * DIMENSION, **options).to_table()


def is_in_memory(table: weir.Table, **options: Any) -> bool:
    lines = table.search([1.0] * DIMENSION, **options).explain().splitlines()
    return any("base table version" in line and "in memory" in line for line in lines)


def test_a_base_table_searched_often_is_compared_in_memory(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    generator = np.random.default_rng(1)
    model: dict[tuple[str], dict[str, Any]] = {}

    def write(some: Rows) -> None:
        writer.upsert(pa.Table.from_pylist(some, SCHEMA))
        model.update({(row["id"],): row for row in some})

    def check(metric: str, **options: Any) -> None:
        query = generator.standard_normal(DIMENSION).astype(np.float32)
        for columns in (["id"], ["id", "number", "vector"], ["number", "id"]):
            found = table.search(query, 15, metric=metric, columns=columns, **options).to_table()
            assert found.schema.names == [*columns, "_distance"]
            expected = nearest(model, query, metric)
            check_ranking(found, ["id"], "_distance", expected, 15, descending=False)
            for row in found.to_pylist():
                known = model[row["id"],]
                assert all(row[name] == pytest.approx(known[name]) for name in columns)

    with table.writer() as writer:
        write(rows(generator, range(300)))
        writer.flush()
        table.maintenance.merge()
        assert not is_in_memory(table)
        for metric in ("l2", "cosine", "dot"):
            search_often(table)
            assert is_in_memory(table)
            check(metric)
        # Rows that are replaced or deleted by newer ones are passed over, however many there are.
        for step in range(3):
            write(rows(generator, range(step * 60, step * 60 + 120)))
            writer.delete(pa.table({"id": [f"document {step + 250}"]}))
            del model[f"document {step + 250}",]
            if step < 2:
                writer.flush()
            assert is_in_memory(table)
            check("l2")
        queries = generator.standard_normal((3, DIMENSION)).astype(np.float32)
        together = table.search(queries, 7).to_table()
        for number, query in enumerate(queries):
            own = together.filter(pa.compute.equal(together["_query_index"], number))
            check_ranking(own, ["id"], "_distance", nearest(model, query), 7, descending=False)
        # Every version of the base table has its own.
        token = table.snapshot()
        before = table.search(queries[0], 20, at=token).to_table()
        writer.flush()
        table.maintenance.merge()
        assert not is_in_memory(table)
        write(rows(generator, range(200)))
        search_often(table)
        assert is_in_memory(table)
        check("cosine")
        assert table.search(queries[0], 20, at=token).to_table().equals(before)
        # Which rows match a filter, Lance finds out.
        assert not is_in_memory(table, filter="number < 50")
        found = table.search(queries[0], 9, filter="number < 50").to_table()
        expected = nearest(model, queries[0], keep=lambda row: row["number"] < 50)
        check_ranking(found, ["id"], "_distance", expected, 9, descending=False)
        plan = table.search(queries[0], 9).plan()
        assert isinstance(plan, VectorSearchPlan)
        elsewhere = [pickle.loads(pickle.dumps(task)) for task in plan.tasks]
        assert plan.merge([task.candidates() for task in elsewhere]).equals(plan.run())


def test_vectors_that_take_much_memory_stay_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert(pa.Table.from_pylist(rows(np.random.default_rng(2), range(100)), SCHEMA))
        writer.flush()
    table.maintenance.merge()
    monkeypatch.setattr(base_vectors, "_LARGEST_BYTES", 100 * 4 * DIMENSION)
    search_often(table)
    assert not is_in_memory(table)


def test_keys_that_take_more_than_the_vectors_are_read_where_they_are(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    some = [{**row, "id": f"{row['id']} {'x' * 1000}"} for row in rows(np.random.default_rng(3), range(50))]
    with table.writer() as writer:
        writer.upsert(pa.Table.from_pylist(some, SCHEMA))
        writer.flush()
    table.maintenance.merge()
    before = table.search([1.0] * DIMENSION, 10, columns=["id"]).to_table()
    search_often(table)
    assert is_in_memory(table)
    after = table.search([1.0] * DIMENSION, 10, columns=["id"]).to_table()
    assert after["id"].equals(before["id"])


INTEGERS = pa.schema([pa.field("id", pa.int64(), nullable=False)])
PAIRS = pa.schema([pa.field("id", pa.uint8(), nullable=False), pa.field("name", pa.string(), nullable=False)])


@pytest.mark.parametrize(
    ("keys", "element"), [(INTEGERS, pa.float32()), (PAIRS, pa.float16()), (PAIRS, pa.float64())]
)
def test_vectors_in_memory_are_those_of_the_table_whatever_happens_to_it(
    tmp_path: Path, keys: pa.Schema, element: pa.DataType
) -> None:
    place, backup = tmp_path / "t", tmp_path / "backup"
    schema = keys.append(pa.field("vector", pa.list_(element, DIMENSION)))
    generator = np.random.default_rng(5)
    model: dict[tuple[Any, ...], dict[str, Any]] = {}

    def check(metric: str) -> None:
        for _ in range(base_vectors._SEARCHES_BEFORE + 2):
            query = generator.integers(-2, 3, DIMENSION).astype(np.float32) + np.float32(0.25)
            found = table.search(query, 12, metric=metric, columns=keys.names).to_table()
            check_ranking(found, keys.names, "_distance", nearest(model, query, metric), 12, descending=False)
        assert is_in_memory(table)

    with weir.Engine(maintenance="off", read_cache_bytes=1_000_000) as engine:
        table = engine.create(place, schema, primary_key=keys.names, fsync=False)
        with table.writer() as writer:
            for step in range(12):
                ids = generator.choice(200, 40, replace=False).tolist()
                chosen = [(id, f"name {id}")[: len(keys)] for id in ids]
                for key in chosen[:30]:
                    # Whole numbers, so that many are equally near; and some have no vector.
                    vector = generator.integers(-2, 3, DIMENSION).astype(float).tolist()
                    named = dict(zip(keys.names, key, strict=True))
                    model[key] = {**named, "vector": None if key[0] % 9 == 4 else vector}
                writer.upsert(pa.Table.from_pylist([model[key] for key in chosen[:30]], schema))
                gone = [dict(zip(keys.names, key, strict=True)) for key in chosen[30:]]
                writer.delete(pa.Table.from_pylist(gone, keys))
                for key in chosen[30:]:
                    model.pop(key, None)
                if step % 3 == 1:
                    writer.flush()
                if step % 3 == 2:
                    table.maintenance.merge()
                if step == 8:
                    table.maintenance.compact()
                check(("l2", "cosine", "dot")[step // 3 % 3])
                if step == 5:
                    shutil.copytree(place, backup)
                    before = dict(model)
            # What has left the cache is read again.
            search = table.search([1.0] * DIMENSION, 30).plan()
            expected = search.run()
            engine.cache.clear()
            assert table.search([1.0] * DIMENSION, 30).plan().run().equals(expected)
            search = pickle.loads(pickle.dumps(search))
            assert search.run().equals(expected)
        # A backup is put in the place of the table, and has vectors of its own.
        for below in place.iterdir():
            shutil.rmtree(below)
        shutil.copytree(backup, place, dirs_exist_ok=True)
        model = before
        check("l2")


def test_vectors_are_read_from_storage_once_and_not_by_the_first_searches(tmp_path: Path) -> None:
    with weir.Engine(maintenance="off") as engine:
        table = engine.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
        with table.writer() as writer:
            writer.upsert(pa.Table.from_pylist(rows(np.random.default_rng(6), range(100)), SCHEMA))
        table.maintenance.merge()

        def held() -> int:
            return sum(key[0] == "base vectors" for key in engine.cache.held())

        for _ in range(base_vectors._SEARCHES_BEFORE):
            table.search([1.0] * DIMENSION, 3).to_table()
            assert not held()
        table.search([1.0] * DIMENSION, 3).to_table()
        assert held() == 1
        # Searches that find them there ask storage for what is new, and for nothing else.
        requests = engine.metrics.storage_requests
        asked = [requests.value("get_range"), requests.value("list")]
        first = requests.value("get")
        table.search([1.0] * DIMENSION, 3, columns=["id"]).to_table()
        once = requests.value("get") - first
        table.search([1.0] * DIMENSION, 3, columns=["id"]).to_table()
        assert requests.value("get") - first == 2 * once <= 2
        assert asked == [requests.value("get_range"), requests.value("list")]

"""LanceDB on the tables of Weir, and Weir on those of LanceDB, in the same directory at the same time.

In an environment of its own, since no other test needs LanceDB: ``make test-lancedb``.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import weir
from weir.base.manifest import manifest_path
from weir.table.database import database_tables

lancedb: Any = pytest.importorskip("lancedb", reason="make test-lancedb has LanceDB")

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("vec", pa.list_(pa.float32(), 4)),
    ]
)
Rows = dict[int, str]


def rows(ids: Any, word: str) -> pa.Table:
    made = [{"id": n, "text": f"{word} word{n % 7}", "vec": [float(n), 1.0, 2.0, float(n % 3)]} for n in ids]
    return pa.Table.from_pylist(made, SCHEMA)


def texts(found: pa.Table) -> Rows:
    shown = {row["id"]: row["text"] for row in found.to_pylist()}
    assert len(shown) == found.num_rows, "a key twice"
    return shown


def merge_insert(handle: Any, data: pa.Table) -> None:
    handle.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(data)


def made_by_weir(place: Path) -> weir.Table:
    table = weir.create(place / "t.lance", SCHEMA, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert(rows(range(300), "first"))
    table.maintenance.merge()
    table.indexes.create("vec", "IVF_FLAT", num_partitions=1)
    table.indexes.create("text", "FTS")
    return table


def made_by_lancedb(place: Path) -> weir.Table:
    handle = lancedb.connect(str(place)).create_table("t", rows(range(300), "first"))
    handle.create_index("vec", config=lancedb.index.IvfFlat(num_partitions=1))
    handle.create_index("text", config=lancedb.index.FTS())
    handle.set_unenforced_primary_key("id")
    handle.set_lsm_write_spec(lancedb.LsmWriteSpec.unsharded())
    return weir.open(place / "t.lance", fsync=False)


@pytest.fixture(params=[made_by_weir, made_by_lancedb])
def table(tmp_path: Path, request: pytest.FixtureRequest) -> weir.Table:
    make: Callable[[Path], weir.Table] = request.param
    return make(tmp_path)


def opened(table: weir.Table) -> Any:
    return lancedb.connect(str(Path(table.uri).parent)).open_table("t")


NEAR = ([5.1, 1.0, 2.0, 1.8], [20.2, 1.0, 2.0, 2.1])
FAR = [250.1, 1.0, 2.0, 0.3]


def nearest(found: pa.Table) -> list[tuple[int, str]]:
    return [(row["id"], row["text"]) for row in found.to_pylist()]


def check(table: weir.Table, handle: Any, *queries: list[float]) -> None:
    """Compare rows, nearest vectors and texts of LanceDB with Weir's; nothing may be in a log alone."""
    assert texts(handle.search().limit(10_000).to_arrow()) == texts(table.scan().to_table())
    for asked in (*NEAR, *queries):
        ours = table.search(asked, 5, column="vec").to_table()
        assert nearest(handle.search(asked).limit(5).to_arrow()) == nearest(ours)
    for word in ("second", "third"):
        match = handle.search(word, query_type="fts", fts_columns="text").limit(1000).to_arrow()
        assert texts(match) == texts(table.search_text(word, 1000, column="text").to_table())


def test_rows_vectors_and_texts_are_the_same_for_both(table: weir.Table) -> None:
    before = opened(table)
    with table.writer() as writer:
        writer.upsert(rows([*range(0, 20, 2), 400], "second"))
        writer.delete([250, 251])
    check(table, opened(table), FAR)
    handle = opened(table)
    merge_insert(handle, rows(range(10, 30), "third"))
    handle.close_lsm_writers()
    check(table, opened(table))
    check(table, before)
    table.maintenance.merge()
    check(table, opened(table))
    table.maintenance.catch_up_indexes()
    check(table, opened(table), FAR)


def test_far_from_what_lancedb_has_flushed_it_takes_that_for_near_until_it_is_merged(tmp_path: Path) -> None:
    """The index that it gives a generation knows values between the least and the greatest there."""
    table = made_by_lancedb(tmp_path)
    handle = opened(table)
    merge_insert(handle, rows(range(10, 30), "third"))
    handle.close_lsm_writers()
    right = [(n, f"first word{n % 7}") for n in (250, 249, 252, 251, 248)]
    by_lancedb = nearest(opened(table).search(FAR).limit(5).to_arrow())
    assert by_lancedb != right, "LanceDB has been mended: the guide may promise more"
    assert {text.split()[0] for _, text in by_lancedb} == {"first", "third"}
    assert nearest(table.search(FAR, 5, column="vec").to_table())[:2] == right[:2]
    table.maintenance.run()
    check(table, opened(table), FAR)


def test_a_handle_that_was_opened_before_the_merge_misses_nothing(table: weir.Table) -> None:
    """LanceDB looks for no newer version by default."""
    with table.writer() as writer:
        writer.upsert(rows(range(0, 100, 3), "second"))
    before = opened(table)
    expected = texts(before.search().limit(10_000).to_arrow())
    table.maintenance.merge()
    table.maintenance.catch_up_indexes()
    for _ in range(2):
        table.maintenance.collect_garbage()
        assert texts(before.search().limit(10_000).to_arrow()) == expected == texts(table.scan().to_table())
        assert texts(opened(table).search().limit(10_000).to_arrow()) == expected


@pytest.fixture
def shared(table: weir.Table) -> Iterator[tuple[weir.Table, Any]]:
    handle = opened(table)
    yield table, handle
    handle.close_lsm_writers()


def test_merge_inserts_beside_merges_catch_up_and_collection(shared: tuple[weir.Table, Any]) -> None:
    table, writing = shared
    reading = opened(table)
    expected = texts(table.scan().to_table())
    chance = random.Random(7)
    for n in range(60):
        ids = chance.sample(range(400), 20)
        merge_insert(writing, rows(ids, f"round{n}"))
        expected.update(texts(rows(ids, f"round{n}")))
        assert texts(table.scan().to_table()) == expected
        if n % 6 == 5:
            writing.close_lsm_writers()
            assert texts(reading.search().limit(10_000).to_arrow()) == expected
            table.maintenance.run()
            assert texts(table.scan().to_table()) == expected
            assert texts(reading.search().limit(10_000).to_arrow()) == expected
            assert texts(opened(table).search().limit(10_000).to_arrow()) == expected
    assert table.maintenance.verify().errors == ()


def test_what_lancedb_has_left_is_flushed_once_it_stands_still(shared: tuple[weir.Table, Any]) -> None:
    table, handle = shared
    merge_insert(handle, rows(range(5), "second"))
    table.maintenance.run(quiet_for=timedelta(minutes=10))
    assert table.status().unflushed_rows == 5
    table.maintenance.run(quiet_for=timedelta(0))
    assert table.status().unflushed_rows == table.status().unmerged_rows == 0
    with pytest.raises(RuntimeError, match="fenced"):
        merge_insert(handle, rows(range(5), "third"))
    with pytest.raises(RuntimeError, match="fenced"):
        handle.close_lsm_writers()
    merge_insert(handle, rows(range(5), "third"))
    expected = {n: f"third word{n % 7}" for n in range(5)}
    assert expected.items() <= texts(table.scan().to_table()).items()


def test_indexes_that_come_and_go_are_named(table: weir.Table) -> None:
    def named() -> set[str]:
        return set(opened(table).get_lsm_write_spec().maintained_indexes)

    assert named() >= {"text_idx", "vec_idx"}
    table.indexes.drop("vec_idx")
    assert "vec_idx" not in named()
    table.indexes.create("vec", "IVF_FLAT", name="by_vector", num_partitions=1)
    assert {"by_vector", "text_idx"} <= named()
    assert opened(table).search([1.0, 1.0, 2.0, 1.0]).limit(1).to_arrow()["id"].to_pylist() == [1]


def test_a_handle_of_any_version_searches(tmp_path: Path) -> None:
    """One that was opened while an index came, or was built anew, and that never looks at a newer one."""
    table = made_by_weir(tmp_path)
    with table.writer() as writer:
        writer.upsert(rows(range(200, 400), "second"))
    table.maintenance.merge()
    table.indexes.create("vec", "IVF_FLAT", name="vec_idx", num_partitions=2, replace=True)
    table.maintenance.compact()
    table.maintenance.run()
    seen = 0
    for one in lance.dataset(table.uri).versions():
        copy = tmp_path / f"at{one['version']}" / "t.lance"
        shutil.copytree(table.uri, copy)
        for later in range(one["version"] + 1, lance.dataset(table.uri).version + 1):
            (copy / manifest_path(later, counts_down=True)).unlink()
        handle = lancedb.connect(str(copy.parent)).open_table("t")
        indexes = {index.name for index in handle.list_indices()}
        if "vec_idx" in indexes:
            assert handle.search(NEAR[0]).limit(1).to_arrow().num_rows == 1
        if "text_idx" in indexes:
            handle.search("first", query_type="fts", fts_columns="text").limit(5).to_arrow()
        seen += len(indexes)
    assert seen > 10


def test_a_database_has_the_tables_with_and_without_a_write_spec(table: weir.Table) -> None:
    place = Path(table.uri).parent
    lancedb.connect(str(place)).create_table("plain", rows(range(3), "plain"))
    assert list(database_tables(place)) == ["plain", "t"]

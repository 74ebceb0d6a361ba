"""Searches, the change feed and files of before field ids, after plain Lance has altered the columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import lance
import numpy as np
import pyarrow as pa
import pytest

import weir
from weir.base.table import BaseTable
from weir.format import layout, wal_entry
from weir.format.newest import newest_rows
from weir.format.shard_manifest import ShardManifest
from weir.format.source import SourceMarks
from weir.format.wal_entry import wal_schema
from weir.format.wal_header import WalEntryHeader
from weir.log.manifest_store import commit_manifest
from weir.write.flush.generation_rows import GenerationRows
from weir.write.flush.generation_writer import write_generation

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("gone", pa.int8()),
        ("v", pa.list_(pa.float32(), 2)),
        ("w", pa.list_(pa.float32(), 2)),
        ("text", pa.string()),
        ("title", pa.string()),
        ("n", pa.int32()),
    ]
)


def rows(*keys: int) -> list[dict[str, Any]]:
    return [
        {
            "id": key,
            "v": [float(key), 0.0],
            "w": [0.0, float(10 - key)],
            "text": f"word{key} common",
            "title": f"title{key} other",
            "n": key,
        }
        for key in keys
    ]


def swap(uri: str, one: str, other: str) -> None:
    dataset = lance.dataset(uri)
    for old, new in ((one, "t"), (other, one), ("t", other)):
        dataset.alter_columns({"path": old, "name": new})  # type: ignore[dict-item]


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    """One row each in the base table, a generation and the log, of columns with a gap in their ids."""
    made = weir.create(tmp_path / "table", SCHEMA, primary_key="id", fsync=False)
    lance.dataset(made.uri).drop_columns(["gone"])
    made = weir.open(made.uri, fsync=False)
    for key in (1, 2):
        with made.writer() as writer:
            writer.upsert(rows(key))
        if key == 1:
            made.maintenance.merge()
            made.indexes.create("text", "INVERTED")
            made.indexes.create("title", "INVERTED")
    with made.writer(flush_on_close=False) as writer:
        writer.upsert(rows(3))
    return made


def test_searches_go_by_the_columns_of_now(table: weir.Table) -> None:
    def nearest(reader: weir.Table, column: str) -> list[int]:
        found = reader.search([0.0, 0.0], column=column, k=3, columns=["id"]).to_table()
        return list(found.column("id").to_pylist())

    def texts(reader: weir.Table, word: str, column: str) -> list[int]:
        found = reader.search_text(word, column=column, k=3, columns=["id"]).to_table()
        return sorted(found.column("id").to_pylist())

    # What is in memory of the sources must not be taken for columns of the same name.
    assert nearest(table, "v") == [1, 2, 3]
    assert nearest(table, "w") == [3, 2, 1]
    assert texts(table, "common", "text") == [1, 2, 3]
    swap(table.uri, "v", "w")
    swap(table.uri, "text", "title")
    for reader in (table, weir.open(table.uri, fsync=False)):
        assert nearest(reader, "v") == [3, 2, 1]
        assert nearest(reader, "w") == [1, 2, 3]
        assert texts(reader, "common", "text") == []
        assert texts(reader, "common", "title") == [1, 2, 3]
        assert texts(reader, "word2", "title") == [2]
        found = reader.search([0.0, 0.0], column="w", k=3, filter="text = 'title2 other'").to_table()
        assert found.column("title").to_pylist() == ["word2 common"]


def test_the_change_feed_has_the_columns_of_now_and_rows_before_changes_too(table: weir.Table) -> None:
    start = table.snapshot()
    with table.writer(flush_on_close=False) as writer:
        writer.upsert(rows(1, 2, 3))
    swap(table.uri, "text", "title")
    dataset = lance.dataset(table.uri)
    dataset.drop_columns(["n"])
    dataset.add_columns(pa.field("late", pa.int32()))
    fresh = weir.open(table.uri, fsync=False)
    changes = [row for part in fresh.changes(since=start, before=True) for row in part.rows.to_pylist()]
    assert [row["id"] for row in changes] == [1, 2, 3]
    for row in changes:
        for shown in (row, row["_before"]):
            assert shown["title"] == f"word{row['id']} common"
            assert shown["text"] == f"title{row['id']} other"
            assert shown["late"] is None
            assert "n" not in shown


def test_generations_with_ids_of_their_own_and_logs_without_go_by_names(tmp_path: Path) -> None:
    made = weir.create(tmp_path / "table", SCHEMA, primary_key="id", fsync=False)
    lance.dataset(made.uri).drop_columns(["gone"])
    base = BaseTable.open(made.internals.store)
    shard_id, plain = uuid4(), wal_schema(base.schema)

    def batch(key: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([{**rows(key)[0], "_tombstone": False}], schema=plain)

    written = pa.Table.from_batches([batch(1)], plain)
    newest = GenerationRows(written, newest_rows([written.column("id")]))
    flushed = write_generation(made.internals.store, shard_id, 1, newest, ("id",), in_memory_bytes=100)
    manifest = ShardManifest(
        shard_id,
        version=1,
        writer_epoch=1,
        current_generation=2,
        flushed_generations=(flushed,),
        replay_after_wal_entry_position=1,
        sources=SourceMarks(),
    )
    commit_manifest(made.internals.store, manifest, after=None)
    data = b"".join(wal_entry.encode(WalEntryHeader(1, 2, wal_entry.new_write_id()), plain, [batch(2)]))
    made.internals.store.put_if_absent(layout.wal_path(shard_id, 2), data)

    def check(expected: list[dict[str, Any]]) -> None:
        found = weir.open(made.uri, fsync=False).scan().to_table().to_pylist()
        assert sorted(found, key=lambda row: int(row["id"])) == expected

    check(rows(1, 2))
    lance.dataset(made.uri).alter_columns({"path": "n", "name": "m"})  # type: ignore[dict-item]
    renamed = [{("m" if name == "n" else name): value for name, value in row.items()} for row in rows(1, 2)]
    check([{**row, "m": None} for row in renamed])
    weir.open(made.uri, fsync=False).maintenance.recover(unleased=True)
    weir.open(made.uri, fsync=False).maintenance.merge()
    check([{**row, "m": None} for row in renamed])
    assert np.array_equal(lance.dataset(made.uri).to_table(filter="id = 1").column("text"), ["word1 common"])

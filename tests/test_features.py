"""A table that uses a feature which this Weir does not know is refused by name, wherever it turns up."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import weir
from weir.base.details_commit import update_details
from weir.base.table import BaseTable
from weir.errors import UnknownFeatureError
from weir.format import features, index_details
from weir.format.features import FEATURES
from weir.format.index_details import IndexDetails, ShardSpec
from weir.table.table import Table
from weir.write import columns as writer_columns

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("a", pa.int32())])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with made.writer() as writer:
        writer.upsert([{"id": 1, "a": 1}])
    return made


def _mark(table: Table, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Do what a newer Weir does."""
    with monkeypatch.context() as newer:
        newer.setattr("weir.base.table.KNOWN_FEATURES", frozenset(names))
        update_details(
            BaseTable.open(table.internals.store), lambda details: replace(details, features=names)
        )


def test_details_keep_them() -> None:
    specs = (ShardSpec(1, ()),)
    details = IndexDetails(shard_specs=specs, features=("sort order", "split"))
    assert index_details.decode(index_details.encode(details), where="here") == details
    assert index_details.encode(IndexDetails(shard_specs=specs)) == index_details.encode(
        replace(details, features=())
    )


@pytest.mark.parametrize(
    "use",
    [
        lambda table: weir.open(table.uri),
        lambda table: table.scan().to_table(),
        lambda table: table.get([1]),
        lambda table: table.sql("select * from t", name="t").to_table(),
        lambda table: table.maintenance.merge(),
        lambda table: table.maintenance.compact(),
        lambda table: table.maintenance.collect_garbage(),
        lambda table: table.maintenance.catch_up_indexes(),
        lambda table: table.snapshot(),
        lambda table: table.alter(drop=["a"]),
        lambda table: table.indexes.create("a"),
        lambda table: table.maintenance.run(),
    ],
)
def test_is_refused_by_name(table: Table, monkeypatch: pytest.MonkeyPatch, use: Any) -> None:
    _mark(table, monkeypatch, "invented")
    before = {entry.path for entry in table.internals.store.list("")}
    with pytest.raises(UnknownFeatureError, match=r"does not know: invented .*Upgrade Weir"):
        use(table)
    # The clock of a collection is no part of the table.
    assert {entry.path for entry in table.internals.store.list("")} - before <= {"_weir/garbage/clock"}


def test_one_that_is_known_passes(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    _mark(table, monkeypatch, "invented")
    monkeypatch.setattr("weir.base.table.KNOWN_FEATURES", frozenset({"invented"}))
    with table.writer() as writer:
        writer.upsert([{"id": 2}])
    table.alter(add=[pa.field("b", pa.int8())])
    table.maintenance.merge()
    assert table.scan().count() == 2
    assert BaseTable.open(table.internals.store).details.features == ("invented",)


def test_a_writer_that_is_open_already_stops(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_columns, "_LOOK_SECONDS", 0.0)
    acknowledged = 0
    refused = None
    with pytest.raises(UnknownFeatureError), table.writer() as writer:  # noqa: PT012
        writer.upsert([{"id": 2, "a": 2}])
        _mark(table, monkeypatch, "invented")
        deadline = time.monotonic() + 30
        while refused is None and time.monotonic() < deadline:
            try:
                writer.upsert([{"id": 3 + acknowledged}])
                acknowledged += 1
                time.sleep(0.01)
            except UnknownFeatureError as error:
                refused = error
    assert refused is not None
    # What was acknowledged is there for a Weir that knows.
    monkeypatch.setattr("weir.base.table.KNOWN_FEATURES", frozenset({"invented"}))
    assert weir.open(table.uri).scan().count() == 2 + acknowledged


def test_the_library_keeps_the_marker_and_its_writers_stop(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    _mark(table, monkeypatch, "invented")
    (shard,) = (Path(table.uri) / "_mem_wal").iterdir()
    dataset = lance.dataset(table.uri)
    with pytest.raises(OSError, match="at most one sharding spec"):
        dataset.mem_wal_writer(shard.name)
    row = pa.Table.from_pylist([{"id": 7, "a": 7}], dataset.schema)
    dataset.merge_insert("id").when_not_matched_insert_all().execute(row)
    dataset = lance.dataset(table.uri)
    dataset.create_scalar_index("a", "BTREE")
    dataset.add_columns(pa.field("b", pa.int8()))
    lance.write_dataset(
        pa.table({"id": [8], "a": pa.array([8], pa.int32()), "b": pa.array([8], pa.int8())}, dataset.schema),
        table.uri,
        mode="append",
    )
    dataset = lance.dataset(table.uri)
    dataset.optimize.compact_files()
    dataset.delete("id = 8")
    assert lance.dataset(table.uri).to_table().num_rows == 1
    with pytest.raises(UnknownFeatureError, match="invented"):
        weir.open(table.uri)
    with pytest.raises(OSError, match="at most one sharding spec"):
        lance.dataset(table.uri).mem_wal_writer(shard.name)
    details = lance.dataset(table.uri).mem_wal_index_details()
    assert details is not None
    assert details["writer_config_defaults"][FEATURES] == "invented"


def test_this_weir_knows_what_it_says() -> None:
    known = frozenset({"append_only", "expiry", "key_types", "merge_engine", "resharded"})
    assert known == features.KNOWN_FEATURES

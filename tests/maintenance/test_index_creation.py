from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import weir
from tests.base.table_kit import SCHEMA
from weir.base.index_changes import create_index, drop_index
from weir.base.table import BaseTable
from weir.errors import ConflictError, IndexNotFoundError
from weir.indexing.build import build_index
from weir.indexing.definition import IndexDefinition
from weir.maintenance import index_creation


def test_an_index_that_is_dropped_as_soon_as_it_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)

    def dropped_since(base: BaseTable, definition: IndexDefinition, *, replace: bool) -> BaseTable:
        return drop_index(create_index(base, definition, replace=replace), definition.name)

    monkeypatch.setattr(index_creation, "build_index", dropped_since)
    with pytest.raises(IndexNotFoundError, match="value_btree was built but is gone"):
        table.indexes.create("value", "btree", name="value_btree")
    monkeypatch.undo()
    assert table.indexes.create("value", "btree", name="value_btree").column == "value"


def test_nothing_that_was_declared_of_a_dropped_index_counts_for_a_later_one(tmp_path: Path) -> None:
    """Who dies while an index is dropped may leave it."""
    vector = pa.list_(pa.float32(), 4)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", vector)])
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    table.upsert([{"id": n, "v": [n, 1.0, 2.0, 3.0]} for n in range(40)])
    table.maintenance.merge()

    def declared() -> dict[str, str]:
        config: dict[str, str] = lance.dataset(table.uri).config()
        return {key: value for key, value in config.items() if key.startswith("weir.index.")}

    table.indexes.create("v", "IVF_FLAT", num_partitions=3)
    left = declared()
    assert left == {"weir.index.v_idx": '{"num_partitions": 3}'}
    table.indexes.drop("v_idx")
    assert declared() == {}
    lance.dataset(table.uri).update_config({**left})
    table.indexes.create("v", "IVF_FLAT")
    assert declared() == {}
    (index,) = (one for one in table.indexes.list() if one.name == "v_idx")
    assert index.definition is not None
    assert "num_partitions" not in index.definition.parameters


def _widened(table: weir.Table) -> None:
    table.alter(widen={"n": pa.int64()})


def _made_anew(table: weir.Table) -> None:
    table.alter(drop=["n"])
    table.alter(add=[pa.field("n", pa.int32())])


@pytest.mark.parametrize("kind", ["BTREE", "ZONEMAP"])
@pytest.mark.parametrize("change", [_widened, _made_anew])
def test_an_index_of_a_column_that_is_altered_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, change: Callable[[weir.Table], None]
) -> None:
    """The library commits the index all the same, and reads no row by it any more."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int32())])
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    table.upsert([{"id": n, "n": n} for n in range(9)])
    table.maintenance.merge()

    def late(dataset: lance.LanceDataset, *given: Any) -> None:
        monkeypatch.undo()
        change(weir.open(table.uri, fsync=False))
        build_index(dataset, *given)

    monkeypatch.setattr("weir.base.index_changes.build_index", late)
    with pytest.raises(ConflictError, match="was altered while the index"):
        table.indexes.create("n", kind)
    assert "n_idx" not in {one.name for one in table.indexes.list()}
    found = weir.open(table.uri, fsync=False).scan(["id"], filter="n = 7").to_table()["id"].to_pylist()
    assert found == ([7] if change is _widened else [])
    table.indexes.create("n", kind)

from __future__ import annotations

from pathlib import Path

import pytest

import weir
from tests.base.table_kit import SCHEMA
from weir.base.index_changes import create_index, drop_index
from weir.base.table import BaseTable
from weir.errors import IndexNotFoundError
from weir.indexing.definition import IndexDefinition
from weir.maintenance import index_creation


def test_an_index_that_is_dropped_as_soon_as_it_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)

    def dropped_since(base: BaseTable, definition: IndexDefinition, *, replace: bool) -> BaseTable:
        return drop_index(create_index(base, definition, replace=replace), definition.name)

    monkeypatch.setattr(index_creation, "build_index", dropped_since)
    with pytest.raises(IndexNotFoundError, match="value_btree was built and is gone"):
        table.indexes.create("value", "btree", name="value_btree")
    monkeypatch.undo()
    assert table.indexes.create("value", "btree", name="value_btree").column == "value"

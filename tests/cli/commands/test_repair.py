from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from tests.cli.conftest import Run

import weir
from weir.base.manifest import manifest_path


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    """Return a table on which somebody has committed with Lance alone."""
    schema = pa.schema([("id", pa.int64()), ("value", pa.string())])
    table = weir.create(tmp_path / "t", schema, primary_key="id")
    rows = pa.table({"id": [1], "value": ["b"]}).cast(table.schema)
    lance.write_dataset(rows, table.uri, mode="append")
    return table


def test_a_sound_table(table: weir.Table, weir_program: Run) -> None:
    assert weir_program("repair", table.uri).out == "nothing to repair\n"


def test_the_command(table: weir.Table, weir_program: Run) -> None:
    newest = lance.dataset(table.uri).version
    path = Path(table.uri, manifest_path(newest, counts_down=True))
    path.write_bytes(b"")
    would = weir_program("repair", table.uri, "--dry-run").out
    assert would.startswith("would repair torn version: its manifest has only 0 bytes that were written")
    assert path.name in would
    assert path.exists()
    assert f'"version": {newest}' in weir_program("repair", table.uri, "--json").out
    assert not path.exists()

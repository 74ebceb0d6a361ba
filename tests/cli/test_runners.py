"""Commands that take ``--spark``, where there is no Spark."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest

import weir
from weir.cli.main import main

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])


@pytest.mark.parametrize(
    "command",
    ["merge", "compact", "recover", "gc", "maintain", "verify", "index catch-up"],
)
def test_the_extra_that_is_missing_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    uri = str(tmp_path / "table")
    weir.create(uri, SCHEMA, primary_key="id", fsync=False)
    for name in [name for name in sys.modules if name.startswith("weir.spark")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    words = command.split()
    # The indexes to catch up come after the table.
    assert main([*words, uri, "--spark", "local[1]"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert (
        printed.err == "error: weir.spark needs PySpark. Install it with: pip install 'weir-lance[spark]'\n"
    )


@pytest.mark.parametrize("command", ["gc", "maintain", "merge", "recover", "verify", "compact"])
def test_a_table_without_shards_has_no_steps_to_show(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    uri = str(tmp_path / "table")
    weir.create(uri, SCHEMA, primary_key="id", fsync=False)
    assert main([command, uri]) == 0
    assert capsys.readouterr().err == ""

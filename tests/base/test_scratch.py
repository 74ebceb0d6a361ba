"""Temporary files that cannot be written: an error of Weir's own, and nothing changed."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from tests.base.table_kit import SCHEMA

import weir
from weir.base import published
from weir.base.scratch import readable_file, scratch_directory
from weir.engine.context import default_context
from weir.errors import CorruptionError, StorageError


def test_it_is_gone_afterwards() -> None:
    with scratch_directory() as directory:
        (directory / "file").write_text("here")
    assert not directory.exists()


def test_no_place_for_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = tmp_path / "missing"
    monkeypatch.setattr(tempfile, "tempdir", str(missing))
    with (
        pytest.raises(StorageError, match=r"temporary files failed: .*missing.*TMPDIR") as caught,
        scratch_directory(),
    ):
        pass
    assert str(caught.value.where).startswith(str(missing))
    with pytest.raises(StorageError, match="TMPDIR"):
        weir.create(tmp_path / "table", SCHEMA, primary_key="id")
    monkeypatch.undo()
    weir.create(tmp_path / "table", SCHEMA, primary_key="id")


def test_errors_of_its_user_pass_through() -> None:
    with pytest.raises(CorruptionError, match="mine"), scratch_directory():
        raise CorruptionError("mine")


def test_what_the_library_says_of_the_system_passes_on_with_advice() -> None:
    with pytest.raises(StorageError, match=r"No space left.*Free some space"), scratch_directory():
        raise OSError("LanceError(IO): No space left on device (os error 28), /a/b.rs:254:9")


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_readable_file_has_its_content_alone(in_memory: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names come back as soon as a file is gone; what was in the last one must not."""
    if not in_memory:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    for number in range(20):
        table = pa.table({"a": list(range(number + 1))})
        lance_bytes = published._to_lance_bytes(table)
        assert published._from_lance_bytes(lance_bytes, "here") == table
        with readable_file(b"first") as path:
            assert Path(path).read_bytes() == b"first"
        with readable_file(b"") as path:
            assert Path(path).read_bytes() == b""


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="files in memory are Linux's")
def test_readers_need_no_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    table = weir.create(tmp_path / "table", schema, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert([{"id": 1}])
    table.maintenance.merge()
    default_context().cache.clear()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    assert weir.open(table.uri).scan(consistency="snapshot").count() == 1

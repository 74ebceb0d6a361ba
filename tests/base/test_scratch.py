"""Temporary files that cannot be written: an error of Weir's own, and nothing changed."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from tests.base.table_kit import SCHEMA

import weir
from weir.base.scratch import scratch_directory
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

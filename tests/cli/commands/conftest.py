"""The table that the tests of commands ask and change."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Run

_PEOPLE = b"id,name,born\n1,Ada,1815-12-10\n2,Grace,\n3,,1912-06-23\n"


@pytest.fixture
def people(tmp_path: Path, weir_program: Run) -> Path:
    """Return a table of three people in four shards."""
    uri = tmp_path / "people"
    created = weir_program(
        *("create", uri, "--schema", "id: int64!, name: string, born: date"),
        *("--primary-key", "id", "--shard-by", "bucket(id, 4)", "--no-fsync"),
    )
    assert created.code == 0, created.err
    (tmp_path / "people.csv").write_bytes(_PEOPLE)
    ingested = weir_program("ingest", uri, tmp_path / "people.csv", "--no-fsync")
    assert ingested.code == 0, ingested.err
    return uri

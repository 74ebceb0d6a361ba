"""What the Lance library says of what is meant so does not reach a user's terminal."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import tempfile, numpy, pyarrow as pa, weir
schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.list_(pa.float32(), 4))])
table = weir.create(tempfile.mkdtemp() + "/t", schema, primary_key="id", fsync=False)
vectors = numpy.random.default_rng(0).normal(size=(4000, 4)).astype("float32").tolist()
with table.writer() as writer:
    writer.upsert(pa.table({"id": range(4000), "v": vectors}, schema=schema))
table.maintenance.merge()
table.indexes.create("v", "IVF_FLAT", num_partitions=4)
with table.writer() as writer:
    writer.upsert(pa.table({"id": [1], "v": [[1.0, 0.0, 0.0, 0.0]]}, schema=schema))
table.maintenance.merge()
"""


def said(**environment: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if name != "LANCE_LOG"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=inherited | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr


@pytest.mark.long
def test_nothing_is_said_of_what_is_meant_so() -> None:
    assert said() == ""


def test_who_asks_is_told() -> None:
    assert "is empty, skipping" in said(LANCE_LOG="warn")

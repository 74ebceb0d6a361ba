"""SIGKILL of a real process at every step of append, flush and merge (invariants I1, I3, I5, I6, I7)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import weir
from weir.engine.context import default_context

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("value", pa.string())])
WRITER = Path(__file__).with_name("crash_writer.py")

POINTS = [
    "wal.before_append",
    "wal.after_append",
    "claim.between_lease_and_epoch",
    "claim.between_epoch_and_fence",
    "flush.after_data",
    "flush.after_data@2",
    "flush.after_indexes",
    "flush.after_key_index",
    "flush.before_manifest",
    "flush.after_manifest",
    "flush.after_manifest@2",
    "merge.before_deletes",
    "merge.between_passes",
    "merge.before_commit",
    "merge.after_commit",
]


def run_writer(
    weir_python: list[str], uri: str, start: int, count: int, failpoint: str | None
) -> tuple[list[dict[str, Any]], int]:
    """Run the writer; return what it told and its exit code."""
    environment = {**os.environ, "WEIR_FAILPOINTS": f"{failpoint}" if failpoint else ""}
    done = subprocess.run(
        [*weir_python, WRITER.read_text(encoding="utf-8"), uri, str(start), str(count)],
        capture_output=True,
        env=environment,
        timeout=120,
        check=False,
    )
    if done.returncode not in (0, -signal.SIGKILL):
        pytest.fail(done.stderr.decode())
    return [json.loads(line) for line in done.stdout.splitlines()], done.returncode


class Expected:
    """What a strong reader may see: the acknowledged rows, and of the last write either outcome."""

    def __init__(self) -> None:
        self.rows: dict[int, str] = {}
        self.in_doubt: dict[str, Any] | None = None

    def follow(self, told: list[dict[str, Any]]) -> None:
        self.in_doubt = None
        for step in told:
            if "trying" in step:
                self.in_doubt = step["trying"]
            elif "acknowledged" in step:
                self.apply(step["acknowledged"])
                self.in_doubt = None

    def apply(self, row: dict[str, Any]) -> None:
        if row["value"] is None:
            self.rows.pop(row["id"], None)
        else:
            self.rows[row["id"]] = row["value"]

    def check(self, table: weir.Table) -> None:
        """Compare; if the write in doubt has landed, it counts from then on."""
        default_context().cache.clear()
        found = table.scan().to_table()
        seen = dict(zip(found.column("id").to_pylist(), found.column("value").to_pylist(), strict=True))
        assert len(seen) == found.num_rows, "a row is doubled"
        if self.in_doubt is not None and seen != self.rows:
            self.apply(self.in_doubt)
        self.in_doubt = None
        assert seen == self.rows
        keys = list(range(40))
        got = table.get(keys)
        expected = [key for key in keys if key in self.rows]
        assert got.column("id").to_pylist() == expected
        assert got.column("value").to_pylist() == [self.rows[key] for key in expected]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("point", POINTS)
def test_killed_at(point: str, tmp_path: Path, weir_python: list[str]) -> None:
    uri = str(tmp_path / "table")
    table = weir.create(uri, SCHEMA, primary_key="id", fsync=False)
    expected = Expected()
    name, _, at = point.partition("@")
    told, code = run_writer(weir_python, uri, 0, 20, f"{name}=kill{'@' + at if at else ''}")
    assert code == -signal.SIGKILL, "the failpoint was never reached"
    expected.follow(told)
    expected.check(table)
    # A second process recovers and is killed in the same place; a third finishes the work.
    told, _ = run_writer(weir_python, uri, 10, 10, f"{name}=kill{'@' + at if at else ''}")
    expected.follow(told)
    expected.check(table)
    told, code = run_writer(weir_python, uri, 0, 20, None)
    assert code == 0
    expected.follow(told)
    expected.check(table)
    table.maintenance.merge()
    expected.check(table)
    status = table.status()
    assert (status.unflushed_rows, status.unmerged_rows) == (0, 0)
    # Everything is in the base table now, and only there.
    base = table.scan(consistency="snapshot").to_table()
    assert sorted(base.column("id").to_pylist()) == sorted(expected.rows)

"""An ingest that waits for a shard which another writer holds."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from tests.cli.conftest import Run

import weir


def test_it_goes_on_when_the_other_writer_lets_go(
    tmp_path: Path, weir_program: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    # Of one engine they would share the shards.
    table = weir.create(
        tmp_path / "t",
        schema,
        primary_key="id",
        shard_by=weir.bucket("id", 4),
        fsync=False,
        engine=weir.Engine(),
    )
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"id": {number}}}\n' for number in range(1000)))
    other = table.writer()
    other.upsert([{"id": 1}])
    waits = threading.Event()

    def let_go() -> None:
        waits.wait(60)
        other.close()

    def told(least: float, most: float) -> float:
        waits.set()
        return least

    monkeypatch.setattr("weir.cli.ingest.random.uniform", told)
    thread = threading.Thread(target=let_go)
    thread.start()
    answer = weir_program(
        *("ingest", tmp_path / "t", tmp_path / "rows.jsonl", "--wait", "2m", "--batch-rows", "100"),
        *("--json", "--no-fsync"),
    )
    thread.join()
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["upserted"] == 1000
    assert waits.is_set()
    assert table.scan().count() == 1000


def test_waiting_and_taking_over_exclude_each_other(tmp_path: Path, weir_program: Run) -> None:
    weir.create(tmp_path / "t", [{"id": 1}], primary_key="id", fsync=False)
    (tmp_path / "rows.jsonl").write_text('{"id": 2}\n')
    answer = weir_program("ingest", tmp_path / "t", tmp_path / "rows.jsonl", "--wait", "1s", "--takeover")
    assert answer.code == 2
    assert "--wait and --takeover" in answer.err

"""What the tasks of every service carry: small, there and back as bytes, and no secret in sight."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from tests.storage.s3 import S3Endpoint, s3_endpoint

import weir

__all__ = ["s3_endpoint"]

SECRET = "wJalrXUtnFEMI-not-to-be-seen"
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("carrier", pa.string())])
MAX_BYTES = 16 * 1024


class RecordingRunner:
    """Runs tasks as a cluster would, and keeps them."""

    def __init__(self) -> None:
        self.tasks: dict[str, list[tuple[Any, bytes]]] = {}

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
        for task in tasks:
            sent = pickle.dumps((function, task))
            self.tasks.setdefault(getattr(function, "func", function).__name__, []).append((task, sent))
            there, received = pickle.loads(sent)
            yield pickle.loads(pickle.dumps(there(received)))


@pytest.fixture
def table(s3_endpoint: S3Endpoint) -> weir.Table:
    options = {**s3_endpoint.options, "aws_secret_access_key": SECRET}
    return weir.create(
        s3_endpoint.new_uri(),
        SCHEMA,
        primary_key="id",
        shard_by=weir.bucket("id", 2),
        storage_options=options,
    )


def test_tasks_are_small_and_show_no_secret(table: weir.Table, caplog: pytest.LogCaptureFixture) -> None:
    runner = RecordingRunner()
    with caplog.at_level("DEBUG"):
        for first in (0, 500):
            with table.writer(flush_on_close=False) as writer:
                writer.upsert([{"id": n, "carrier": "UA"} for n in range(first, first + 1000)])
            table.maintenance.recover(runner=runner)
            table.maintenance.merge(runner=runner)
        table.indexes.create("carrier", "BITMAP")
        with table.writer() as writer:
            writer.upsert([{"id": n, "carrier": "AA"} for n in range(300)])
        table.maintenance.merge(runner=runner)
        table.maintenance.catch_up_indexes(runner=runner)
        table.maintenance.compact(runner=runner)
        table.maintenance.verify(runner=runner)
        for _ in range(2):
            table.maintenance.collect_garbage(horizon=timedelta(0), runner=runner)
    assert set(runner.tasks) == {
        "recover_shard",
        "run_merge_group",
        "_built_or_failed",
        "rewrite",
        "check_shard",
        "check_base_files",
        "check_generation",
        "check_base_index",
        "check_base_rows",
        "survey_shard",
        "sweep_shard",
    }
    for name, tasks in runner.tasks.items():
        for task, sent in tasks:
            assert len(sent) < MAX_BYTES, name
            assert SECRET.encode() in sent, f"{name} could not reach the store from elsewhere"
            assert SECRET not in repr(task), name
            assert SECRET not in str(task), name
    assert SECRET not in caplog.text

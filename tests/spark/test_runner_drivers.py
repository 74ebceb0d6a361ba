"""Several drivers that run the same services at once, one of them the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.service_tables import KEY_KINDS, live_rows, new_table, rows

from weir.spark import SparkRunner

ROUNDS = 3
PATIENCE_SECONDS = 200


@contextmanager
def command(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "weir.cli.main", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


@pytest.mark.long
@pytest.mark.timeout(400)
def test_two_drivers_maintain_one_table_while_it_is_written(spark: SparkSession, tmp_path: Path) -> None:
    kind = KEY_KINDS["integer"]
    table = new_table(tmp_path, kind)
    table.maintenance.recover()
    runner = SparkRunner(spark)
    maintain = ("maintain", table.uri, "--every", "1s", "--horizon", "1h", "--json", "--no-fsync")
    with command(*maintain, "--spark", "local[1]") as other:
        deadline = time.monotonic() + PATIENCE_SECONDS
        # The other has begun when what was there before is merged.
        while table.status().unmerged_rows and time.monotonic() < deadline:
            assert other.poll() is None
            time.sleep(0.2)
        for number in range(ROUNDS):
            with table.writer() as writer:
                writer.upsert(rows(kind, range(number * 20, number * 20 + 100), 7 + number))
                writer.delete({"id": [number, number + 50]})
            expected = live_rows(table)
            report = table.maintenance.run(runner=runner, horizon=timedelta(hours=1))
            assert report.merge.version
            assert live_rows(table).equals(expected)
        other.send_signal(signal.SIGTERM)
        printed, complaints = other.communicate(timeout=PATIENCE_SECONDS)
        assert other.returncode == 0, complaints
    told = [json.loads(line) for line in printed.splitlines()]
    assert told
    assert table.status().unmerged_rows == 0
    assert live_rows(table).equals(expected)
    assert table.scan(consistency="snapshot").count() == expected.num_rows
    assert table.maintenance.verify(runner=runner).passed


def test_a_master_that_there_is_not_is_told_of_in_a_line(tmp_path: Path) -> None:
    table = new_table(tmp_path, KEY_KINDS["integer"])
    with command("merge", table.uri, "--spark", "nowhere") as process:
        printed, complaints = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 2
    assert printed == ""
    assert "error: no Spark session on nowhere" in complaints.splitlines()[-1]

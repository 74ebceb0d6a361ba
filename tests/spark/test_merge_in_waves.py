"""One table that executors merge together: equal to a merge on threads, whatever dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import lance
import pytest
from pyspark.sql import SparkSession
from tests.spark.service_tables import KEY_KINDS, base_state, copy_of, live_rows, new_table
from tests.spark.test_runner_losses import BEFORE_THE_ANSWER, LosingRunner

import weir
import weir.merge.commit
from weir.base import early_segments
from weir.engine.runner import ThreadRunner
from weir.errors import RunnerError
from weir.merge import new_rows, replaced_rows
from weir.spark import SparkRunner

DRIVER = """
import sys, weir
from pyspark.sql import SparkSession
from weir.spark import SparkRunner, register
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)
weir.open(sys.argv[1], fsync=False).maintenance.merge(runner=SparkRunner(spark), divided=True)
"""


class Watched:
    """Runs tasks on Spark, and tells which."""

    is_distributed = SparkRunner.is_distributed

    def __init__(self, spark: SparkSession) -> None:
        self._runner = SparkRunner(spark)
        self.tasks: dict[str, int] = {}

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
        self.tasks[function.__name__] = self.tasks.get(function.__name__, 0) + len(tasks)
        return self._runner.run(function, tasks)


@pytest.mark.everywhere
@pytest.mark.parametrize("kind", ["integer", "composite"])
def test_executors_merge_one_table_together(
    spark: SparkSession, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_rows, "ROWS_PER_NEW_FRAGMENT", 1)
    monkeypatch.setattr(replaced_rows, "ROWS_PER_LOOK", 1)
    monkeypatch.setattr(weir.merge.commit, "_ROWS_TO_DIVIDE", 1)
    monkeypatch.setattr(weir.merge.commit, "ROWS_PER_NEW_FRAGMENT", 1)
    monkeypatch.setattr(early_segments, "_LEAST_ROWS", 1)
    table = new_table(tmp_path, KEY_KINDS[kind])
    table.maintenance.recover()
    twin = copy_of(table, tmp_path / "twin")
    expected = live_rows(table)
    runner = Watched(spark)
    report = table.maintenance.merge(runner=runner)
    assert runner.tasks["write_new_rows"] == report.shards
    assert runner.tasks["delete_or_index"] >= 2
    assert "run_merge_group" not in runner.tasks
    by_threads = twin.maintenance.merge(runner=ThreadRunner(), divided=False)
    assert (report.generations, report.rows_upserted, report.rows_deleted) == (
        by_threads.generations,
        by_threads.rows_upserted,
        by_threads.rows_deleted,
    )
    assert live_rows(table).equals(expected)
    assert base_state(table)["rows"] == base_state(twin)["rows"]
    assert table.maintenance.verify().passed


@pytest.mark.skipif(os.environ.get("SPARK_MODE") == "cluster", reason="a cluster tries again")
@pytest.mark.parametrize(
    ("function", "place"),
    [("write_new_rows", "merge.after_rows"), ("delete_replaced_rows", BEFORE_THE_ANSWER)],
)
def test_a_task_that_is_lost_for_good_leaves_the_table_as_it_was(
    spark: SparkSession, tmp_path: Path, function: str, place: str
) -> None:
    table = new_table(tmp_path, KEY_KINDS["integer"])
    table.maintenance.recover()
    expected, version = live_rows(table), lance.dataset(table.uri).version
    runner = LosingRunner(spark, tmp_path, function, place)
    with pytest.raises(RunnerError, match="lost the process"):
        table.maintenance.merge(runner=runner, divided=True)
    assert lance.dataset(table.uri).version == version
    assert live_rows(table).equals(expected)
    table.maintenance.merge(runner=SparkRunner(spark), divided=True)
    assert table.status().unmerged_rows == 0
    assert live_rows(table).equals(expected)
    assert table.maintenance.verify().passed


@pytest.mark.long
@pytest.mark.parametrize("place", ["merge.between_waves", "merge.before_commit", "merge.after_commit"])
def test_a_driver_that_is_killed_has_committed_all_or_nothing(tmp_path: Path, place: str) -> None:
    table = new_table(tmp_path, KEY_KINDS["integer"])
    table.maintenance.recover()
    expected, before = live_rows(table), table.status().unmerged_rows
    environment = {**os.environ, "WEIR_FAILPOINTS": f"{place}=kill", "SPARK_LOCAL_IP": "127.0.0.1"}
    died = subprocess.run(
        [sys.executable, "-c", DRIVER, table.uri],
        env=environment,
        capture_output=True,
        check=False,
        timeout=220,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr[-2000:]
    again = weir.open(table.uri, fsync=False)
    assert live_rows(again).equals(expected)
    assert again.status().unmerged_rows == (0 if place == "merge.after_commit" else before)
    again.maintenance.merge(divided=True)
    assert again.status().unmerged_rows == 0
    assert live_rows(again).equals(expected)
    assert again.maintenance.verify().passed

"""Processes that die under a service: Spark runs their tasks again, and what they had done is done once.

Only a cluster retries, so these need executors in processes of their own. A Python worker is killed with
SIGKILL at a failpoint inside of the task, or when all is done and only the answer is missing; or the whole
executor is.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.service_tables import KEY_KINDS, base_state, copy_of, live_rows, new_table

import weir
from weir.base import early_segments
from weir.engine import failpoint
from weir.engine.runner import Runner, ThreadRunner
from weir.spark import SparkRunner

pytestmark = [
    pytest.mark.long,
    pytest.mark.everywhere,
    pytest.mark.skipif(os.environ.get("SPARK_MODE") != "cluster", reason="only a cluster retries"),
]

BEFORE_THE_ANSWER = "before the answer"
EXECUTOR = "executor"


class LosingRunner:
    """Runs tasks on Spark, and has one of each function lose its process, once."""

    is_distributed = SparkRunner.is_distributed

    def __init__(self, spark: SparkSession, marks: Path, function: str, place: str) -> None:
        self._runner = SparkRunner(spark)
        self._mark = marks / "lost"
        self._function = function
        self._place = place

    @property
    def lost(self) -> bool:
        """Whether a process was lost."""
        return self._mark.exists()

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
        if function.__name__ == self._function:
            function = losing_once(function, self._mark, self._place)
        return self._runner.run(function, tasks)


def losing_once(function: Callable[[Any], Any], mark: Path, place: str) -> Callable[[Any], Any]:
    def executor_of_this_worker() -> int:
        process = os.getpid()
        while b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{process}/cmdline").read_bytes():
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        return process

    def run(task: Any) -> Any:
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            return function(task)
        if place == BEFORE_THE_ANSWER:
            function(task)
            os.kill(os.getpid(), signal.SIGKILL)
        if place == EXECUTOR:
            function(task)
            os.kill(executor_of_this_worker(), signal.SIGKILL)
            time.sleep(600)
        with failpoint.armed(place, "kill"):
            answer = function(task)
        # This task does not pass there; another one may.
        mark.unlink()
        return answer

    return run


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> weir.Table:
    return new_table(tmp_path_factory.mktemp("prepared"), KEY_KINDS["integer"])


def nothing(table: weir.Table, runner: Runner) -> None:
    pass


def recover(table: weir.Table, runner: Runner) -> None:
    table.maintenance.recover(runner=runner)


def merge(table: weir.Table, runner: Runner) -> None:
    table.maintenance.merge(runner=runner)


def merge_in_waves(table: weir.Table, runner: Runner) -> None:
    table.maintenance.merge(runner=runner, divided=True)


def merge_and_index(table: weir.Table, runner: Runner) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(early_segments, "_LEAST_ROWS", 1)
        merge_in_waves(table, runner)


def compact(table: weir.Table, runner: Runner) -> None:
    table.maintenance.compact(rows_per_fragment=100, runner=runner)


def catch_up(table: weir.Table, runner: Runner) -> None:
    table.maintenance.catch_up_indexes(runner=runner)


def collect(table: weir.Table, runner: Runner) -> None:
    for _ in range(2):
        table.maintenance.collect_garbage(horizon=timedelta(0), runner=runner)


def verify(table: weir.Table, runner: Runner) -> None:
    assert table.maintenance.verify(runner=runner).passed


Service = Callable[[weir.Table, Runner], None]

LOSSES: list[tuple[Service, Service, str, str]] = [
    (nothing, merge, "run_merge_group", "merge.before_deletes"),
    (nothing, merge, "run_merge_group", "merge.between_passes"),
    (nothing, merge, "run_merge_group", "merge.before_commit"),
    (nothing, merge, "run_merge_group", "merge.after_commit"),
    (nothing, merge, "run_merge_group", BEFORE_THE_ANSWER),
    (nothing, merge, "run_merge_group", EXECUTOR),
    (nothing, merge_in_waves, "write_new_rows", "merge.after_rows"),
    (nothing, merge_in_waves, "write_new_rows", EXECUTOR),
    (nothing, merge_in_waves, "delete_replaced_rows", "merge.before_deletions"),
    (nothing, merge_in_waves, "delete_replaced_rows", BEFORE_THE_ANSWER),
    (nothing, merge_and_index, "delete_or_index", BEFORE_THE_ANSWER),
    (nothing, merge_and_index, "delete_or_index", EXECUTOR),
    (nothing, recover, "recover_shard", "claim.between_lease_and_epoch"),
    (nothing, recover, "recover_shard", "claim.between_epoch_and_fence"),
    (nothing, recover, "recover_shard", "flush.before_manifest"),
    (nothing, recover, "recover_shard", "flush.after_manifest"),
    (nothing, recover, "recover_shard", BEFORE_THE_ANSWER),
    (merge, compact, "rewrite", BEFORE_THE_ANSWER),
    (merge, compact, "rewrite", EXECUTOR),
    (merge, catch_up, "_built_or_failed", BEFORE_THE_ANSWER),
    (merge, collect, "survey_shard", BEFORE_THE_ANSWER),
    (merge, collect, "sweep_shard", "garbage.between_deletes"),
    (merge, collect, "sweep_shard", BEFORE_THE_ANSWER),
    (merge, verify, "check_shard", BEFORE_THE_ANSWER),
    (merge, verify, "check_base_rows", BEFORE_THE_ANSWER),
]


@pytest.mark.parametrize(
    ("before", "service", "function", "place"),
    [pytest.param(*one, id=f"{one[2]}-{one[3].replace(' ', '-')}") for one in LOSSES],
)
def test_a_lost_task_is_done_once(
    spark: SparkSession,
    prepared: weir.Table,
    tmp_path: Path,
    before: Service,
    service: Service,
    function: str,
    place: str,
) -> None:
    table, twin = copy_of(prepared, tmp_path / "table"), copy_of(prepared, tmp_path / "twin")
    expected = live_rows(prepared)
    runner = LosingRunner(spark, tmp_path, function, place)
    for one in (table, twin):
        before(one, ThreadRunner())
    service(table, runner)
    assert runner.lost
    service(twin, ThreadRunner())
    there, here = base_state(table), base_state(twin)
    for part in here:
        assert there[part] == here[part], part
    assert live_rows(table).equals(expected)
    assert [one.unflushed_rows for one in table.status().shards] == [
        one.unflushed_rows for one in twin.status().shards
    ]
    # A flush that never got to the manifest leaves files, for garbage collection.
    left = ["generation.orphan"] if place == "flush.before_manifest" else []
    assert [finding.check for finding in table.maintenance.verify().findings] == left
    # What comes after it finds nothing amiss either.
    merge(table, ThreadRunner())
    assert live_rows(table).equals(expected)

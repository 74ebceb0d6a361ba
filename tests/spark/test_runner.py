"""The runner itself: answers, errors, cancellation and lost processes, whatever the tasks are."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from weir.errors import ConflictError, RunnerError
from weir.spark import SparkRunner

# Functions inside of functions travel by value: executors cannot import the modules of tests.


def squares() -> Callable[[int], int]:
    def square(number: int) -> int:
        return number * number

    return square


@pytest.mark.everywhere
def test_every_task_is_answered_once(spark: SparkSession) -> None:
    runner = SparkRunner(spark, jobs=3)
    assert sorted(runner.run(squares(), range(8))) == [n * n for n in range(8)]
    assert list(runner.run(squares(), [])) == []
    assert list(runner.run(squares(), [5])) == [25]


@pytest.mark.everywhere
def test_tasks_run_in_other_processes(spark: SparkSession) -> None:
    def process(_: int) -> int:
        return os.getpid()

    assert os.getpid() not in set(SparkRunner(spark).run(process, [1, 2]))


def test_tasks_run_in_the_workers_that_data_frames_have(spark: SparkSession) -> None:
    def parent(_: int) -> int:
        return os.getppid()

    def parents(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch([[os.getppid()] * batch.num_rows], ["parent"])

    (row,) = spark.range(1).mapInArrow(parents, "parent long").collect()
    assert list(SparkRunner(spark).run(parent, [1])) == [row["parent"]]


def test_a_job_of_a_classic_session_is_not_planned(spark: SparkSession) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(spark), "range", lambda *_: pytest.fail("a data frame was made"))
        assert list(SparkRunner(spark).run(squares(), [3])) == [9]


@pytest.mark.everywhere
def test_python_files_that_are_added_later_reach_the_tasks(spark: SparkSession, tmp_path: Path) -> None:
    def added(_: int) -> str:
        from weir_test_artifact import NAME  # type: ignore[import-not-found]

        return str(NAME)

    runner = SparkRunner(spark)
    assert list(runner.run(squares(), [3])) == [9]
    with zipfile.ZipFile(tmp_path / "weir_test_artifact.zip", "w") as packed:
        packed.writestr("weir_test_artifact.py", "NAME = 'added'")
    spark.addArtifacts(str(tmp_path / "weir_test_artifact.zip"), pyfile=True)
    assert list(runner.run(added, [1])) == ["added"]


@pytest.mark.everywhere
def test_answers_arrive_while_other_tasks_run(spark: SparkSession, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def wait_for_gate(waits: bool) -> bool:
        while waits and not gate.exists():
            time.sleep(0.05)
        return waits

    answers = SparkRunner(spark).run(wait_for_gate, [True, False])
    assert next(answers) is False
    gate.touch()
    assert list(answers) == [True]


@pytest.mark.everywhere
def test_an_error_of_weir_arrives_as_it_was_raised(spark: SparkSession) -> None:
    def fail(_: int) -> int:
        raise ConflictError("commits got in the way", where="shard 7", hint="Try again")

    with pytest.raises(ConflictError) as caught:
        list(SparkRunner(spark).run(fail, [1, 2]))
    assert str(caught.value) == "commits got in the way [shard 7]. Try again"
    assert caught.value.where == "shard 7"


@pytest.mark.everywhere
def test_other_errors_have_the_traceback_of_the_executor(spark: SparkSession) -> None:
    def divide_by_nothing(number: int) -> float:
        return number / 0

    with pytest.raises(ZeroDivisionError) as caught:
        list(SparkRunner(spark).run(divide_by_nothing, [1]))
    assert "in divide_by_nothing" in "".join(caught.value.__notes__)


def test_an_error_that_cannot_be_pickled_is_told_of(spark: SparkSession) -> None:
    def fail(_: int) -> int:
        class HoldsALockError(Exception):
            def __init__(self) -> None:
                super().__init__("with a lock")
                self.lock = threading.Lock()

        raise HoldsALockError

    with pytest.raises(RunnerError, match="a task failed: HoldsALockError: with a lock") as caught:
        list(SparkRunner(spark).run(fail, [1]))
    assert "raise HoldsALockError" in "".join(caught.value.__notes__)


@pytest.mark.everywhere
def test_the_first_failure_cancels_what_is_under_way(spark: SparkSession, tmp_path: Path) -> None:
    def fail_or_wait(fails: bool) -> None:
        if not fails:
            (tmp_path / f"waiting-{os.getpid()}").touch()
            time.sleep(600)
        while not list(tmp_path.glob("waiting-*")):
            time.sleep(0.05)
        raise ConflictError("stop")

    # pytest's own limit is far below ten minutes.
    with pytest.raises(ConflictError, match="stop"):
        list(SparkRunner(spark).run(fail_or_wait, [False, True]))
    assert list(SparkRunner(spark).run(squares(), [2])) == [4]


@pytest.mark.everywhere
def test_whoever_stops_listening_cancels_too(spark: SparkSession) -> None:
    def wait(seconds: int) -> int:
        time.sleep(seconds)
        return seconds

    answers = SparkRunner(spark).run(wait, [0, 600])
    assert next(answers) == 0
    answers.close()  # type: ignore[attr-defined]


@pytest.mark.everywhere
def test_interrupting_the_session_cancels_its_jobs(spark: SparkSession, tmp_path: Path) -> None:
    def wait(_: int) -> None:
        (tmp_path / "waiting").touch()
        time.sleep(600)

    def interrupt() -> None:
        while not (tmp_path / "waiting").exists():
            time.sleep(0.05)
        spark.interruptAll()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(RunnerError, match=r"(?i)cancel"):
        list(SparkRunner(spark).run(wait, [1]))
    thread.join()


@pytest.mark.everywhere
def test_a_lost_process_is_retried_by_clusters_and_told_of_elsewhere(
    spark: SparkSession, spark_mode: str, tmp_path: Path
) -> None:
    def die_once(number: int) -> int:
        try:
            (tmp_path / "died").touch(exist_ok=False)
        except FileExistsError:
            return number
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    runner = SparkRunner(spark)
    if spark_mode == "cluster":
        assert list(runner.run(die_once, [3])) == [3]
    else:
        with pytest.raises(RunnerError, match="Spark lost the process that ran a task") as caught:
            list(runner.run(die_once, [3]))
        assert len(str(caught.value)) < 1000
        assert "\n" not in str(caught.value)


def test_a_function_that_is_not_there_is_told_of_as_such(spark: SparkSession) -> None:
    def missing(_: int) -> object:
        import no_such_module_anywhere  # type: ignore[import-not-found]

        return no_such_module_anywhere

    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        list(SparkRunner(spark).run(missing, [1]))


def test_bad_numbers_of_jobs_are_refused(spark: SparkSession) -> None:
    with pytest.raises(RunnerError, match="into 0 jobs"):
        SparkRunner(spark, jobs=0)


def test_what_cannot_be_pickled_fails_before_anything_is_sent(spark: SparkSession) -> None:
    tasks: list[Any] = [threading.Lock()]
    with pytest.raises((TypeError, pickle.PicklingError)):
        list(SparkRunner(spark).run(lambda lock: lock, tasks))

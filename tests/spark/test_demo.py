"""The demo on Spark as a whole, on a few thousand flights: real Spark drivers, a real SIGKILL."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lance
import pytest

import weir
from weir.cli.main import main
from weir.demo import on_spark
from weir.demo.on_spark import run_spark_demo
from weir.demo.options import DemoOptions
from weir.demo.process import ListenedProcess
from weir.spark.pipeline.checkpoint import CheckpointState, read_checkpoint


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_demo_survives_its_crash_and_finds_no_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = run_spark_demo(DemoOptions(directory=tmp_path, flights=3_000, fsync=False))
    said = capsys.readouterr().out
    assert report.passed, said
    assert report.crash is not None
    assert report.crash.acknowledged_rows > 0
    assert [verdict.what for verdict in report.verdicts] == [
        "the table as Weir reads it",
        "the table as Spark reads it",
        "the Lance table alone",
    ]
    assert all(verdict.identical and verdict.rows > 2_900 for verdict in report.verdicts)
    assert any(answer.question.startswith("in Spark SQL, ") for answer in report.answers)
    assert any(answer.question.startswith("flight ") for answer in report.answers)
    assert "was killed with SIGKILL, Java and all" in said
    assert "merged" in said
    assert "VERDICT: identical" in said
    status = weir.open(tmp_path / "flights").status()
    assert (status.unmerged_rows, status.unflushed_rows) == (0, 0)
    assert lance.dataset(str(tmp_path / "flights")).count_rows() == report.verdicts[0].rows


class KilledBetweenTheLogs(ListenedProcess[dict[str, Any]]):
    """A driver that dies when its source has noted a file, and its query cannot note that it takes it."""

    checkpoint: Path
    left: list[CheckpointState]

    def __init__(
        self,
        command: Sequence[str],
        read: Callable[[str], dict[str, Any]],
        kill_at: Callable[[dict[str, Any]], bool] | None,
        *,
        whole_group: bool,
    ) -> None:
        offsets, found = self.checkpoint / "offsets", self.checkpoint / "sources" / "0"

        def between(message: dict[str, Any]) -> bool:
            assert kill_at is not None
            if message["kind"] == "batch" and message["files"] == 1:
                # Taken in the place of what says that the fourth micro-batch takes the fourth file.
                (offsets / "3").mkdir()
            while kill_at(message) and not (found / "3").exists():
                time.sleep(0.001)
            return kill_at(message)

        if kill_at is None:
            (offsets / "3").rmdir()
            self.left.append(read_checkpoint(self.checkpoint))
        super().__init__(command, read, None if kill_at is None else between, whole_group=whole_group)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_demo_counts_files_and_no_batches_when_a_kill_makes_one_batch_of_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tmp_path / "driver" / "checkpoint"
    monkeypatch.setattr(KilledBetweenTheLogs, "checkpoint", checkpoint, raising=False)
    left: list[CheckpointState] = []
    monkeypatch.setattr(KilledBetweenTheLogs, "left", left, raising=False)
    monkeypatch.setattr(on_spark, "ListenedProcess", KilledBetweenTheLogs)
    # Two files wait at any time, so that there is one more when the source has noted one.
    monkeypatch.setattr(on_spark, "_FILES_AHEAD", 2)
    # That is the third file of eight: what decides is the seed.
    monkeypatch.setattr(random.Random, "uniform", lambda *_: 0.26)
    report = run_spark_demo(DemoOptions(directory=tmp_path, flights=3_000, fsync=False))
    said = capsys.readouterr().out
    assert left == [CheckpointState(2, 2, 3, ({"logOffset": 2},))]
    # Eight files in seven micro-batches.
    assert read_checkpoint(checkpoint) == CheckpointState(6, 6, 7, ({"logOffset": 7},))
    assert report.passed, said
    assert report.crash is not None
    assert report.crash.acknowledged_events == 3 * 9_000 // 8


def test_without_java_the_demo_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert main(["demo"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: Spark needs Java 17 or newer")
    assert said.err.endswith("Without Spark there is a smaller demo: weir demo --embedded\n")


@pytest.mark.parametrize(
    ("command", "more"), [("demo", ". Without Spark there is a smaller demo"), ("pipeline run x.toml", "")]
)
def test_without_pyspark_the_program_says_what_to_install(command: str, more: str) -> None:
    without = "import sys; sys.modules['pyspark'] = None; from weir.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", without, *command.split()], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    needs = "error: weir.spark needs PySpark. Install it with: pip install 'weir-lance[spark]'"
    assert done.stderr.startswith(needs + more)
    assert done.stderr.count("\n") == 1

"""The demo on Spark as a whole, on a few thousand flights: real Spark drivers, a real SIGKILL."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lance
import pytest

import weir
from weir.cli.main import main
from weir.demo.on_spark import run_spark_demo
from weir.demo.options import DemoOptions


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
    needs = "error: weir.spark needs PySpark. Install it with: pip install 'weir[spark]'"
    assert done.stderr.startswith(needs + more)
    assert done.stderr.count("\n") == 1

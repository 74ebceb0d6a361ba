"""Workers that Spark starts have the Weir of the program that asks for them, or it is told."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import weir
from weir.errors import RunnerError
from weir.spark import worker_python
from weir.spark.session import register
from weir.spark.worker_python import check_workers

PROGRAM = """
import sys
import pyarrow as pa
from pyspark.sql import SparkSession
import weir, weir.spark
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    weir.spark.register(spark)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    weir.create(sys.argv[1], schema, primary_key="id", fsync=False)
    spark.range(3).write.format("weir").mode("append").save(sys.argv[1])
    print("rows", spark.read.format("weir").load(sys.argv[1]).count())
except weir.errors.RunnerError as error:
    print(type(error).__name__, error)
finally:
    spark.stop()
"""


def run(directory: Path, **environment: str) -> str:
    """Run the program as somebody does who has activated no environment; return what it prints."""
    bare = directory / "bin"
    if not bare.exists():
        # A python3 with nothing but what Spark needs to start it, first in the path.
        venv.create(directory / "other", with_pip=False, symlinks=True)
        bare.symlink_to(directory / "other" / "bin")
    program = directory / "program.py"
    program.write_text(PROGRAM)
    kept = {name: value for name, value in os.environ.items() if name not in ("PYSPARK_PYTHON", "PYTHONPATH")}
    kept |= {"PATH": f"{bare}{os.pathsep}{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1", **environment}
    # Found by a path of the driver's own, which workers do not get.
    start = f"import sys; sys.path[:0] = {[str(Path(weir.__file__).parents[1])]!r}; sys.argv[0:1] = []; "
    start += f"exec(open({str(program)!r}).read())"
    done = subprocess.run(
        [sys.executable, "-c", start, "-", str(directory / "table")],
        env=kept,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_a_program_of_an_environment_that_is_not_activated(tmp_path: Path) -> None:
    assert run(tmp_path) == "rows 3\n"


@pytest.mark.long
def test_workers_that_were_chosen_and_have_no_weir_are_told(tmp_path: Path) -> None:
    said = run(tmp_path, PYSPARK_PYTHON=str(tmp_path / "bin" / "python3"))
    assert said.startswith("RunnerError Spark's workers have no ")
    assert "Set PYSPARK_PYTHON, before the session starts" in said


@pytest.mark.everywhere
def test_workers_have_weir(spark: SparkSession) -> None:
    register(spark)
    check_workers(spark)


def test_another_version_is_told(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_python, "__version__", "0.0.1")
    with pytest.raises(RunnerError, match=rf"have Weir {weir.__version__}, and this program has 0\.0\.1"):
        check_workers(spark)

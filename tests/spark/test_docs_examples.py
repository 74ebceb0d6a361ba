"""The examples of docs/spark.md, run as they stand, in a process and a directory of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.test_docs import ON_SPARK, ROOT, put_programs

RUN = """
import sys
from pathlib import Path
from tests.test_docs import run_page

run_page(Path(sys.argv[1]), Path(sys.argv[2]))
"""
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_the_examples_of_the_page_run(tmp_path: Path) -> None:
    programs = put_programs(tmp_path / "bin", [sys.executable, "-m", "weir.cli.main"])
    directory = tmp_path / "page"
    directory.mkdir()
    given = " ".join(f"--conf {name}={value}" for name, value in SETTINGS.items())
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(ROOT / ON_SPARK), str(programs)],
        cwd=directory,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": f"{given} pyspark-shell",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]

"""Calls to the operating system that fail, or move fewer bytes than asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tests
from tests.faults.failing_io import FailingDisk, compiled

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler"
)


def test_a_disk_that_fails_now_and_then_loses_nothing(tmp_path: Path) -> None:
    failing = FailingDisk(tmp_path, seed=3)
    failing.play(permille=30)
    assert failing.counts["writes acknowledged"]
    assert any(name.startswith("refused: ") for name in failing.counts)


# Of all that a flush does each call fails, of the others some: they take longer, and have more of them.
@pytest.mark.one_in(3)
@pytest.mark.parametrize(("scene", "every"), [("flush", 1), ("merge", 5), ("compact", 20), ("index", 5)])
def test_no_write_that_fails_leaves_a_table_that_cannot_be_read(
    scene: str, every: int, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "tests.faults.lost_writes", scene, str(tmp_path / "table"), str(every)]
    done = subprocess.run(
        command,
        cwd=Path(tests.__path__[0]).parent,
        env={**os.environ, "LD_PRELOAD": str(compiled(tmp_path, "failing_io"))},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if scene == "flush":
        assert "is missing" in done.stdout

"""Calls to the operating system that fail, or move fewer bytes than asked for."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.faults.failing_io import FailingDisk


@pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler"
)
def test_a_disk_that_fails_now_and_then_loses_nothing(tmp_path: Path) -> None:
    failing = FailingDisk(tmp_path, seed=3)
    failing.play(permille=30)
    assert failing.counts["writes acknowledged"]
    assert any(name.startswith("refused: ") for name in failing.counts)

"""The local store among real processes, some of which die, and on disks that refuse."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tests

ROOT = Path(tests.__path__[0]).parent


def play(scene: str, directory: Path, *before: str) -> None:
    command = [*before, sys.executable, "-m", "tests.storage.processes", scene, str(directory)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_killed_processes_leave_whole_objects(tmp_path: Path) -> None:
    play("kill", tmp_path)


def test_one_of_many_processes_wins(tmp_path: Path) -> None:
    play("race", tmp_path)


def test_limits_and_permissions(tmp_path: Path) -> None:
    play("limits", tmp_path)


def _can_mount(directory: Path) -> bool:
    if sys.platform != "linux" or os.getuid() != 0 or shutil.which("unshare") is None:
        return False
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", str(directory)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_full_and_read_only_disk(tmp_path: Path) -> None:
    if not _can_mount(tmp_path):
        pytest.skip("needs the right to mount a filesystem")
    script = f'mount -t tmpfs -o size=2m none "{tmp_path}" && exec "$@"'
    play("disk", tmp_path, "unshare", "--mount", "sh", "-c", script, "sh")

"""Disks that are full, mounted read-only, or belong to somebody else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import tests

ROOT = Path(tests.__path__[0]).parent
# As root, and as anybody where the system lets a user be root of a namespace of his own.
_WAYS = (["unshare", "--mount"], ["unshare", "--mount", "--map-root-user"])


def mounting() -> list[str] | None:
    """Return how to run a command that may mount file systems; None if that cannot be done."""
    if sys.platform != "linux" or shutil.which("unshare") is None:
        return None
    for way in _WAYS:
        with tempfile.TemporaryDirectory() as directory:
            command = [*way, "mount", "-t", "tmpfs", "none", directory]
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                return way
    return None


def play(scene: str, directory: Path, *before: str) -> None:
    command = [*before, sys.executable, "-m", "tests.faults.disk", scene, str(directory)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "scene",
    [
        "full",
        "full_for_indexes",
        "full_for_a_service",
        "full_for_events",
        "full_for_temporary_files",
        "read_only",
    ],
)
def test_disk(scene: str, tmp_path: Path) -> None:
    way = mounting()
    if way is None:
        pytest.skip("needs the right to mount a file system, in a namespace of its own or as root")
    directory = tmp_path / "disk"
    directory.mkdir()
    script = f'mount -t tmpfs -o size=6m none "{directory}" && exec "$@"'
    play(scene, directory, *way, "sh", "-c", script, "sh")


@pytest.fixture
def public_directory() -> Iterator[Path]:
    """Return a directory that other users can reach, unlike those that pytest makes."""
    directory = Path(tempfile.mkdtemp(prefix="weir-", dir="/tmp"))
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def test_a_table_of_somebody_else(public_directory: Path) -> None:
    if sys.platform != "linux" or os.getuid() != 0:
        pytest.skip("needs the right to become another user")
    play("not_ours", public_directory)

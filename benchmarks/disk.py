"""Keeping what the disk and the memory have been through before from deciding who is faster."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

__all__ = ["creation_seconds", "release", "touch_memory"]

_MEBIBYTE = 1024 * 1024
_PROBED_DIRECTORIES = 8
_PROBED_FILES = 20


def touch_memory(directory: Path, mebibytes: int) -> None:
    """Write a file and remove it again, so that the page cache has used its memory before.

    Virtual machines hand out memory on first use, which makes a write up to five times slower (measured:
    0.4 GB/s against 1.9 GB/s), and would hit whoever comes first.
    """
    block = bytes(_MEBIBYTE)
    path = directory / "memory"
    with path.open("wb", buffering=0) as file:
        for _ in range(mebibytes):
            file.write(block)
    path.unlink()


def release(directory: Path) -> None:
    """Give back the memory and the disk space of every file below ``directory``, and leave the files.

    Deleting them would slow down what comes next: for minutes ext4 passes over, one by one, inodes that
    were deleted a moment ago.
    """
    for parent, _, names in os.walk(directory):
        for name in names:
            os.truncate(os.path.join(parent, name), 0)


def creation_seconds(directory: Path) -> tuple[float, float]:
    """Return how long the creation of a file takes in the fastest and the slowest of a few directories.

    Where they are far apart, for the reason given in :func:`release`, figures of small puts are noise.
    """
    medians = []
    for number in range(_PROBED_DIRECTORIES):
        place = directory / f"probe-{number}"
        place.mkdir()
        taken = []
        for at in range(_PROBED_FILES):
            start = time.perf_counter()
            descriptor = os.open(place / str(at), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            taken.append(time.perf_counter() - start)
            os.close(descriptor)
        medians.append(statistics.median(taken))
    return min(medians), max(medians)

"""What a run ran on: figures mean little without it."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import weir
from benchmarks.disk import creation_seconds

__all__ = ["Environment"]

_PACKAGES = ("pylance", "pyarrow", "numpy", "datafusion", "duckdb")


@dataclass(frozen=True, slots=True)
class Environment:
    """The machine and the software of one run.

    Parameters
    ----------
    packages : dict of str to str
        Versions.
    python, system, processor : str
        For people.
    cores : int
        Cores this process may use.
    load : float
        Load average of the last minute when the run began; above about 0.5 others were at work.
    filesystem : str
        Type of the filesystem the tables were on.
    creation_seconds : tuple of float
        How long the creation of a file took, in the fastest and the slowest directory tried.
    """

    packages: dict[str, str]
    python: str
    system: str
    processor: str
    cores: int
    load: float
    filesystem: str
    creation_seconds: tuple[float, float]

    @classmethod
    def of(cls, directory: Path) -> Environment:
        """Look around; ``directory`` is where the tables will be."""
        return cls(
            packages={"weir": weir.__version__, **{name: version(name) for name in _PACKAGES}},
            python=platform.python_version(),
            system=f"{platform.system()} {platform.release()}",
            processor=_processor(),
            cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
            load=round(os.getloadavg()[0], 2),
            filesystem=_filesystem(directory),
            creation_seconds=creation_seconds(directory),
        )

    def summary(self) -> str:
        """Return in a line what others need to judge the figures."""
        return (
            f"{self.processor}, {self.cores} cores, {self.filesystem}; pylance {self.packages['pylance']}, "
            f"pyarrow {self.packages['pyarrow']}, Python {self.python}; load {self.load:g} at the start, "
            f"{self._creation()}"
        )

    def describe(self) -> str:
        """Return it in a few lines for people."""
        packages = ", ".join(f"{name} {number}" for name, number in self.packages.items())
        return (
            f"{packages}, Python {self.python}\n"
            f"{self.system}, {self.processor}, {self.cores} cores, {self.filesystem}, "
            f"load {self.load:g} at the start\n"
            f"{self._creation()}"
        )

    def _creation(self) -> str:
        fastest, slowest = self.creation_seconds
        return f"creating a file takes {fastest * 1e6:.0f} to {slowest * 1e6:.0f} us, by directory"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _filesystem(directory: Path) -> str:
    """Return the type of the filesystem whose mount point is the longest prefix of ``directory``."""
    try:
        lines = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return "unknown filesystem"
    mounts = [line.split(" ")[1:3] for line in lines]
    place = directory.resolve()
    holding = [(point, kind) for point, kind in mounts if place.is_relative_to(point)]
    return max(holding, key=lambda mount: len(mount[0]))[1] if holding else "unknown filesystem"

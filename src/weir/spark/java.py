"""Checks that this machine has the Java that Spark needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from weir.errors import MissingDependencyError

__all__ = ["LEAST_JAVA", "check_java"]

LEAST_JAVA = 17
"""The oldest version that Spark 4 runs on."""

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def check_java(environment: Mapping[str, str] | None = None) -> None:
    """Check that Java is installed and new enough.

    Parameters
    ----------
    environment : mapping of str to str, optional
        Where ``JAVA_HOME`` and ``PATH`` are looked up, as Spark does. Default: that of this process.

    Raises
    ------
    MissingDependencyError
        If Java is missing or too old; the message says what was found.
    """
    environment = os.environ if environment is None else environment
    home = environment.get("JAVA_HOME")
    program = (
        str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH", ""))
    )
    found = f"JAVA_HOME is {home}, and has none" if home else "there is none on PATH"
    if program is not None and os.access(program, os.X_OK):
        said = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
        version = _VERSION.search(said)
        if version is not None and int(version[1]) >= LEAST_JAVA:
            return
        found = f"{program} is version {version[1]}" if version else f"{program} does not say its version"
    raise MissingDependencyError(
        f"Spark needs Java {LEAST_JAVA} or newer: {found}",
        hint=f"Install it, on Debian and Ubuntu with: sudo apt-get install openjdk-{LEAST_JAVA}-jre-headless",
    )

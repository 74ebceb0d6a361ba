from __future__ import annotations

from pathlib import Path

import pytest

from weir.errors import MissingDependencyError
from weir.spark.java import check_java


def java(directory: Path, says: str) -> Path:
    directory.mkdir(parents=True)
    program = directory / "java"
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    return directory


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_java_that_is_new_enough(tmp_path: Path, version: str) -> None:
    says = f'openjdk version "{version}" 2025-04-15'
    check_java({"PATH": str(java(tmp_path / "on-path", says))})
    java(tmp_path / "home" / "bin", says)
    check_java({"PATH": "", "JAVA_HOME": str(tmp_path / "home")})


@pytest.mark.parametrize(
    ("says", "found"),
    [
        ('openjdk version "1.8.0_442"', "is version 8"),
        ('openjdk version "11.0.2"', "is version 11"),
        ("?", "does not say"),
    ],
)
def test_java_that_is_too_old(tmp_path: Path, says: str, found: str) -> None:
    with pytest.raises(MissingDependencyError, match=found):
        check_java({"PATH": str(java(tmp_path / "on-path", says))})


def test_no_java(tmp_path: Path) -> None:
    with pytest.raises(MissingDependencyError, match="there is none on PATH"):
        check_java({"PATH": str(tmp_path)})
    # Spark starts the one of JAVA_HOME, whatever is on PATH.
    on_path = java(tmp_path / "on-path", 'openjdk version "17.0.15"')
    with pytest.raises(MissingDependencyError, match=r"JAVA_HOME is .*, and has none"):
        check_java({"PATH": str(on_path), "JAVA_HOME": str(tmp_path / "home")})

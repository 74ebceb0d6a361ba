"""The files of Weir and of its tests, compiled once, before processes begin that all import them.

Those that pytest spreads the tests over begin at once, and after a checkout each would compile the same files
at the same time as the others.
"""

from __future__ import annotations

import compileall
import os
import sys
import warnings
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

__all__ = ["compile_all"]

_ROOT = Path(__file__).resolve().parent.parent


def compile_all(config: pytest.Config) -> None:
    """Compile what has not been, on all processors.

    Parameters
    ----------
    config : pytest.Config
        What asserts are rewritten by.
    """
    if sys.dont_write_bytecode:
        return
    files = [path for folder in ("src", "tests") for path in (_ROOT / folder).rglob("*.py")]
    files = [path for path in files if not _is_compiled(path)]
    shares = (files[number :: os.cpu_count()] for number in range(os.cpu_count() or 1))
    processes = [_compile_in_a_fork(share, config) for share in shares if share]
    for process in processes:
        os.waitpid(process, 0)


def _is_compiled(file: Path) -> bool:
    """Return whether a file seems to be; if it is not, whoever imports it sees that."""
    compiled = _compiled(file)
    return compiled.exists() and compiled.stat().st_mtime >= file.stat().st_mtime


def _compiled(file: Path) -> Path:
    ending = rewrite.PYC_TAIL if _has_tests(file) else f".{sys.implementation.cache_tag}.pyc"
    return rewrite.get_cache_dir(file) / f"{file.stem}{ending}"


def _has_tests(file: Path) -> bool:
    return file.name.startswith("test_") or file.name == "conftest.py"


def _compile_in_a_fork(files: list[Path], config: pytest.Config) -> int:
    """Return the process that compiles some files; what fails there is left to whoever imports them."""
    with warnings.catch_warnings():
        # Lance warns of its threads, and here it has none, if it has been imported at all.
        warnings.simplefilter("ignore")
        process = os.fork()
    if process:
        return process
    try:
        for file in files:
            if _has_tests(file):
                compiled = _compiled(file)
                compiled.parent.mkdir(exist_ok=True)
                source_hash, code = rewrite._rewrite_test(file, config)
                rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source_hash, compiled)
            else:
                compileall.compile_file(file, quiet=2)
    finally:
        os._exit(0)

"""What a process imports, and when: the library comes with the first name that needs it."""

from __future__ import annotations

import ast
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import weir

# Each of them takes a good part of the time that it takes to import the library.
SLOW = {
    "asyncio",
    "datafusion",
    "google",
    "lance",
    "numpy",
    "obstore",
    "pandas",
    "pyarrow",
    "pyspark",
    "rich",
}
LIGHT = ["weir", "weir.engine", "weir.engine.library_log", "weir.errors"]


@pytest.fixture(autouse=True)
def _pandas_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo what tests/conftest.py does for processes of other tests."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if "without_pandas" not in path))


def imported_by(code: str, *arguments: str) -> set[str]:
    """Return the modules that a new process has imported after some code; it may print to standard output."""
    listing = "\nimport json, sys; print(json.dumps(list(sys.modules)), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code + listing, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


def imported_by_program(*arguments: str) -> set[str]:
    """Return the modules that the program has imported when it ends."""
    return imported_by("import sys; from weir.cli.main import main; main(sys.argv[1:])", *arguments)


def packages(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


# --- Which modules -------------------------------------------------------------------------------


def test_importing_weir_imports_no_library() -> None:
    modules = imported_by("import weir; weir.errors.WeirError; weir.__version__; dir(weir)")
    assert sorted(name for name in modules if name.startswith("weir")) == LIGHT
    assert packages(modules) & SLOW == set()


def test_a_token_is_read_without_the_library() -> None:
    modules = imported_by("import weir; weir.SnapshotToken.parse")
    assert packages(modules) & SLOW == set()


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--version"],
        ["--help"],
        ["index", "--help"],
        ["ingest", "--help"],
        ["compact", "--help"],
        ["pipeline", "run", "--help"],
        ["demo", "--help"],
        ["scan"],
        ["no-such-command"],
    ],
)
def test_the_program_answers_without_the_library_what_needs_no_table(arguments: list[str]) -> None:
    modules = imported_by_program(*arguments)
    assert packages(modules) & SLOW == set()
    assert {name for name in modules if name.startswith("weir.")} <= {
        *LIGHT,
        *("weir.config", "weir.engine.durations", "weir.engine.stop_signals"),
        *(name for name in modules if name.startswith("weir.cli")),
    }


def test_a_table_is_opened_without_what_only_a_terminal_or_spark_needs(tmp_path: Path) -> None:
    weir.create(tmp_path / "table", pa.schema([("id", pa.int64())]), primary_key="id", fsync=False)
    modules = imported_by("import sys, weir; weir.open(sys.argv[1]).status()", str(tmp_path / "table"))
    assert "lance" in modules
    assert packages(modules) & {"asyncio", "pyspark", "rich", "structlog", "typer"} == set()
    modules = imported_by_program("status", str(tmp_path / "table"), "--json")
    assert packages(modules) & {"asyncio", "pyspark", "rich"} == set()
    assert not any(name.startswith(("weir.demo", "weir.spark")) for name in modules)


def test_a_table_is_written_and_merged_without_the_namespaces_of_the_library(tmp_path: Path) -> None:
    """They take longer to import than all the rest, and only the errors of a lost race need them."""
    modules = imported_by(
        "import sys, pyarrow as pa, weir\n"
        "table = weir.create(sys.argv[1], pa.schema([('id', pa.int64())]), primary_key='id')\n"
        "table.upsert([{'id': 1}])\n"
        "table.maintenance.run()\n"
        "assert table.scan().count() == 1",
        str(tmp_path / "table"),
    )
    assert "lance" in modules
    assert packages(modules) & {"lance_namespace", "lance_namespace_urllib3_client"} == set()


# --- The names -----------------------------------------------------------------------------------


def test_type_checkers_and_the_interpreter_see_the_same_names() -> None:
    source = ast.parse(Path(weir.__file__).read_text(encoding="utf-8"))
    for_checkers = next(node for node in source.body if isinstance(node, ast.If)).body
    named = {
        (alias.name, node.module)
        for node in for_checkers
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    # Spark is an extra, and stands above all else: ``from weir import *`` does without it.
    packages = {(name, "weir") for name in weir._SUBMODULES - {"spark"}}  # type: ignore[attr-defined]
    assert named - packages == set(weir._MODULES.items())  # type: ignore[attr-defined]
    assert {name for name, _ in named} | {"__version__", "errors"} == set(weir.__all__)


def test_every_name_is_listed_and_found() -> None:
    assert set(weir.__all__) <= set(dir(weir))
    found: dict[str, object] = {}
    exec("from weir import *", found)
    assert {name for name in weir.__all__ if found[name] is not getattr(weir, name)} == set()
    with pytest.raises(AttributeError, match=r"^module 'weir' has no attribute 'opne'$"):
        weir.opne  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'opne' from 'weir'"):
        exec("from weir import opne", {})


def test_what_is_pickled_is_read_where_nothing_of_weir_was_imported(tmp_path: Path) -> None:
    pickled = tmp_path / "pickled"
    pickled.write_bytes(pickle.dumps([weir.Table, weir.open, weir.bucket("id", 4), weir.MergePolicy()]))
    read = "import pathlib, pickle, sys; found = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())"
    same = "import weir; assert found[0] is weir.Table and found[1] is weir.open, found"
    more = "assert found[2] == weir.bucket('id', 4) and found[3] == weir.MergePolicy(), found"
    imported_by(f"{read}; {same}; {more}", str(pickled))


THREADS = """
import random, threading, weir
names = weir.__all__ * 2
start = threading.Barrier(len(names))
found, failed = [], []

def find(name):
    start.wait()
    try:
        found.append((name, getattr(weir, name)))
    except BaseException as error:
        failed.append(error)

random.Random(7).shuffle(names)
threads = [threading.Thread(target=find, args=(name,)) for name in names]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failed, failed
assert len(found) == len(names)
assert all(value is getattr(weir, name) for name, value in found)
"""


@pytest.mark.long
def test_threads_may_ask_for_first_names_at_once() -> None:
    imported_by(THREADS)


# --- The program as a module ---------------------------------------------------------------------


def test_python_runs_the_program_as_a_module() -> None:
    def ran(*arguments: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "weir", *arguments], capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout, done.stderr

    assert ran("--version") == (0, f"weir {weir.__version__}\n", "")
    code, out, error = ran("no-such-command")
    assert (code, out) == (2, "")
    assert "'weir --help' says more" in error

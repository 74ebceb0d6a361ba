"""The conformance page: every module and every test that a row names exists, and every row says enough."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/conformance.md"
TEST = re.compile(r"`(tests/[\w/]+\.py(?:::\w+)+(?:\[[^`]+\])?)`")
LIBRARY = {
    "library.lookup",
    "library.make_table",
    "library.merge",
    "library.open_writer",
    "library.scan",
    "library.search",
    "mem_wal_writer",
    "initialize_mem_wal",
    "mem_wal_index_details",
    "mark_sstables_as_compacted",
    "LsmScanner",
    "LsmPointLookupPlanner",
    "evaluate_sharding_spec",
    "library_values",
    "library_buckets",
    "golden",
    "GOLDEN",
}
"""Names that stand for the released library at work, or for files that it has written.

Of the helpers in ``tests.conformance.library`` those that call it; the others read files.
"""
FIRST = "the spec asks"
"""How the first column is called of every table that says what the spec asks."""
MODULE = re.compile(r"`(weir(?:\.\w+)+)`")


@dataclass(frozen=True)
class Row:
    """A row of a table of the page."""

    line: int
    asks: str
    does: str
    code: str
    test: str
    seen: str
    differs: str


def rows() -> list[Row]:
    found = []
    first = ""
    for number, line in enumerate(PAGE.read_text(encoding="utf-8").splitlines(), 1):
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            first = ""
        elif not first:
            first = cells[0]
        elif first == FIRST and cells[0] != "---":
            assert len(cells) == 6, f"line {number} has {len(cells)} cells"
            found.append(Row(number, *cells))
    return found


@cache
def parsed(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"))


@cache
def parts_of(file: str) -> dict[str, ast.AST]:
    """Return the functions, classes and assignments of a test file by name, methods among them."""
    found: dict[str, ast.AST] = {}
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign):
            found.update((one.id, node) for one in node.targets if isinstance(one, ast.Name))
    return found


def is_a_test(test: str) -> bool:
    """Whether pytest finds a test of that name in its file."""
    file, *names = test.split("::")
    body = parsed(file).body
    for name in names[:-1]:
        classes = [node for node in body if isinstance(node, ast.ClassDef) and node.name == name]
        if not classes or not name.startswith("Test"):
            return False
        body = classes[0].body
    functions = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    return names[-1].startswith("test_") and names[-1] in functions


@cache
def has_the_library_at_work(test: str) -> bool:
    """Whether a test, or what it uses of its own file, calls the library's writer, readers or hashes."""
    file, _, name = test.partition("[")[0].partition("::")
    parts, open_, seen = parts_of(file), [name.rpartition("::")[2]], set()
    while open_:
        part = open_.pop()
        if part in seen or part not in parts:
            continue
        seen.add(part)
        nodes = list(ast.walk(parts[part]))
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        names |= {node.arg for node in nodes if isinstance(node, ast.arg)}
        attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
        called = {node.attr for node in attributes} | {ast.unparse(node) for node in attributes}
        if (names | called) & LIBRARY:
            return True
        open_ += names
    return False


def test_what_is_seen_with_the_library_has_a_test_that_calls_it() -> None:
    for row in rows():
        named = TEST.findall(f"{row.test} {row.differs}")
        seen = "yes" if any(map(has_the_library_at_work, named)) else "no"
        assert row.seen == seen, f"line {row.line} says {row.seen!r}, and its tests say {seen!r}"


def test_every_row_says_what_where_and_how_it_is_shown() -> None:
    for row in rows():
        assert row.asks, f"line {row.line}"
        assert row.does, f"line {row.line}"
        if not row.does.startswith("not yet"):
            assert MODULE.fullmatch(row.code.split(", ")[0]), f"line {row.line} names no module"
            assert TEST.search(row.test), f"line {row.line} names no test"


def test_every_module_that_is_named_exists() -> None:
    named = {module for row in rows() for module in MODULE.findall(row.code)}
    assert len(named) > 30
    assert [module for module in sorted(named) if importlib.util.find_spec(module) is None] == []


def test_every_test_that_is_named_is_collected(collected: frozenset[str]) -> None:
    named = set(TEST.findall(PAGE.read_text(encoding="utf-8")))
    files = sorted({test.partition("::")[0] for test in named})
    assert [file for file in files if not (ROOT / file).exists()] == []
    # What is named without parameters is seen in the file. To collect eighty of them would take long.
    with_parameters = {test for test in named if "[" in test}
    assert sorted(test for test in named - with_parameters if not is_a_test(test)) == []
    known = {test.partition("::")[0] for test in collected}
    missing = with_parameters - collected
    files = sorted({test.partition("::")[0] for test in missing} - known)
    if not files:
        assert sorted(missing) == []
        return
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert sorted(missing - set(done.stdout.splitlines())) == []


@pytest.mark.parametrize("message", ["ShardManifest", "MemWalIndexDetails", "ShardField"])
def test_every_field_of_the_messages_has_a_row(message: str) -> None:
    """By name, but for those that the page groups: Weir's own, and the parts of a flushed generation."""
    proto = (ROOT / "src/weir/format/proto/memwal.proto").read_text(encoding="utf-8")
    body = re.search(rf"^message {message} {{\n(.*?)^}}", proto, re.MULTILINE | re.DOTALL)
    assert body is not None
    fields = re.findall(r"(\w+) = \d+;", body[1])
    text = " ".join(row.asks for row in rows())
    missing = [
        name for name in fields if name not in text and name not in ("write_id", "checksum", "parameters")
    ]
    assert len(fields) > 4
    assert missing == []

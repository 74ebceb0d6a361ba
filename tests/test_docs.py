"""README and docs keep their word: every example runs, and what they say of the code is what the code says.

A page is read as a sequence of fenced blocks, told apart by the word after the fence:

===========  ========================================================================================
python       runs; the blocks of a page share one namespace and one empty working directory
output       what the python block before it prints, all of it; ``...`` stands for any text
console      lines that begin with ``$ `` run in bash (``> `` continues one); what stands below them
             is what they print. A command must succeed; where nothing stands below, anything goes
sh           does not run; ``<!-- not run: WHY -->`` stands before it
toml         is written to the file that its first line names
text, json   is no example
===========  ========================================================================================

The sections between ``<!-- generated: NAME -->`` and ``<!-- /generated -->`` are made from the code:
``python -m docs.generate`` writes them anew.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
import tomllib
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import lance
import pyarrow as pa
import pytest
from docs import generate

import weir
from tests.crashes import kill_at, run
from tests.forked_program import forked_program
from tests.storage.s3 import S3Endpoint, s3_endpoint
from weir.engine.context import default_context
from weir.format import layout, wal_entry
from weir.format.proto import first_index_pb2, memwal_pb2
from weir.format.wal_entry import wal_schema
from weir.format.wal_header import WalEntryHeader
from weir.storage.open import open_store

__all__ = ["s3_endpoint"]

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ON_SPARK = "docs/spark.md"
"""Its examples are run by tests/spark/test_docs_examples.py, in a process of their own."""
ON_S3 = "docs/guides/object-stores.md"
BUCKET = "my-bucket"
LANGUAGES = {"python", "output", "console", "sh", "text", "json", "toml"}

FENCE = re.compile(
    r"^(?P<before>[^\n]*)\n*^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
NOT_RUN = re.compile(r"<!-- not run: .+ -->")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, text, first line in the page, and the line that stands before it."""

    language: str
    text: str
    line: int
    before: str


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            match["language"],
            match["text"],
            text.count("\n", 0, match.start("text")) + 1,
            match["before"],
        )
        for match in FENCE.finditer(text)
    ]


def text_of_all_pages() -> str:
    return "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


# --- Examples ------------------------------------------------------------------------------------


def compare(expected: str, printed: str, where: str) -> None:
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    if not doctest.OutputChecker().check_output(expected, printed, options):
        pytest.fail(f"{where} prints something else\n--- shown\n{expected}\n--- printed\n{printed}")


def run_python(block: Block, expected: str, page: Path, namespace: dict[str, Any]) -> None:
    # Empty lines before the code make the lines of a traceback those of the page.
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, namespace)
    compare(expected, printed.getvalue(), f"{name_of(page)}:{block.line}")


def commands_of(block: Block) -> Iterator[tuple[str, str]]:
    """Yield every command with what is shown below it."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines(keepends=True)
        end = 1
        while end < len(lines) and lines[end].startswith("> "):
            end += 1
        yield "".join([lines[0], *(line[2:] for line in lines[1:end])]), "".join(lines[end:])


def run_console(block: Block, page: Path, programs: Path) -> None:
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100"}
    for command, expected in commands_of(block):
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {command}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            timeout=120,
            check=False,
        )
        where = f"{name_of(page)}:{block.line}: {command.strip()}"
        assert done.returncode == 0, f"{where}\n{done.stdout}"
        if expected.strip():
            compare(expected, done.stdout, where)


def put_programs(directory: Path, weir_program: list[str]) -> Path:
    """Make a directory with ``weir``, which is run in the way that is given, and this ``python``."""
    directory.mkdir()
    for name, command in {"weir": weir_program, "python": [sys.executable]}.items():
        program = directory / name
        program.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
    return directory


IMPORTED_BY_COMMANDS = (
    *("weir.table.table", "weir.cli.ingest", "weir.cli.key_text", "weir.cli.row_files", "rich.progress"),
    *("weir.cli.output.json_output", "weir.cli.output.text_output", "weir.cli.main:_program"),
    # Typer imports it with the first argument that it reads.
    "typer._adapters",
)


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with what the examples start: ``weir``, from the entry that an installation has."""
    entry = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]["weir"]
    with forked_program(entry, IMPORTED_BY_COMMANDS) as weir_program:
        yield put_programs(tmp_path_factory.mktemp("programs") / "bin", weir_program)


def use_endpoint(endpoint: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let examples on S3 reach the endpoint of the tests, as a user's environment would."""
    for option, value in endpoint.options.items():
        monkeypatch.setenv(f"AWS_{option.removeprefix('aws_').upper()}", value)
    request = urllib.request.Request(f"{endpoint.url}/{BUCKET}", method="PUT")
    with urllib.request.urlopen(request, timeout=30):
        pass


@pytest.mark.parametrize("page", [page for page in PAGES if name_of(page) != ON_SPARK], ids=name_of)
def test_examples_run(
    page: Path,
    tmp_path: Path,
    programs: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    directory = tmp_path / "page"
    directory.mkdir()
    monkeypatch.chdir(directory)
    if name_of(page) == ON_S3:
        use_endpoint(request.getfixturevalue("s3_endpoint"), monkeypatch)
    run_page(page, programs)


def run_page(page: Path, programs: Path) -> None:
    """Run the examples of a page in the directory this process is in."""
    namespace: dict[str, Any] = {"__name__": "example"}
    blocks = blocks_of(page)
    for number, block in enumerate(blocks):
        if block.language == "python":
            after = blocks[number + 1 : number + 2]
            expected = after[0].text if after and after[0].language == "output" else ""
            run_python(block, expected, page, namespace)
        elif block.language == "console":
            run_console(block, page, programs)
        elif block.language == "toml":
            Path(block.text.partition("\n")[0].removeprefix("# ")).write_text(block.text, encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_is_of_a_known_kind(page: Path) -> None:
    blocks = blocks_of(page)
    assert page.read_text(encoding="utf-8").count("\n```") == 2 * len(blocks), "a fence is not closed"
    for number, block in enumerate(blocks):
        assert block.language in LANGUAGES, f"line {block.line}: {block.language!r}"
        if block.language == "output":
            assert blocks[number - 1].language == "python", f"line {block.line}: there is no code before it"
        if block.language == "sh":
            assert NOT_RUN.fullmatch(block.before), f"line {block.line}: say why it is not run"


def test_what_is_not_run_is_little_and_exists() -> None:
    blocks = [block for page in PAGES for block in blocks_of(page) if block.language == "sh"]
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    commands = "".join(block.text for block in blocks)
    assert set(re.findall(r"^make ([a-z-]+)", commands, re.MULTILINE)) <= targets
    assert len(blocks) <= 6


# --- What the pages say of the code --------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_generated_sections_are_current(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert generate.with_sections(text) == text, "run `python -m docs.generate`"


def test_every_generated_section_is_on_a_page() -> None:
    marked = re.findall(r"<!-- generated: ([\w-]+) -->", text_of_all_pages())
    assert sorted(marked) == sorted(generate.SECTIONS)


@pytest.mark.parametrize(
    ("package", "page"),
    [(weir, "python.md"), (weir.events, "events.md"), (weir.namespaces, "namespaces.md")],
    ids=lambda one: str(getattr(one, "__name__", one)),
)
def test_every_public_class_and_function_is_in_the_reference(package: ModuleType, page: str) -> None:
    text = (ROOT / "docs/reference" / page).read_text(encoding="utf-8")
    headings = set(re.findall(r"^#+ `(?:weir\.)?(?:events\.|namespaces\.)?(\w+)`", text, re.MULTILINE))
    documented = {name for name in package.__all__ if callable(getattr(package, name))}
    assert documented - headings == set()


def cells(page: str, heading: str, column: int = 0) -> list[str]:
    """Return what stands as code in a column of the first table below a heading."""
    text = (ROOT / page).read_text(encoding="utf-8").split(f"\n{heading}\n", 1)[1]
    table = re.search(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    assert table is not None
    rows = [re.split(r"(?<!\\)\|", line)[column + 1].strip() for line in table[0].splitlines()[2:]]
    return [row.strip("`") for row in rows]


def test_every_error_has_advice() -> None:
    assert {*cells("docs/reference/errors.md", "## What to do"), "WeirError"} == set(weir.errors.__all__)


def source_files() -> list[str]:
    return [path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.py"))]


def test_every_log_event_is_listed() -> None:
    logged = {name for text in source_files() for name in re.findall(r'_log\.\w+\(\s*"([\w.]+)"', text)}
    assert set(cells("docs/reference/log-events.md", "## The events")) == logged


def test_every_failpoint_is_in_the_failure_model() -> None:
    reach = re.compile(r'^ +failpoint\.reach\("([\w.]+)"', re.MULTILINE)
    reached = {name for text in source_files() for name in reach.findall(text)}
    assert set(cells("docs/reliability.md", "## What a crash leaves")) == reached


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = {re.split(r"[<>=!~\[ ]", text)[0] for text in project["dependencies"]}
    named = cells("docs/architecture.md", "## Dependencies")
    assert {name for cell in named for name in cell.replace("`", "").split(", ")} == required


@pytest.mark.parametrize(
    ("heading", "message"),
    [
        ("## Shard manifest", "ShardManifest"),
        ("Each of `flushed_generations` has", "FlushedGeneration"),
        ("## Base table", "MemWalIndexDetails"),
        ("### Its details", "MemWal"),
    ],
)
def test_fields_of_messages_are_those_stored(heading: str, message: str) -> None:
    names, numbers = cells("docs/format.md", heading), map(int, cells("docs/format.md", heading, 1))
    known = {
        **memwal_pb2.DESCRIPTOR.message_types_by_name,
        **first_index_pb2.DESCRIPTOR.message_types_by_name,
    }
    stored = known[message].fields
    assert dict(zip(names, numbers, strict=True)) == {field.name: field.number for field in stored}


NAMED_TEST = re.compile(r"`(?P<file>tests/[\w/]+\.py)(?:::(?P<test>\w+)(?:\[(?P<case>[^\]`]+)\])?)?`")


def test_every_test_that_is_named_exists() -> None:
    missing = []

    @cache
    def text_and_tests(path: Path) -> tuple[str, set[str]]:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        nodes = ast.walk(ast.parse(text))
        return text, {node.name for node in nodes if isinstance(node, ast.FunctionDef)}

    for named in NAMED_TEST.finditer(text_of_all_pages()):
        path = ROOT / named["file"]
        text, tests = text_and_tests(path)
        there = path.exists() and named["test"] in {None, *tests} and f'"{named["case"]}"' in f'{text}"None"'
        if not there:
            missing.append(named[0])
    assert missing == []


def test_pictures_are_drawings_and_have_a_text() -> None:
    for page in PAGES:
        for text, target in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            assert len(text) > 20
            assert ElementTree.parse(page.parent / target).getroot().tag.endswith("svg")


def test_readme_has_one_place_for_benchmarks() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(re.findall(r"<!-- benchmarks -->\n.*?<!-- /benchmarks -->", text, re.DOTALL)) == 1
    assert text.count("benchmarks -->") == 2


# --- Claims of the pages that no other test shows ------------------------------------------------

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])


def entry_of(key: int, name: str) -> bytes:
    schema = wal_schema(SCHEMA)
    batch = pa.record_batch([pa.array([key]), pa.array([name]), pa.array([False])], schema=schema)
    header = WalEntryHeader(writer_epoch=1, generation=1, write_id=wal_entry.new_write_id())
    return b"".join(bytes(part) for part in wal_entry.encode(header, schema, [batch]))


def test_an_entry_at_position_0_is_read(tmp_path: Path) -> None:
    """As an implementation that counts from 0 leaves it, and only where nothing has been flushed."""
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with table.writer(flush_on_close=False) as writer:
        (shard,) = writer.upsert([{"id": 1, "name": "first"}]).positions
    open_store(table.uri, fsync=False).put(layout.wal_path(shard, 0), entry_of(0, "zeroth"))
    assert sorted(weir.open(table.uri).scan().to_table().column("name").to_pylist()) == ["first", "zeroth"]
    with weir.open(table.uri, fsync=False).writer() as writer:
        writer.upsert([{"id": 2, "name": "second"}])
    assert table.maintenance.merge().rows_upserted == 3


def test_entries_of_either_suffix_are_read(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with table.writer(flush_on_close=False) as writer:
        (shard,) = writer.upsert([{"id": 1, "name": "first"}]).positions
    for entry in (tmp_path / "t" / layout.wal_directory(shard)).iterdir():
        entry.rename(entry.with_suffix(".lance"))
    default_context().cache.clear()
    assert weir.open(table.uri).scan().to_table().column("name").to_pylist() == ["first"]
    with weir.open(table.uri, fsync=False).writer() as writer:
        writer.upsert([{"id": 2, "name": "second"}])
    assert table.maintenance.merge().rows_upserted == 2


def adopts(uri: str) -> None:
    weir.adopt(uri, primary_key="id")


def test_a_killed_adoption_can_be_made_again(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"id": [1, 2], "name": ["a", "b"]}), uri)
    kill_at("adopt.before_publish", adopts, uri)
    assert lance.dataset(uri).count_rows() == 2
    with pytest.raises(weir.errors.TableNotFoundError):
        weir.open(uri)
    assert not run(adopts, uri).was_killed
    assert weir.open(uri).scan().count() == 2

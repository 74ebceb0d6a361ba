"""README and docs keep their word: every example runs, and what they say of the code is what the code says.

A page is read as a sequence of fenced blocks, told apart by the word after the fence:

===========  ========================================================================================
python       runs; the blocks of a page share one namespace and one empty working directory
output       what the python block before it prints, all of it; ``...`` stands for any text
console      lines that begin with ``$ `` run in bash (``> `` continues one); what stands below them
             is what they print. A command must succeed; where nothing stands below, anything goes
sh           does not run; ``<!-- not run: WHY -->`` stands before it
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
import subprocess
import sys
import tomllib
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import weir
from docs import generate
from tests.storage.s3 import S3Endpoint, s3_endpoint
from weir.format import layout, wal_entry
from weir.format.proto import memwal_pb2
from weir.format.wal_entry import WalEntryHeader, wal_schema
from weir.shard.manifest_store import list_shards
from weir.storage.open import open_store

__all__ = ["s3_endpoint"]

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ON_S3 = "docs/guides/object-stores.md"
BUCKET = "my-bucket"
LANGUAGES = {"python", "output", "console", "sh", "text", "json"}

FENCE = re.compile(
    r"(?P<before>[^\n]*)\n*^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
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
        pytest.fail(f"{where} does not print what the page shows\n--- shown\n{expected}\n--- printed\n{printed}")


def run_python(block: Block, expected: Block | None, page: Path, namespace: dict[str, Any]) -> None:
    # Empty lines before the code make the lines of a traceback those of the page.
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, namespace)
    compare(expected.text if expected else "", printed.getvalue(), f"{name_of(page)}:{block.line}")


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


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A directory with ``weir``, as an installation has it, and this ``python``."""
    entry = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]["weir"]
    module, function = entry.split(":")
    directory = tmp_path / "bin"
    directory.mkdir()
    start = f"import sys; from {module} import {function} as main; sys.exit(main())"
    for name, arguments in {"weir": f"-c '{start}' ", "python": ""}.items():
        program = directory / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}"$@"\n', encoding="utf-8")
        program.chmod(0o755)
    return directory


def use_endpoint(endpoint: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let examples on S3 reach the endpoint of the tests, as a user's environment would."""
    for option, value in endpoint.options.items():
        monkeypatch.setenv(f"AWS_{option.removeprefix('aws_').upper()}", value)
    request = urllib.request.Request(f"{endpoint.url}/{BUCKET}", method="PUT")
    with urllib.request.urlopen(request, timeout=30):
        pass


@pytest.mark.parametrize("page", PAGES, ids=name_of)
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
    namespace: dict[str, Any] = {"__name__": "example"}
    blocks = blocks_of(page)
    for number, block in enumerate(blocks):
        if block.language == "python":
            follower = blocks[number + 1] if number + 1 < len(blocks) else None
            run_python(block, follower if follower and follower.language == "output" else None, page, namespace)
        elif block.language == "console":
            run_console(block, page, programs)


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
    asked = {target for block in blocks for target in re.findall(r"^make ([a-z-]+)", block.text, re.MULTILINE)}
    assert asked <= targets
    assert len(blocks) <= 6

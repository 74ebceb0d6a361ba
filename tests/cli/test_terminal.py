"""What a person sees in a terminal of 80 and of 120 characters, and what a shell completes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest
from rich.console import Console
from tests.cli.terminal import Terminal

import weir
from weir.cli.output.status_text import print_status
from weir.maintenance.status import ShardReport, TableStatus

_WIDTHS = pytest.mark.parametrize("columns", [80, pytest.param(120, marks=pytest.mark.long)])


@pytest.fixture
def table(tmp_path: Path) -> Path:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("carrier", pa.string())])
    made = weir.create(
        tmp_path / "flights", schema, primary_key="id", shard_by=weir.bucket("id", 16), fsync=False
    )
    with made.writer() as writer:
        writer.upsert(pa.table({"id": range(500), "carrier": ["UA", "AA"] * 250}))
    return tmp_path / "flights"


@_WIDTHS
def test_status(table: Path, tmp_path: Path, columns: int) -> None:
    code, said = Terminal(columns, tmp_path, "status", table).rest()
    assert code == 0, said
    lines = said.splitlines()
    head = next(line for line in lines if line.startswith("shard "))
    shards = lines[lines.index(head) + 1 :][:10]
    assert all(line.count("released") == 1 and line.rstrip().endswith(" s") for line in shards), shards
    assert max(len(line.rstrip()) for line in [head, *shards]) <= columns
    assert ("generation" in head) == (columns == 120)
    assert "and 6 more shards, none of them with problems; --shards shows them" in lines
    assert any(line.startswith("not shown: ") for line in lines) == (columns == 80)
    assert "…" not in "".join(shards)


def _shard(number: int) -> ShardReport:
    return ShardReport(
        shard_id=UUID(int=number << 96),
        values={"bucket(customer_identifier, 100)": str(number)},
        state="ACTIVE",
        epoch=12,
        wal_position=123_456,
        current_generation=99,
        merged_generation=98,
        unmerged_generations=1,
        unmerged_rows=1_234_567,
        unmerged_bytes=10,
        unflushed_entries=3,
        unflushed_rows=1_234,
        unflushed_bytes=4,
        unflushed_seconds=1.0,
        lag_seconds=float(number),
        writer="process 1 on host",
        lease="held",
        lease_expires_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


@_WIDTHS
def test_status_of_100_shards_shows_problems_first(columns: int) -> None:
    shards = [_shard(number) for number in range(100)]
    shards[7] = replace(shards[7], lease="damaged")
    shards[50] = replace(shards[50], lease="abandoned", unflushed_seconds=4000.0)
    status = TableStatus(
        *("s3://bucket/table", 3, 10, ("id",), "bucket(customer_identifier, 100)", True, ""),
        *(tuple(shards), (), ((shards[20].shard_id, shards[21].shard_id),)),
    )
    said = _printed(status, columns)
    assert len(said) < 30
    assert said[1].startswith("warning: shards 00000014, 00000015 hold rows of the same values")
    assert said[2].startswith("warning: shard 00000032 has 1,234 rows that wait for a flush for 4,000 s")
    assert said[3].startswith("warning: the lease of shard 00000007 is damaged")
    first = next(number for number, line in enumerate(said) if line.startswith("shard ")) + 1
    assert [line.split()[0] for line in said[first : first + 6]] == [
        *("00000032", "00000015", "00000014", "00000007"),  # with problems, the furthest behind first
        *("00000063", "00000062"),  # the others
    ]
    assert all(len(line) <= columns for line in said[first - 1 : first + 10])
    assert "and 90 more shards, none of them with problems; --shards shows them" in said
    everything = _printed(status, columns, all_shards=True)
    assert len([line for line in everything if line.startswith("000000")]) == 100


def _printed(status: TableStatus, columns: int, *, all_shards: bool = False) -> list[str]:
    console = Console(file=StringIO(), width=columns, highlight=False)
    print_status(console, status, all_shards=all_shards)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


@_WIDTHS
def test_the_sql_shell(table: Path, tmp_path: Path, columns: int) -> None:
    shell = Terminal(columns, tmp_path, "sql", table)
    shell.until("t> ")
    shell.type("SELECT carrier,\n")
    shell.until("... ")
    shell.type("count(*) AS n FROM t GROUP BY carrier ORDER BY carrier;\n")
    answer = shell.until("2 rows")
    assert "AA       250" in answer
    shell.until("t> ")
    # Errors do not end it, and what others write is seen.
    shell.type("SELECT nope FROM t;\n")
    assert "error: " in shell.until("t> ")
    with weir.open(table, fsync=False).writer() as writer:
        writer.upsert([{"id": 1000, "carrier": "DL"}])
    shell.type("select ';' AS s, carrier from t where id = 1000;\n")
    assert "DL" in shell.until("1 row")
    shell.until("t> ")
    shell.type("sel\t carr\t FROM t WHERE id = 3;\n")
    assert "AA" in shell.until("1 row")
    shell.until("t> ")
    shell.type(".schema\n")
    assert "carrier  string" in shell.until("t> ")
    shell.type("\x04")
    code, _ = shell.rest()
    assert code == 0
    # The next one knows the lines of the last.
    again = Terminal(columns, tmp_path, "sql", table)
    again.until("t> ")
    again.type("\x10\x10\n")
    assert "AA" in again.until("1 row")
    again.until("t> ")
    again.type("exit\n")
    assert again.rest()[0] == 0


@_WIDTHS
def test_bad_rows_and_progress(table: Path, tmp_path: Path, columns: int) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("id,carrier\n" + "".join(f"{row},UA\n" for row in range(300)) + "late,UA\n" * 12)
    code, said = Terminal(
        columns, tmp_path, "ingest", table, rows, "--on-bad-row", "skip", "--batch-rows", "50", "--no-fsync"
    ).rest()
    assert code == 0, said
    assert "ingest" in said
    assert "12 bad rows left out" in said
    lines = said[said.index("12 bad rows") :].splitlines()
    # A path stands on a line of its own, whole, however long it is.
    assert f"  {rows}" in lines
    assert all(len(line) <= columns for line in lines if line != f"  {rows}")
    assert len([line for line in lines if line.startswith("    row 3")]) == 10


def test_statements_from_standard_input(table: Path) -> None:
    command = [sys.executable, "-m", "weir.cli.main", "sql", str(table), "--json"]
    statements = "SELECT count(*) AS n FROM t; -- a comment; with a semicolon\nSELECT 2 AS n FROM t LIMIT 1\n"
    done = subprocess.run(command, input=statements, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, '{"n":500}\n{"n":2}\n'), done.stderr
    failed = subprocess.run(command, input="SELECT nope FROM t; SELECT 1", capture_output=True, text=True)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.startswith("error: ")


def _program(directory: Path) -> dict[str, str]:
    """Make ``weir`` a program of its own, and return the environment that has it."""
    program = directory / "bin" / "weir"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m weir.cli.main "$@"\n')
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(directory)}


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["weir", "in"], {"ingest", "index", "inspect"}),
        (["weir", "index", "c"], {"create", "catch-up"}),
        (["weir", "ingest", "--on-"], {"--on-bad-row"}),
        (["weir", "ingest", "--on-bad-row", "q"], {"quarantine"}),
    ],
)
def test_bash_completes(tmp_path: Path, words: list[str], wanted: set[str]) -> None:
    script = (
        'eval "$(weir completion bash)"\n'
        f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}\n"
        "_weir_completion weir\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n"
    )
    done = subprocess.run(
        ["bash", "-c", script], env=_program(tmp_path), capture_output=True, text=True, check=False
    )
    assert set(done.stdout.split()) == wanted, done.stderr


def test_zsh_is_answered(tmp_path: Path) -> None:
    environment = _program(tmp_path)
    script = subprocess.run(
        ["weir", "completion", "zsh"], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert script.startswith("#compdef weir")
    zsh = shutil.which("zsh")
    if zsh is not None:
        assert subprocess.run([zsh, "-n"], input=script, text=True, check=False).returncode == 0
    asked = {**environment, "_TYPER_COMPLETE_ARGS": "weir inges", "_WEIR_COMPLETE": "complete_zsh"}
    said = subprocess.run(["weir"], env=asked, capture_output=True, text=True, check=False).stdout
    assert '"ingest":"Upsert or delete the rows of files' in said

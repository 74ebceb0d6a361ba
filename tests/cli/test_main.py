"""The program as a process: its output, its exit codes, and how it takes being interrupted."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

import weir
from weir.cli.main import _program, main

_PROGRAM = (sys.executable, "-m", "weir.cli.main")


def _run(*arguments: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [*_PROGRAM, *(str(argument) for argument in arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)


def _start(*arguments: object, stdin: int | None = None) -> subprocess.Popen[bytes]:
    command: Sequence[str] = [*_PROGRAM, *(str(argument) for argument in arguments)]
    return subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    weir.create(tmp_path / "table", schema, primary_key="id")
    return tmp_path / "table"


def test_standard_output_holds_the_result_and_nothing_else(table: Path) -> None:
    ingested = _run("ingest", table, "-", "--format", "jsonl", "--merge", "--json", stdin='{"id": 1}\n')
    assert (ingested.returncode, ingested.stderr) == (0, "")
    assert json.loads(ingested.stdout)["merge"]["rows_upserted"] == 1
    scanned = _run("scan", table, "--json")
    assert (scanned.returncode, scanned.stderr) == (0, "")
    assert scanned.stdout == '{"id":1,"text":null}\n'


def test_bad_input_is_one_line_and_exit_code_2(table: Path) -> None:
    refused = _run("ingest", table, "-", "--format", "jsonl", "--json", stdin='{"id": "one"}\n')
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert refused.stderr == (
        "error: a value does not fit column 'id' of type int64: \"one\" "
        "[standard input, row 1, column 'id']\n"
    )


def test_a_reader_that_stops_reading_is_no_error(table: Path) -> None:
    # More than a pipe holds, so that the program is still writing when its reader goes away.
    rows = pa.table({"id": range(40_000), "text": ["x" * 50] * 40_000})
    with weir.open(table, fsync=False).writer() as writer:
        writer.upsert(rows)
    with _start("scan", table, "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait() == 141
        assert process.stderr.read() == b""


def test_an_interrupt_is_quiet_and_keeps_what_was_durable(table: Path) -> None:
    with _start("ingest", table, "-", "--format", "jsonl", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b'{"id": 1}\n')
        process.stdin.flush()
        while weir.open(table).scan().count() < 1:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert process.stderr.read() == b""
    assert weir.open(table).scan().to_table().to_pylist() == [{"id": 1, "text": None}]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
@pytest.mark.parametrize("command", [["status", "--json"], ["changes", "--consumer", "full", "--json"]])
def test_output_that_cannot_be_written_is_one_line(table: Path, command: list[str]) -> None:
    with weir.open(table, fsync=False).writer() as writer:
        writer.upsert([{"id": 1, "text": "x"}])
    name, *options = command
    with open("/dev/full", "w") as full:
        arguments = [*_PROGRAM, name, str(table), *options]
        done = subprocess.run(arguments, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: the output cannot be written: No space left on device\n"
    if "--consumer" in command:
        # What could not be printed is not done.
        assert '"id":1' in _run(name, table, *options).stdout


def test_only_the_command_that_is_asked_for_is_read() -> None:
    everything = sorted(_program().commands)
    assert len(everything) > 25
    for name in everything:
        assert list(_program(name).commands) == [name]
    assert sorted(_program("no-such-command").commands) == sorted(_program("--help").commands) == everything


def test_a_mistyped_command_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["statu"]) == 2
    assert capsys.readouterr().err == (
        "error: No such command 'statu'. Did you mean 'status'? 'weir --help' says more\n"
    )


def test_a_program_without_standard_output_does_its_work(table: Path) -> None:
    with weir.open(table, fsync=False).writer() as writer:
        writer.upsert([{"id": 1, "text": "x"}])
    command = shlex.join([*_PROGRAM, "merge", str(table)])
    done = subprocess.run(["sh", "-c", f"exec {command} >&-"], stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert weir.open(table).status().base_rows == 1

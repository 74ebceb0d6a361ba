"""Quotes that are never closed, against a reading of the file character by character."""

from __future__ import annotations

import io
import json
from pathlib import Path

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given
from tests.cli.conftest import Run

import weir
from weir.cli.input import csv_quotes
from weir.cli.input.csv_quotes import ClosedQuotes
from weir.cli.input.prefixed import PrefixedStream


class Chunks(io.BytesIO):
    """A stream that has a few bytes at a time."""

    def __init__(self, data: bytes, size: int) -> None:
        super().__init__(data)
        self._size = size

    def read1(self, size: int | None = -1, /) -> bytes:
        return super().read1(self._size)


def watched(data: bytes, chunk: int, size: int) -> tuple[bytes, list[int]]:
    lines = []

    def replaced(line: int, row: bytes) -> bytes:
        lines.append(line)
        return b"<" + row + b">\n"

    stream = ClosedQuotes(PrefixedStream(b"", Chunks(data, chunk)), ",", replaced)
    found = b""
    while part := stream.read1(size):
        assert len(part) <= size
        found += part
    return found, lines


def as_read(text: str, line: int = 1) -> tuple[str, list[int]]:
    """What :class:`ClosedQuotes` gives, and the lines of open quotes: one character after the other."""
    row, opened = 0, -1
    at_start, at = True, 0
    while at < len(text):
        if opened >= 0:
            if text[at] == '"':
                if text[at : at + 2] == '""':
                    at += 1
                else:
                    opened = -1
            at_start = False
        elif text[at] == '"' and at_start:
            opened = at
        else:
            at_start = text[at] in ",\n"
            row = at + 1 if text[at] == "\n" else row
        at += 1
    if opened < 0:
        return text, []
    end = text.find("\n", opened) + 1 or len(text)
    rest, lines = as_read(text[end:], line + text.count("\n", 0, end))
    bad = line + text.count("\n", 0, opened)
    return f"{text[:row]}<{text[row:end].removesuffix(chr(10))}>\n{rest}", [bad, *lines]


@given(st.text(st.sampled_from('ab,"\n'), max_size=40), st.integers(1, 7), st.integers(1, 50))
def test_rows_whose_quotes_close_are_passed_on_and_others_told(text: str, chunk: int, size: int) -> None:
    expected, lines = as_read(text)
    assert watched(text.encode(), chunk, size) == (expected.encode(), lines)


def test_a_file_is_not_held_in_memory_for_a_quote(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_quotes, "LONGEST_ROW", 1000)
    held = []
    stream = ClosedQuotes(
        PrefixedStream(b"", Chunks(b'1,"open\n' + b"2,x\n" * 10_000 + b'3,"closed"\n', 500)),
        ",",
        lambda line, row: b"",
    )
    found = b""
    while part := stream.read1(100):
        found += part
        held.append(len(stream._held))
    assert found == b"2,x\n" * 10_000 + b'3,"closed"\n'
    assert max(held) < 2000


def test_rows_after_an_open_quote_are_ingested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weir_program: Run
) -> None:
    monkeypatch.chdir(tmp_path)
    weir.create("t", pa.schema([("id", pa.int64()), ("name", pa.string())]), primary_key="id", fsync=False)
    Path("rows.csv").write_text('id,name\n1,"a\nb"\n2,5" disk\n3,"open\n4,x\n5,y\n')
    failed = weir_program("ingest", "t", "rows.csv")
    assert failed.code == 2
    assert "rows.csv, line 5" in failed.err
    Path("rows.csv").write_text(Path("rows.csv").read_text() + "6,too,many\n7,z")
    bad = ["--on-bad-row", "quarantine", "--quarantine", "bad.jsonl"]
    assert weir_program("ingest", "t", "rows.csv", *bad).code == 0
    assert sorted(row["id"] for row in weir.open("t").scan().to_pylist()) == [1, 2, 4, 5, 7]
    told = [json.loads(line) for line in Path("bad.jsonl").read_text().splitlines()]
    assert [(one["row"], one["record"]) for one in told] == [(3, '3,"open'), (6, "6,too,many")]
    assert "in line 5" in told[0]["reason"]

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from weir.cli.input.files import STANDARD_INPUT, RowFile, find_files, open_rows
from weir.cli.input.formats import FileFormat
from weir.cli.input.rows import ReadRequest
from weir.cli.input.schema import read_schema
from weir.cli.json_text import json_lines
from weir.errors import InputError

_SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("delay", pa.float64())])
_ROWS = pa.table(
    {
        "id": range(2_500),
        "name": [None if n % 7 == 0 else f"n{n}" for n in range(2_500)],
        "delay": [0.5] * 2_500,
    },
    _SCHEMA,
)


def _parquet(rows: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(rows, out, row_group_size=700)
    return out.getvalue()


def _csv(rows: pa.Table) -> bytes:
    out = io.BytesIO()
    pa_csv.write_csv(rows, out)
    return out.getvalue()


def _jsonl(rows: pa.Table) -> bytes:
    lines = [line for batch in rows.to_batches() for line in json_lines(batch)]
    return "\n".join(lines).encode()


def _arrow_file(rows: pa.Table) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_file(out, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=700)
    return out.getvalue()


def _arrow_stream(rows: pa.Table) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_stream(out, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=700)
    return out.getvalue()


def _zstd(data: bytes) -> bytes:
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as stream:
        stream.write(data)
    return bytes(out.getvalue())


_FORMATS: dict[str, Callable[[pa.Table], bytes]] = {
    "rows.parquet": _parquet,
    "rows.csv": _csv,
    "rows.jsonl": _jsonl,
    "rows.arrow": _arrow_file,
    "rows.arrows": _arrow_stream,
}
_COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": _zstd,
}


def _read(file: RowFile, file_format: FileFormat | None = None, **options: object) -> pa.Table:
    request = ReadRequest(_SCHEMA, batch_rows=400, **options)  # type: ignore[arg-type]
    tables = []
    next_row = 1
    with open_rows(file, file_format, request) as stream:
        assert stream.schema.names == _SCHEMA.names
        for part in stream.batches:
            assert part.first_row == next_row
            assert 0 < part.rows.num_rows <= 400
            assert 0.0 <= part.fraction <= 1.0
            next_row += part.rows.num_rows
            tables.append(part.rows)
    return pa.concat_tables(tables)


def _only(path: Path | str) -> RowFile:
    (file,) = find_files([str(path)])
    return file


@pytest.mark.parametrize("name", _FORMATS)
@pytest.mark.parametrize("compression", _COMPRESSIONS)
def test_every_format_is_read_however_it_is_compressed(tmp_path: Path, name: str, compression: str) -> None:
    path = tmp_path / (name + compression)
    path.write_bytes(_COMPRESSIONS[compression](_FORMATS[name](_ROWS)))
    assert _read(_only(path)).equals(_ROWS)


@pytest.mark.parametrize("name", ["rows.parquet", "rows.arrow", "rows.arrows"])
def test_binary_formats_are_known_by_their_first_bytes(tmp_path: Path, name: str) -> None:
    path = tmp_path / "rows"
    path.write_bytes(_FORMATS[name](_ROWS))
    assert _read(_only(path)).equals(_ROWS)


@pytest.mark.parametrize("name", _FORMATS)
def test_standard_input_is_read_though_it_cannot_seek(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def seek(self, *_: object) -> int:
            raise io.UnsupportedOperation("seek")

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Pipe(_FORMATS[name](_ROWS))))
    (file,) = find_files([STANDARD_INPUT])
    assert not file.can_be_read_twice
    by_name = {"csv": FileFormat.CSV, "jsonl": FileFormat.JSONL}.get(name.split(".")[-1])
    assert _read(file, by_name).equals(_ROWS)


def test_a_zip_file_stands_for_the_files_in_it(tmp_path: Path) -> None:
    path = tmp_path / "rows.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.csv", _csv(_ROWS.slice(0, 1_000)))
        archive.writestr("__MACOSX/._a.csv", b"rubbish")
        archive.writestr("deep/b.parquet", _parquet(_ROWS.slice(1_000)))
    files = find_files([str(path)])
    assert [file.member for file in files] == ["a.csv", "deep/b.parquet"]
    assert pa.concat_tables(map(_read, files)).equals(_ROWS)


def test_directories_and_patterns_stand_for_their_files_in_order(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("b.csv", "a.jsonl", "deep/c.csv.gz", "notes.txt"):
        (tmp_path / name).touch()
    assert [Path(file.path).name for file in find_files([str(tmp_path)])] == ["a.jsonl", "b.csv", "c.csv.gz"]
    assert [Path(file.path).name for file in find_files([str(tmp_path / "*.csv")])] == ["b.csv"]
    both = find_files([str(tmp_path / "b.csv"), str(tmp_path / "a.jsonl")])
    assert [Path(file.path).name for file in both] == ["b.csv", "a.jsonl"]


def test_tsv_is_parted_at_tabs(tmp_path: Path) -> None:
    path = tmp_path / "rows.tsv"
    path.write_text("id\tname\tdelay\n1\ta,b\t0.5\n")
    assert _read(_only(path)).to_pylist() == [{"id": 1, "name": "a,b", "delay": 0.5}]


def test_no_more_than_what_is_wanted_is_read(tmp_path: Path) -> None:
    wide = _ROWS.append_column("more", pa.array([[1]] * 2_500))
    for name in ("rows.parquet", "rows.jsonl", "rows.arrow", "rows.arrows"):
        path = tmp_path / name
        path.write_bytes(_FORMATS[name](wide))
        assert _read(_only(path), ignore_others=True).equals(_ROWS)
    path = tmp_path / "rows.csv"
    path.write_bytes(_csv(_ROWS.append_column("more", pa.array(["x,y"] * 2_500))))
    assert _read(_only(path), ignore_others=True).equals(_ROWS)


@pytest.mark.parametrize("compression", [".gz", ".bz2", ".xz", ".zst"])
@pytest.mark.parametrize("name", ["rows.csv", "rows.arrows", "rows.parquet"])
def test_a_file_that_was_cut_off_is_an_error_with_its_name(
    tmp_path: Path, name: str, compression: str
) -> None:
    path = tmp_path / (name + compression)
    whole = _COMPRESSIONS[compression](_FORMATS[name](_ROWS))
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError) as caught:
        _read(_only(path))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["rows.parquet", "rows.arrow", "rows.arrows", "rows.zip"])
def test_a_file_of_rubbish_is_an_error_with_its_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"PK\x03\x04 and this is rubbish" if name == "rows.zip" else b"this is rubbish")
    with pytest.raises(InputError) as caught:
        _read(_only(path))
    assert str(path) in str(caught.value)


def test_what_cannot_be_found_is_an_error_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no rows")
    for path, said in (
        (tmp_path / "no.csv", "no such file"),
        (tmp_path / "*.csv", "no file matches"),
        (tmp_path, "no file of a known format"),
    ):
        with pytest.raises(InputError, match=said) as caught:
            find_files([str(path)])
        assert str(path) in str(caught.value)
    with pytest.raises(InputError, match="format of the file cannot be determined"):
        _read(_only(tmp_path / "notes.txt"))
    with pytest.raises(InputError, match="only once"):
        find_files(["-", "-"])


@pytest.mark.parametrize("name", _FORMATS)
def test_the_columns_of_a_file_make_a_schema(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(_FORMATS[name](_ROWS))
    assert read_schema(str(path)).equals(_SCHEMA)


def test_inferred_instants_are_fine_and_unknown_columns_are_text(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("at,none,n\n2013-01-01 10:00:00,,1\n")
    wanted = pa.schema([("at", pa.timestamp("us")), ("none", pa.string()), ("n", pa.int64())])
    assert read_schema(str(path)).equals(wanted)
    path = tmp_path / "rows.jsonl"
    path.write_text('{"none": null, "more": {"at": "2013-01-01 10:00:00"}, "all": [null]}\n')
    wanted = pa.schema(
        [
            ("none", pa.string()),
            ("more", pa.struct([("at", pa.timestamp("us"))])),
            ("all", pa.list_(pa.string())),
        ]
    )
    assert read_schema(str(path)).equals(wanted)


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl"])
def test_an_empty_file_has_no_columns(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(InputError, match="empty"):
        read_schema(str(tmp_path / name))

"""Finding the files a user names, detecting their formats, and opening them."""

from __future__ import annotations

import bz2
import glob
import gzip
import lzma
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

import pyarrow as pa

from weir.cli.input.columnar import ARROW_FILE_MAGIC, open_arrow, open_parquet
from weir.cli.input.csv_rows import open_csv
from weir.cli.input.formats import FileFormat
from weir.cli.input.json_rows import open_json_lines
from weir.cli.input.prefixed import PrefixedStream, read_fully
from weir.cli.input.rows import FileRows, ReadRequest, RowStream, reading
from weir.errors import InputError

__all__ = ["STANDARD_INPUT", "FileBytes", "RowFile", "find_files", "open_bytes", "open_rows"]

STANDARD_INPUT = "-"
_STANDARD_INPUT_NAME = "standard input"


_SUFFIXES = {
    ".parquet": FileFormat.PARQUET,
    ".pq": FileFormat.PARQUET,
    ".csv": FileFormat.CSV,
    ".tsv": FileFormat.CSV,
    ".jsonl": FileFormat.JSONL,
    ".ndjson": FileFormat.JSONL,
    ".json": FileFormat.JSONL,
    ".arrow": FileFormat.ARROW,
    ".arrows": FileFormat.ARROW,
    ".ipc": FileFormat.ARROW,
    ".feather": FileFormat.ARROW,
}
_COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst")
_PARQUET_MAGIC = b"PAR1"
_ARROW_STREAM_MAGIC = b"\xff\xff\xff\xff"
_ZIP_MAGIC = b"PK\x03\x04"
_DECOMPRESSORS: dict[bytes, Callable[[BinaryIO], object]] = {
    b"\x1f\x8b": lambda stream: gzip.GzipFile(fileobj=stream),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
    b"\x28\xb5\x2f\xfd": lambda stream: pa.CompressedInputStream(stream, "zstd"),
}
_LONGEST_MAGIC = 6


@dataclass(frozen=True, slots=True)
class RowFile:
    """A file of rows: on disk, inside a zip file, or standard input.

    Parameters
    ----------
    path : str
        Where it is; :data:`STANDARD_INPUT` for standard input.
    member : str, optional
        Which file inside the zip file.
    size : int
        Size on disk in bytes, 0 for standard input. The members of a zip file share its size.
    """

    path: str
    member: str | None = None
    size: int = 0

    @property
    def name(self) -> str:
        """What errors call the file."""
        if self.path == STANDARD_INPUT:
            return _STANDARD_INPUT_NAME
        return self.path if self.member is None else f"{self.path}, {self.member}"

    @property
    def can_be_read_twice(self) -> bool:
        """Whether it can be opened again."""
        return self.path != STANDARD_INPUT


@dataclass(frozen=True, slots=True)
class FileBytes:
    """A file that has been opened.

    Parameters
    ----------
    stream : file-like
        Its bytes without compression; can seek if the format needs it.
    raw : file-like
        Its bytes on disk.
    file_format : FileFormat
        Its format.
    is_arrow_file : bool
        Whether an Arrow file is in the file format rather than the stream format.
    delimiter : str or None
        Between the values of CSV, if the name of the file says so.
    """

    stream: BinaryIO
    raw: BinaryIO
    file_format: FileFormat
    is_arrow_file: bool
    delimiter: str | None


def find_files(paths: Sequence[str]) -> list[RowFile]:
    """Return the files that the paths stand for, in their order.

    Parameters
    ----------
    paths : sequence of str
        Files; directories, for all files in them that have a suffix of a known format; patterns with
        ``*``, ``?`` and ``**``; ``-`` for standard input. A zip file stands for the files in it.

    Raises
    ------
    InputError
        If a path stands for no file, or standard input is named twice.
    """
    if paths.count(STANDARD_INPUT) > 1:
        raise InputError("standard input can be read only once", where=_STANDARD_INPUT_NAME)
    found: list[RowFile] = []
    for path in paths:
        if path == STANDARD_INPUT:
            found.append(RowFile(path))
        else:
            for one in _expanded(path):
                found += _members(one)
    return found


@contextmanager
def open_bytes(file: RowFile, file_format: FileFormat | None) -> Iterator[FileBytes]:
    """Open a file, without its compression.

    Parameters
    ----------
    file : RowFile
        Which.
    file_format : FileFormat, optional
        Its format. Default: told from its suffix, or else from its first bytes.

    Raises
    ------
    InputError
        If the file is missing, broken, or of no known format.
    """
    with ExitStack() as stack:
        with reading(file.name):
            opened = _open_in(stack, file, file_format)
        yield opened


@contextmanager
def open_rows(file: RowFile, file_format: FileFormat | None, request: ReadRequest) -> Iterator[RowStream]:
    """Open a file of rows.

    Parameters
    ----------
    file, file_format
        As for :func:`open_bytes`.
    request : ReadRequest
        What is wanted from it.

    Raises
    ------
    InputError
        If the file is missing, broken, or of no known format.
    """
    with open_bytes(file, file_format) as opened:
        stream, name = opened.stream, file.name
        if opened.file_format is FileFormat.PARQUET:
            yield open_parquet(stream, name, request)
            return
        if opened.file_format is FileFormat.ARROW:
            rows = open_arrow(stream, name, request, is_file=opened.is_arrow_file)
            if opened.is_arrow_file:
                yield rows
                return
        elif opened.file_format is FileFormat.JSONL:
            rows = open_json_lines(stream, name, request)
        else:
            if opened.delimiter is not None:
                request = replace(request, delimiter=opened.delimiter)
            rows = open_csv(stream, name, request)
        yield replace(rows, batches=_with_fraction(rows.batches, opened.raw, file.size))


def _open_in(stack: ExitStack, file: RowFile, file_format: FileFormat | None) -> FileBytes:
    raw, stream = _opened(file, stack)
    can_seek = stream is raw and raw.seekable()
    start = read_fully(stream, _LONGEST_MAGIC)
    known = file_format or _by_suffix(file) or _by_magic(start)
    if known is None:
        raise InputError(
            "the format of the file cannot be determined from its name or its first bytes",
            where=file.name,
            hint=f"Give --format {'|'.join(FileFormat)}",
        )
    if can_seek:
        stream.seek(0)
    else:
        stream = cast(BinaryIO, PrefixedStream(start, stream))
    is_arrow_file = known is FileFormat.ARROW and start == ARROW_FILE_MAGIC
    if (known is FileFormat.PARQUET or is_arrow_file) and not can_seek:
        # These are read from the end: what cannot seek is copied to a temporary file first.
        stream = _copied(stream, stack)
    delimiter = "\t" if _suffixes(file)[-1:] == [".tsv"] else None
    return FileBytes(stream, raw, known, is_arrow_file, delimiter)


def _with_fraction(batches: Iterator[FileRows], raw: BinaryIO, size: int) -> Iterator[FileRows]:
    for rows in batches:
        yield replace(rows, fraction=min(raw.tell() / size, 1.0)) if size else rows


def _expanded(path: str) -> list[Path]:
    one = Path(path)
    if one.is_dir():
        inside = [
            file for file in sorted(one.rglob("*")) if file.is_file() and _by_suffix(RowFile(str(file)))
        ]
        if not inside:
            raise InputError(
                "there is no file of a known format in this directory",
                where=path,
                hint=f"Known are {', '.join(_SUFFIXES)}",
            )
        return inside
    if not one.exists() and glob.has_magic(path):
        found = [Path(file) for file in sorted(glob.glob(path, recursive=True))]
        if not found:
            raise InputError("no file matches this pattern", where=path)
        return [file for file in found if file.is_file()]
    return [one]


def _members(path: Path) -> list[RowFile]:
    with reading(str(path)):
        size = path.stat().st_size
        with path.open("rb") as file:
            if file.read(len(_ZIP_MAGIC)) != _ZIP_MAGIC:
                return [RowFile(str(path), size=size)]
            try:
                archive = zipfile.ZipFile(file)
            except zipfile.BadZipFile as error:
                raise InputError(f"the zip file cannot be read: {error}", where=str(path)) from error
            with archive:
                names = [one.filename for one in archive.infolist() if not one.is_dir()]
    # macOS puts files of its own beside the real ones.
    names = [one for one in names if not one.startswith("__MACOSX/")]
    if not names:
        raise InputError("there is no file in this zip file", where=str(path))
    return [RowFile(str(path), member, size // len(names)) for member in names]


# The types of streams in the standard library, and our own, do not say that they are a BinaryIO.
def _opened(file: RowFile, stack: ExitStack) -> tuple[BinaryIO, BinaryIO]:
    """Return the file on disk, and its bytes without compression."""
    if file.path == STANDARD_INPUT:
        raw: BinaryIO = sys.stdin.buffer
    else:
        raw = stack.enter_context(open(file.path, "rb"))  # noqa: SIM115
    if file.member is not None:
        archive = stack.enter_context(zipfile.ZipFile(raw))
        return raw, cast(BinaryIO, stack.enter_context(archive.open(file.member)))
    start = read_fully(raw, _LONGEST_MAGIC)
    whole = cast(BinaryIO, PrefixedStream(start, raw))
    for magic, decompress in _DECOMPRESSORS.items():
        if start.startswith(magic):
            return raw, cast(BinaryIO, decompress(whole))
    if raw.seekable():
        raw.seek(0)
        return raw, raw
    return raw, whole


def _copied(stream: BinaryIO, stack: ExitStack) -> BinaryIO:
    copy = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    shutil.copyfileobj(stream, copy)
    copy.seek(0)
    return copy


def _suffixes(file: RowFile) -> list[str]:
    """Return the suffixes of the file without compression."""
    suffixes = [one.lower() for one in PurePosixPath(file.member or file.path).suffixes]
    while suffixes and suffixes[-1] in _COMPRESSED_SUFFIXES:
        suffixes.pop()
    return suffixes


def _by_suffix(file: RowFile) -> FileFormat | None:
    suffixes = _suffixes(file)
    return _SUFFIXES.get(suffixes[-1]) if suffixes else None


def _by_magic(start: bytes) -> FileFormat | None:
    if start.startswith(_PARQUET_MAGIC):
        return FileFormat.PARQUET
    if start == ARROW_FILE_MAGIC or start.startswith(_ARROW_STREAM_MAGIC):
        return FileFormat.ARROW
    return None

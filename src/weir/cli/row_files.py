"""Writing rows to a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from weir.cli.input.formats import FileFormat
from weir.cli.json_text import json_column, json_lines
from weir.errors import OptionError, StorageError, WeirError

__all__ = ["output_format", "write_rows"]

_SUFFIXES = {
    ".parquet": FileFormat.PARQUET,
    ".csv": FileFormat.CSV,
    ".arrow": FileFormat.ARROW,
    ".jsonl": FileFormat.JSONL,
}


class _RowWriter(Protocol):
    def write_batch(self, batch: pa.RecordBatch) -> None: ...
    def close(self) -> None: ...


def output_format(path: Path) -> FileFormat:
    """Return the format that the name of a file asks for.

    Raises
    ------
    OptionError
        If its suffix is not known.

    Examples
    --------
    >>> output_format(Path("rows.csv")).value
    'csv'
    """
    try:
        return _SUFFIXES[path.suffix.lower()]
    except KeyError:
        raise OptionError(
            f"the name {path.name!r} does not say which format to write",
            where="output",
            hint=f"Let it end in {', '.join(_SUFFIXES)}",
        ) from None


def write_rows(
    batches: Iterator[pa.RecordBatch],
    schema: pa.Schema,
    path: Path,
    *,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> int:
    """Write rows to a file, which appears when all of them are in it.

    Parameters
    ----------
    batches : iterator of pyarrow.RecordBatch
        The rows.
    schema : pyarrow.Schema
        Their columns.
    path : Path
        The file; its suffix says the format. One that exists is replaced.
    on_rows : callable, optional
        Told the rows written so far.

    Returns
    -------
    int
        Rows written.

    Raises
    ------
    OptionError
        If the suffix is not known.
    StorageError
        If the file cannot be written.
    """
    make = _WRITERS[output_format(path)]
    rows = 0
    with _published(path) as stream:
        writer = make(stream, schema)
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
            on_rows(rows)
        writer.close()
    return rows


@contextmanager
def _published(path: Path) -> Iterator[BinaryIO]:
    """Give a stream to a hidden file that takes the name of ``path`` if all goes well."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        with unfinished.open("wb") as stream:
            yield stream
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        if isinstance(error, WeirError):
            raise
        raise StorageError(
            f"the file cannot be written: {error.strerror or error}", where=str(path)
        ) from error
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


class _CsvWriter:
    """CSV as :mod:`weir.cli.input.csv_rows` reads it."""

    def __init__(self, stream: BinaryIO, schema: pa.Schema) -> None:
        kinds = [_written_type(field.type) for field in schema]
        self._plain = [_is_plain(kind) for kind in kinds]
        fields = [
            pa.field(field.name, kind if plain else pa.large_string())
            for field, kind, plain in zip(schema, kinds, self._plain, strict=True)
        ]
        self._schema = pa.schema(fields)
        self._writer = pa_csv.CSVWriter(stream, self._schema)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        columns = [
            _written(column) if plain else _as_text(column)
            for column, plain in zip(batch.columns, self._plain, strict=True)
        ]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def close(self) -> None:
        self._writer.close()


class _ColumnarWriter:
    """Parquet and Arrow files, without dictionaries: rows come with many of them for a column.

    An Arrow file has room for one, and where a list has them, Arrow does not read them back from Parquet.
    """

    def __init__(
        self, make: Callable[[BinaryIO, pa.Schema], _RowWriter], stream: BinaryIO, schema: pa.Schema
    ):
        fields = [field.with_type(_without_dictionaries(field.type)) for field in schema]
        self._schema = pa.schema(fields, schema.metadata)
        self._writer = make(stream, self._schema)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch.cast(self._schema))

    def close(self) -> None:
        self._writer.close()


class _JsonLinesWriter:
    def __init__(self, stream: BinaryIO, schema: pa.Schema) -> None:
        self._stream = stream

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._stream.write("".join(f"{line}\n" for line in json_lines(batch)).encode())

    def close(self) -> None:
        pass


_WRITERS: dict[FileFormat, Callable[[BinaryIO, pa.Schema], _RowWriter]] = {
    FileFormat.PARQUET: partial(_ColumnarWriter, pq.ParquetWriter),
    FileFormat.CSV: _CsvWriter,
    FileFormat.ARROW: partial(_ColumnarWriter, pa.ipc.new_file),
    FileFormat.JSONL: _JsonLinesWriter,
}


def _is_plain(kind: pa.DataType) -> bool:
    """Whether the CSV writer of Arrow writes a type as the CSV reader reads it."""
    types = pa.types
    return not (
        types.is_nested(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_decimal(kind)
        or types.is_duration(kind)
        or types.is_float16(kind)
        or isinstance(kind, pa.BaseExtensionType)
    )


def _written_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values that CSV has of a column."""
    if pa.types.is_dictionary(kind):
        return _written_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType) and not isinstance(kind, pa.UuidType):
        return _written_type(kind.storage_type)
    return kind


def _written(column: pa.Array) -> pa.Array:
    kind = _written_type(column.type)
    while column.type != kind:
        column = column.storage if isinstance(column, pa.ExtensionArray) else column.dictionary_decode()
    return column


def _without_dictionaries(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return kind.value_type
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_dictionaries(field.type)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        make = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return make(kind.value_field.with_type(_without_dictionaries(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, kind.item_field.with_type(_without_dictionaries(kind.item_type)))
    return kind


def _as_text(column: pa.Array) -> pa.Array:
    column = _written(column)
    text = json_column(column)
    if not pa.types.is_nested(column.type):
        # A text by itself needs no quotation marks of JSON: CSV has its own.
        text = pa.compute.utf8_trim(text, '"')
    return pa.compute.if_else(column.is_valid(), text, pa.scalar(None, pa.large_string()))

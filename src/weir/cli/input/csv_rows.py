"""Reading CSV with the types of a table.

Dates, times and timestamps are ISO 8601. Binary values are Base64; vectors, lists, structs and maps are
JSON text (see :mod:`weir.cli.json_text`). A value that is empty and not quoted is null.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.csv as pa_csv

from weir.cli.input.csv_good_rows import good_csv_rows
from weir.cli.input.csv_quotes import OPEN_QUOTE, ClosedQuotes
from weir.cli.input.csv_values import convert_options, converted, explained, read_type
from weir.cli.input.prefixed import PrefixedStream, read_fully
from weir.cli.input.rows import FileRows, ReadRequest, RowStream, reading
from weir.errors import InputError

__all__ = ["open_csv"]

_BLOCK_BYTES = 1 << 20


def open_csv(stream: BinaryIO, name: str, request: ReadRequest) -> RowStream:
    """Open CSV with a header.

    Parameters
    ----------
    stream : file-like
        Bytes in UTF-8.
    name : str
        What errors call the file.
    request : ReadRequest
        What is wanted. Columns that it does not have are read as text.

    Raises
    ------
    InputError
        If there is no header.
    SchemaError
        While reading: if a value does not fit the type of its column.
    """
    with reading(name):
        start = read_fully(stream, _BLOCK_BYTES)
        header = _header(start, name, request.delimiter)
    fields = [
        request.schema.field(one) if one in request.schema.names else pa.field(one, pa.string())
        for one in header
        if one in request.schema.names or not request.ignore_others
    ]
    whole = PrefixedStream(start, stream)
    read = _rows if request.on_bad_row is None else good_csv_rows
    return RowStream(pa.schema(fields), read(whole, name, request, header, fields))


def _header(start: bytes, name: str, delimiter: str) -> list[str]:
    lines = start.decode("utf-8-sig", errors="replace").splitlines(keepends=True)
    header = next((row for row in csv.reader(lines, delimiter=delimiter) if row), None)
    if header is None:
        raise InputError("the file is empty", where=name, hint="CSV begins with a line of column names")
    return header


def _rows(
    stream: PrefixedStream, name: str, request: ReadRequest, header: Sequence[str], fields: Sequence[pa.Field]
) -> Iterator[FileRows]:
    options = convert_options(request, {field.name: read_type(field.type) for field in fields})
    first_row = 1
    if not fields:
        return

    def refused(line: int, row: bytes) -> bytes:
        raise InputError(
            OPEN_QUOTE,
            where=f"{name}, line {line}",
            hint="Double it where it belongs to the value; --on-bad-row skip leaves out the line",
        )

    with reading(name):
        try:
            reader = pa_csv.open_csv(
                ClosedQuotes(stream, request.delimiter, refused),
                pa_csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
                pa_csv.ParseOptions(delimiter=request.delimiter, newlines_in_values=True),
                options,
            )
            for batch in reader:
                table = converted(batch, fields, name, first_row)
                yield from FileRows(table, first_row).parts(request.batch_rows)
                first_row += table.num_rows
        except pa.ArrowInvalid as error:
            raise explained(error, name, header, fields) from error

"""Reading CSV with the types of a table.

Dates, times and timestamps are ISO 8601. Binary values are Base64; vectors, lists, structs and maps are
JSON text (see :mod:`weir.cli.json_text`). A value that is empty and not quoted is null.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.csv as pa_csv

from weir.cli.input.prefixed import PrefixedStream, read_fully
from weir.cli.input.rows import FileRows, ReadRequest, RowStream, bad_value, first_failing, reading, row_place
from weir.cli.json_text import from_json_type, parse_json_column
from weir.errors import InputError

__all__ = ["open_csv"]

_BLOCK_BYTES = 1 << 20
_COLUMN_ERROR = re.compile(
    r"In CSV column #(\d+): (?:Row #(\d+): )?(?:CSV conversion error to .*?: )?(.*)", re.DOTALL
)
_ROW_ERROR = re.compile(r"CSV parse error: Row #(\d+): (.*)", re.DOTALL)
_HEADER_ROWS = 1


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
    return RowStream(pa.schema(fields), _rows(whole, name, request, header, fields))


def _header(start: bytes, name: str, delimiter: str) -> list[str]:
    lines = start.decode("utf-8-sig", errors="replace").splitlines(keepends=True)
    header = next((row for row in csv.reader(lines, delimiter=delimiter) if row), None)
    if header is None:
        raise InputError("the file is empty", where=name, hint="CSV begins with a line of column names")
    return header


def _rows(
    stream: PrefixedStream, name: str, request: ReadRequest, header: Sequence[str], fields: Sequence[pa.Field]
) -> Iterator[FileRows]:
    names = [field.name for field in fields]
    options = pa_csv.ConvertOptions(
        column_types={field.name: _read_type(field.type) for field in fields},
        include_columns=names,
        null_values=list(request.null_values),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    first_row = 1
    if not fields:
        return
    with reading(name):
        try:
            reader = pa_csv.open_csv(
                stream,
                pa_csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
                pa_csv.ParseOptions(delimiter=request.delimiter, newlines_in_values=True),
                options,
            )
            for batch in reader:
                columns = [
                    _converted(batch.column(number), field, name, first_row)
                    for number, field in enumerate(fields)
                ]
                table = pa.table(columns, schema=pa.schema([pa.field(one.name, one.type) for one in fields]))
                for start in range(0, table.num_rows, request.batch_rows):
                    yield FileRows(table.slice(start, request.batch_rows), first_row + start)
                first_row += table.num_rows
        except pa.ArrowInvalid as error:
            raise _explained(error, name, header, fields) from error


def _read_type(kind: pa.DataType) -> pa.DataType:
    """Return the type as which the CSV reader is to read a column; text if it cannot read its type."""
    types = pa.types
    if types.is_float16(kind):
        return pa.float32()
    if types.is_dictionary(kind):
        return _read_type(kind.value_type)
    if types.is_nested(kind) or types.is_decimal256(kind) or _is_binary(kind):
        return pa.string()
    return kind


def _converted(column: pa.Array, field: pa.Field, name: str, first_row: int) -> pa.Array:
    if column.type == field.type:
        return column
    convert = _conversion(field.type)
    try:
        return convert(column)
    except pa.ArrowInvalid as error:

        def works(start: int, stop: int) -> bool:
            try:
                convert(column.slice(start, stop - start))
            except pa.ArrowInvalid:
                return False
            return True

        row = first_failing(len(column), works)
        raise bad_value(name, first_row + row, field, f"{column[row].as_py()!r} ({error})") from error


def _conversion(kind: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    if pa.types.is_nested(kind):
        return lambda column: parse_json_column(column, kind)
    if _is_binary(kind):
        return lambda column: from_json_type(column, kind)
    return lambda column: column.cast(kind)


def _explained(
    error: pa.ArrowInvalid, name: str, header: Sequence[str], fields: Sequence[pa.Field]
) -> InputError:
    """Say in our words what the CSV reader says in its own."""
    text = str(error)
    in_column = _COLUMN_ERROR.match(text)
    if in_column is not None:
        column, row, reason = in_column.groups()
        field = next(one for one in fields if one.name == header[int(column)])
        return bad_value(name, None if row is None else int(row) - _HEADER_ROWS, field, reason)
    in_row = _ROW_ERROR.match(text)
    if in_row is not None:
        row, reason = in_row.groups()
        return InputError(f"this is not CSV: {reason}", where=row_place(name, int(row) - _HEADER_ROWS))
    return InputError(f"this is not CSV: {text}", where=name)


def _is_binary(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))

"""Reading JSON lines, one object per line, with the types of a table.

Values are as :mod:`weir.cli.json_text` writes them. A column that an object lacks is null.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterator
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.json as pa_json

from weir.cli.input.prefixed import read_arrived
from weir.cli.input.rows import (
    BadRow,
    FileRows,
    OnBadRow,
    ReadRequest,
    RowStream,
    bad_value,
    reading,
    row_place,
)
from weir.cli.json_text import from_json_type, json_type
from weir.errors import InputError, SchemaError
from weir.rows.failing_rows import all_failing, first_failing
from weir.schema.list_cast import infinities

__all__ = ["open_json_lines"]

_BLOCK_BYTES = 4 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SHOWN_CHARACTERS = 60


def open_json_lines(stream: BinaryIO, name: str, request: ReadRequest) -> RowStream:
    """Open JSON lines.

    Parameters
    ----------
    stream : file-like
        Bytes in UTF-8.
    name : str
        What errors call the file.
    request : ReadRequest
        What is wanted.

    Raises
    ------
    SchemaError
        While reading: if a column is unknown, or a value does not fit the type of its column.
    InputError
        While reading: if a line is not a JSON object.
    """
    return RowStream(request.schema, _rows(stream, name, request))


def _rows(stream: BinaryIO, name: str, request: ReadRequest) -> Iterator[FileRows]:
    first_row = 1
    with reading(name):
        for lines in _blocks(stream):
            if request.on_bad_row is None:
                found = FileRows(_parsed(lines, name, request, first_row), first_row)
            else:
                found = _parsed_apart(lines, name, request, first_row, request.on_bad_row)
            yield from found.parts(request.batch_rows)
            first_row += len(lines)


def _blocks(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Yield the lines that are not blank, some megabytes at a time."""
    rest = b""
    at_start = True
    while data := read_arrived(stream, _BLOCK_BYTES):
        if at_start:
            data, at_start = data.removeprefix(_BYTE_ORDER_MARK), False
        whole, line_break, begun = data.rpartition(b"\n")
        if not line_break:
            rest += data
            continue
        lines = [line for line in (rest + whole).split(b"\n") if line.strip()]
        rest = begun
        if lines:
            yield lines
    if rest.strip():
        yield [rest]


def _parsed_apart(
    lines: list[bytes], name: str, request: ReadRequest, first_row: int, on_bad_row: OnBadRow
) -> FileRows:
    """Return the rows of the lines that can be read, and tell of the others."""

    def works(start: int, stop: int) -> bool:
        try:
            table = _read(lines[start:stop], request.schema, others=_others(request))
        except pa.ArrowInvalid:
            return False
        return request.ignore_others or len(table.column_names) == len(request.schema)

    bad = all_failing(len(lines), works)
    for row in bad:
        try:
            _parsed([lines[row]], name, request, first_row + row)
        except InputError as error:
            record = lines[row].decode("utf-8", errors="backslashreplace")
            on_bad_row(BadRow(name, first_row + row, error.message, record))
    numbers = np.delete(np.arange(first_row, first_row + len(lines), dtype=np.int64), bad)
    kept = np.delete(np.arange(len(lines)), bad)
    if not len(kept):
        return FileRows(request.schema.empty_table(), first_row, numbers=numbers)
    good = [lines[row] for row in kept]
    return FileRows(_parsed(good, name, request, first_row), first_row, numbers=numbers)


def _parsed(lines: list[bytes], name: str, request: ReadRequest, first_row: int) -> pa.Table:
    try:
        table = _read(lines, request.schema, others=_others(request))
    except pa.ArrowInvalid as error:
        raise _located(lines, name, request, first_row, error) from error
    for column in table.column_names:
        if column not in request.schema.names:
            row = int(pa.compute.index(table.column(column).is_valid(), True).as_py())
            raise SchemaError(
                f"the table has no column {column!r}",
                where=row_place(name, first_row + max(row, 0), column),
                hint=f"The columns are {', '.join(request.schema.names)}",
            )
    return table


def _others(request: ReadRequest) -> str:
    """Return what is done with columns that were not asked for."""
    return "ignore" if request.ignore_others else "infer"


def _read(lines: list[bytes], schema: pa.Schema, *, others: str) -> pa.Table:
    data = b"\n".join(lines)
    table = pa_json.read_json(
        pa.BufferReader(data),
        pa_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        pa_json.ParseOptions(
            explicit_schema=pa.schema([pa.field(field.name, json_type(field.type)) for field in schema]),
            unexpected_field_behavior=others,
        ),
    )
    if table.num_rows != len(lines):
        raise pa.ArrowInvalid("a line is not one JSON object")
    infinite = sum(map(infinities, table.columns))
    if infinite and infinite > data.count(b"Inf"):
        # The reader takes so many digits for an infinity, as if they said so.
        raise pa.ArrowInvalid("a number is too large")
    for number, field in enumerate(schema):
        column = table.column(number).combine_chunks()
        table = table.set_column(number, field.with_nullable(True), from_json_type(column, field.type))
    return table


def _located(
    lines: list[bytes], name: str, request: ReadRequest, first_row: int, error: pa.ArrowInvalid
) -> InputError:
    """Find the line and the column that cannot be read, now that we know there is one."""

    def works(start: int, stop: int) -> bool:
        return _can_read(lines[start:stop], request.schema, _others(request))

    row = first_failing(len(lines), works)
    line = lines[row]
    try:
        value = json.loads(line, parse_float=_number, parse_int=functools.partial(_number, kind=int))
    except (ValueError, RecursionError) as reason:
        return InputError(f"this is not JSON: {reason}", where=row_place(name, first_row + row))
    if not isinstance(value, dict):
        return InputError(
            f"this is a JSON {type(value).__name__}, not an object",
            where=row_place(name, first_row + row),
            hint='Write one object per line: {"id": 1, "name": "Ada"}',
        )
    # The reader stops at such a number in any column, also one that is not wanted.
    for column, held in value.items():
        if (too_large := _too_large(held)) is not None:
            return SchemaError(
                f"a number in column {column!r} is too large: {_shortened(too_large)}",
                where=row_place(name, first_row + row, column),
            )
    # Only if a field is unknown inside of a struct, what is inferred matters.
    tried = [(field, "ignore") for field in request.schema]
    tried += [(field, _others(request)) for field in request.schema if field.type.num_fields]
    for field, others in tried:
        if not _can_read([line], pa.schema([field]), others):
            shown = _shortened(json.dumps(value.get(field.name), ensure_ascii=False))
            return bad_value(name, first_row + row, field, shown)
    return InputError(f"this cannot be read: {error}", where=row_place(name, first_row + row))


class _TooLarge(str):
    """The text of a number that no reader takes."""

    __slots__ = ()


def _number(text: str, kind: Callable[[str], float] = float) -> float | _TooLarge:
    return _TooLarge(text) if math.isinf(float(text)) else kind(text)


def _too_large(value: object) -> str | None:
    """Return the first number of a JSON value that is too large; None if there is none."""
    if isinstance(value, _TooLarge):
        return value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((found for found in map(_too_large, parts) if found is not None), None)


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _can_read(lines: list[bytes], schema: pa.Schema, others: str) -> bool:
    try:
        _read(lines, schema, others=others)
    except pa.ArrowInvalid:
        return False
    return True

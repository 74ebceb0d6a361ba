"""The valid rows of a CSV file, when invalid ones are skipped.

Arrow's reader stops at the first value that it cannot convert. So it is first asked for the values as they
stand, and passes over rows with too many or too few of them; then it converts those, and the rows in which
that fails are looked for and left out.
"""

from __future__ import annotations

import json
import secrets
from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from weir.cli.input.csv_quotes import OPEN_QUOTE, ClosedQuotes
from weir.cli.input.csv_values import HEADER_ROWS, convert_options, converted, explained, read_type
from weir.cli.input.prefixed import PrefixedStream
from weir.cli.input.rows import BadRow, FileRows, OnBadRow, ReadRequest, RowNumbers, reading
from weir.errors import InputError
from weir.rows.failing_rows import all_failing

__all__ = ["good_csv_rows"]

_BLOCK_BYTES = 1 << 20
_LONGEST_RECORD = 64 * 1024
"""Bytes of a row with an open quote that are kept of it."""


def good_csv_rows(
    stream: PrefixedStream, name: str, request: ReadRequest, header: Sequence[str], fields: Sequence[pa.Field]
) -> Iterator[FileRows]:
    """Yield the rows that fit the columns, and tell of the others.

    Parameters
    ----------
    stream : file-like
        The whole file.
    name : str
        What errors call it.
    request : ReadRequest
        What is wanted, with ``on_bad_row``.
    header : sequence of str
        The columns of the file.
    fields : sequence of pyarrow.Field
        Those that are wanted.

    Raises
    ------
    InputError
        If the file cannot be divided into rows.
    """
    assert request.on_bad_row is not None
    if not fields:
        return
    shape = _WrongShape(name, request.on_bad_row, request.delimiter.join(["x"] * (len(header) + 1)))
    options = convert_options(request, {field.name: pa.binary() for field in fields})
    options.check_utf8 = False
    with reading(name):
        try:
            reader = pa_csv.open_csv(
                ClosedQuotes(stream, request.delimiter, shape.in_place_of_open_quote),
                pa_csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
                pa_csv.ParseOptions(
                    delimiter=request.delimiter, newlines_in_values=True, invalid_row_handler=shape.refused
                ),
                options,
            )
            for batch in reader:
                numbers = shape.numbers_of_next(batch.num_rows)
                values = pa.table(batch.columns, names=[field.name for field in fields])
                found = _converted_apart(values, numbers, name, request, fields)
                yield from found.parts(request.batch_rows)
        except pa.ArrowInvalid as error:
            raise explained(error, name, header, fields) from error


class _WrongShape:
    """Rows with too many or too few values, of which the reader tells while it reads ahead.

    A row with a quote that is never closed comes to the reader as one with too many, so that it is counted.
    """

    def __init__(self, name: str, on_bad_row: OnBadRow, too_many: str) -> None:
        self._name = name
        self._on_bad_row = on_bad_row
        self._too_many = f"{secrets.token_hex(8)}{too_many}"
        self._open_quotes: deque[tuple[int, bytes]] = deque()
        self._refused: list[int] = []
        self._next = 1

    def in_place_of_open_quote(self, line: int, row: bytes) -> bytes:
        """Return what the reader gets instead of a row with a quote that is never closed."""
        self._open_quotes.append((line, row))
        return f"{self._too_many}\n".encode()

    def refused(self, row: pa_csv.InvalidRow) -> str:
        number = row.number - HEADER_ROWS
        self._refused.append(number)
        reason, record = (
            f"the row has {row.actual_columns} values, and the header {row.expected_columns}",
            row.text,
        )
        if record == self._too_many:
            line, data = self._open_quotes.popleft()
            reason = f"in line {line}, {OPEN_QUOTE}"
            record = data[:_LONGEST_RECORD].decode("utf-8", errors="backslashreplace")
        self._on_bad_row(BadRow(self._name, number, reason, record))
        return "skip"

    def numbers_of_next(self, rows: int) -> RowNumbers:
        """Return the numbers of the next rows that the reader has not passed over."""
        span = np.arange(self._next, self._next + rows + len(self._refused), dtype=np.int64)
        numbers = span[~np.isin(span, self._refused)][:rows]
        if rows:
            self._next = int(numbers[-1]) + 1
        self._refused = [number for number in self._refused if number >= self._next]
        return numbers


def _converted_apart(
    values: pa.Table, numbers: RowNumbers, name: str, request: ReadRequest, fields: Sequence[pa.Field]
) -> FileRows:
    """Return the rows whose values have the types of the columns, and tell of the others."""
    assert request.on_bad_row is not None

    def works(start: int, stop: int) -> bool:
        try:
            _converted(values.slice(start, stop - start), name, request, fields, 1)
        except (pa.ArrowInvalid, InputError):
            return False
        return True

    bad = all_failing(values.num_rows, works)
    for row in bad:
        number = int(numbers[row])
        reason = _reason(values.slice(row, 1), name, request, fields, number)
        request.on_bad_row(BadRow(name, number, reason, _record(values.slice(row, 1))))
    kept = np.delete(np.arange(values.num_rows), bad)
    first = int(numbers[0]) if len(numbers) else 1
    rows = _converted(values.take(kept), name, request, fields, first)
    return FileRows(rows, first, numbers=numbers[kept])


def _converted(
    values: pa.Table, name: str, request: ReadRequest, fields: Sequence[pa.Field], first_row: int
) -> pa.Table:
    """Convert values as the reader would have, had it been asked for the types at once."""
    names = [str(number) for number in range(len(fields))]
    if not values.num_rows:
        return pa.schema([pa.field(one.name, one.type) for one in fields]).empty_table()
    # A value that is no UTF-8 is found here.
    texts = [column.cast(pa.string()) for column in values.columns]
    data = pa.BufferOutputStream()
    pa_csv.write_csv(pa.table(texts, names=names), data, pa_csv.WriteOptions(include_header=False))
    written = data.getvalue()
    table = pa_csv.read_csv(
        pa.BufferReader(written),
        pa_csv.ReadOptions(use_threads=False, column_names=names, block_size=written.size + 1),
        pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options(request, dict(zip(names, (read_type(field.type) for field in fields), strict=True))),
    )
    return converted(table.combine_chunks().to_batches()[0], fields, name, first_row)


def _reason(row: pa.Table, name: str, request: ReadRequest, fields: Sequence[pa.Field], number: int) -> str:
    try:
        _converted(row, name, request, fields, number)
    except InputError as error:
        return error.message
    except pa.ArrowInvalid as error:
        return explained(error, name, [field.name for field in fields], fields).message
    return "the row cannot be read"


def _record(row: pa.Table) -> str:
    cells = {
        name: None if value is None else value.decode("utf-8", errors="backslashreplace")
        for name, value in zip(row.column_names, (column[0].as_py() for column in row.columns), strict=True)
    }
    return json.dumps(cells, ensure_ascii=False)

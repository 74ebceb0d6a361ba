"""What every reader of files takes and gives, and how they say where something is wrong.

Rows are counted from 1 and without a header, the way people count the rows of data in a file.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from weir.errors import InputError, SchemaError
from weir.schema.text import format_type

__all__ = ["FileRows", "ReadRequest", "RowStream", "bad_value", "first_failing", "reading", "row_place"]

UNREADABLE = (OSError, EOFError, UnicodeDecodeError, zlib.error, pa.ArrowException)
"""What the readers of files raise when the bytes are not what they should be."""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What is wanted from a file.

    Parameters
    ----------
    schema : pyarrow.Schema
        Columns, in the types they are to have. Those that the file lacks are left out.
    ignore_others : bool
        Whether the file may have other columns, which are then not read. Otherwise they are returned
        too, for the caller to judge.
    batch_rows : int
        Most rows of a batch.
    delimiter : str
        Between the values of CSV.
    null_values : tuple of str
        What stands for null in CSV, when it is not quoted.
    """

    schema: pa.Schema
    ignore_others: bool = False
    batch_rows: int = 10_000
    delimiter: str = ","
    null_values: tuple[str, ...] = ("",)


@dataclass(frozen=True, slots=True)
class FileRows:
    """Some rows of a file.

    Parameters
    ----------
    rows : pyarrow.Table
        The rows.
    first_row : int
        Number of the first of them.
    fraction : float
        How much of the file has been read with them, from 0 to 1; 0 if it cannot be told.
    """

    rows: pa.Table
    first_row: int
    fraction: float = 0.0


@dataclass(frozen=True, slots=True)
class RowStream:
    """The rows of one file, to be read once.

    Parameters
    ----------
    schema : pyarrow.Schema
        The columns, as far as they are known before the rows are read.
    batches : iterator of FileRows
        The rows.
    """

    schema: pa.Schema
    batches: Iterator[FileRows]


def row_place(file: str, row: int | None = None, column: str | None = None) -> str:
    """Return a place in a file, for errors.

    Examples
    --------
    >>> row_place("flights.csv", 17, "delay")
    "flights.csv, row 17, column 'delay'"
    """
    parts = [file]
    if row is not None:
        parts.append(f"row {row}")
    if column is not None:
        parts.append(f"column {column!r}")
    return ", ".join(parts)


def bad_value(file: str, row: int | None, field: pa.Field, reason: object) -> SchemaError:
    """Return the error for a value that does not fit its column."""
    return SchemaError(
        f"a value does not fit column {field.name!r} of type {format_type(field.type)}: {reason}",
        where=row_place(file, row, field.name),
    )


@contextmanager
def reading(file: str) -> Iterator[None]:
    """Turn what readers raise about a broken or missing file into an error that names it."""
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError("there is no such file", where=file) from error
    except IsADirectoryError as error:
        raise InputError("this is a directory, not a file", where=file) from error
    except UNREADABLE as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputError(f"the file cannot be read: {reason}", where=file) from error


def first_failing(count: int, works: Callable[[int, int], bool]) -> int:
    """Return the first of ``count`` rows that fails, given that some row does.

    Parameters
    ----------
    count : int
        Number of rows, at least 1.
    works : callable
        Whether the rows from one number up to another, not included, all work.

    Examples
    --------
    >>> first_failing(100, lambda start, stop: not start <= 37 < stop)
    37
    """
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        if works(low, middle):
            low = middle
        else:
            high = middle
    return low

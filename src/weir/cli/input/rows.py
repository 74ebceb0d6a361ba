"""The interface of file readers, and how they report the location of an error.

Rows are counted from 1 and without a header, the way people count the rows of data in a file.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from weir.errors import InputError, SchemaError
from weir.schema.text import format_type

__all__ = [
    "BadRow",
    "FileRows",
    "OnBadRow",
    "ReadRequest",
    "RowNumbers",
    "RowStream",
    "bad_value",
    "reading",
    "row_place",
]

UNREADABLE = (OSError, EOFError, UnicodeDecodeError, zlib.error, pa.ArrowException)
"""What the readers of files raise when the bytes are not what they should be."""


RowNumbers = np.ndarray[tuple[int], np.dtype[np.int64]]
"""The numbers in the file of some rows."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that is no row of the table.

    Parameters
    ----------
    file : str
        The file it is in.
    row : int
        Its number there.
    reason : str
        What is wrong with it.
    record : str
        The row: a JSON object where it could be taken apart into columns, and otherwise as it stands in
        the file.
    """

    file: str
    row: int
    reason: str
    record: str


OnBadRow = Callable[[BadRow], None]
"""Called with each row that is left out."""


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
        Separator of CSV values.
    null_values : tuple of str
        What stands for null in CSV, when it is not quoted.
    on_bad_row : callable, optional
        Told of each row that cannot be read, which is then left out. Default: the first one is an error.
    """

    schema: pa.Schema
    ignore_others: bool = False
    batch_rows: int = 10_000
    delimiter: str = ","
    null_values: tuple[str, ...] = ("",)
    on_bad_row: OnBadRow | None = None


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
    numbers : array of int64, optional
        Their numbers, where bad rows between them were left out. Default: they follow each other.
    """

    rows: pa.Table
    first_row: int
    fraction: float = 0.0
    numbers: RowNumbers | None = None

    def number_of(self, row: int) -> int:
        """Return the number in the file of one of these rows."""
        return self.first_row + row if self.numbers is None else int(self.numbers[row])

    def without(self, bad: Sequence[int]) -> FileRows:
        """Return the other rows, when some of these are left out."""
        numbers = self.numbers
        if numbers is None:
            numbers = np.arange(self.first_row, self.first_row + self.rows.num_rows, dtype=np.int64)
        kept = np.delete(np.arange(self.rows.num_rows), list(bad))
        return FileRows(self.rows.take(kept), self.first_row, self.fraction, numbers[kept])

    def parts(self, most: int) -> Iterator[FileRows]:
        """Yield the rows in parts of at most so many."""
        for start in range(0, self.rows.num_rows, most):
            numbers = None if self.numbers is None else self.numbers[start : start + most]
            yield FileRows(self.rows.slice(start, most), self.first_row + start, self.fraction, numbers)


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

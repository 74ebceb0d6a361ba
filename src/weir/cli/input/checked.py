"""Checking rows of a file against a table, so that an error names the file, the row and the column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weir.cli.input.rows import BadRow, FileRows, OnBadRow, row_place
from weir.cli.json_text import json_lines
from weir.errors import InputError, KeyValueError, SchemaError
from weir.format.newest import newest_rows
from weir.rows import as_key_table, as_row_table
from weir.rows.failing_rows import all_failing, first_failing

__all__ = ["DELETE", "UPSERT", "Operations", "RowChecker"]

RowNumber: TypeAlias = Callable[[int], int]
"""The number in the file of a row, given its place among some rows."""

UPSERT = "upsert"
DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Operations:
    """What some rows of a file ask for. The keys of the two parts are distinct.

    Parameters
    ----------
    upserts : pyarrow.Table
        Rows to write, in the table's schema.
    deletes : pyarrow.Table
        Keys to delete.
    """

    upserts: pa.Table
    deletes: pa.Table


@dataclass(frozen=True, slots=True)
class RowChecker:
    """Checks rows and parts them by what is to be done with them.

    Parameters
    ----------
    schema : pyarrow.Schema
        The table's columns.
    primary_key : tuple of str
        Its primary-key columns.
    op_column : str or None
        Column that says what to do with each row, ``upsert`` or ``delete``.
    delete : bool
        Whether all rows are keys to delete.
    """

    schema: pa.Schema
    primary_key: tuple[str, ...]
    op_column: str | None = None
    delete: bool = False

    @property
    def read_schema(self) -> pa.Schema:
        """The columns to read from files."""
        if self.delete:
            return pa.schema([self.schema.field(name) for name in self.primary_key])
        if self.op_column is None:
            return self.schema
        return self.schema.append(pa.field(self.op_column, pa.string()))

    def check_columns(self, columns: pa.Schema, file: str) -> None:
        """Refuse a file whose columns do not fit the table, before any row of it is used.

        Raises
        ------
        SchemaError, KeyValueError
            Naming the file and the column.
        """
        if self.op_column is not None and self.op_column not in columns.names:
            raise SchemaError(
                f"there is no column {self.op_column!r} that says what to do with each row",
                where=file,
                hint=f"The columns are {', '.join(columns.names)}",
            )
        self.check(FileRows(columns.empty_table(), 1), file)

    def check(self, rows: FileRows, file: str) -> Operations:
        """Return the rows in the table's types.

        Parameters
        ----------
        rows : FileRows
            Rows of the file.
        file : str
            What errors call the file.

        Raises
        ------
        SchemaError, KeyValueError
            Naming the file, the row and the column.
        """
        if self.delete:
            return Operations(self.schema.empty_table(), self._keys(rows.rows, rows.number_of, file))
        if self.op_column is None:
            return Operations(self._rows(rows.rows, rows.number_of, file), self._no_keys())
        return self._parted(rows.rows, self.op_column, rows.number_of, file)

    def check_apart(self, rows: FileRows, file: str, on_bad_row: OnBadRow) -> Operations:
        """Return the rows that fit in the table's types, and tell of the others.

        Parameters
        ----------
        rows, file
            As for :meth:`check`.
        on_bad_row : callable
            Told of each row that does not fit.
        """

        def works(start: int, stop: int) -> bool:
            try:
                self.check(FileRows(rows.rows.slice(start, stop - start), 1), file)
            except InputError:
                return False
            return True

        bad = all_failing(rows.rows.num_rows, works)
        for row in bad:
            one, number = rows.rows.slice(row, 1), rows.number_of(row)
            try:
                self.check(FileRows(one, number), file)
            except InputError as error:
                record = next(json_lines(one.combine_chunks().to_batches()[0]))
                on_bad_row(BadRow(file, number, error.message, record))
        return self.check(rows.without(bad) if bad else rows, file)

    def _parted(self, rows: pa.Table, op_column: str, number_of: RowNumber, file: str) -> Operations:
        is_delete = _is_delete(rows.column(op_column), op_column, number_of, file)
        rows = rows.drop_columns([op_column])
        if not is_delete.any():
            return Operations(self._rows(rows, number_of, file), self._no_keys())
        keys = self._keys(rows, number_of, file)
        upserted = np.flatnonzero(~is_delete)
        # Every row is checked, also one that a later row replaces: bad input is never passed over.
        upserts = self._rows(rows.filter(~is_delete), lambda row: number_of(int(upserted[row])), file)
        # The last row of a key decides, and then the order of upserts and deletes does not matter.
        decides = np.zeros(len(is_delete), dtype=np.bool_)
        decides[newest_rows(keys.columns)] = True
        return Operations(upserts.filter(decides[upserted]), keys.filter(decides & is_delete))

    def _rows(self, rows: pa.Table, number_of: RowNumber, file: str) -> pa.Table:
        def conformed(some: pa.Table) -> pa.Table:
            return as_row_table(some, self.schema, self.primary_key)

        self._refuse_nulls(rows, number_of, file)
        return _located(conformed, rows, number_of, file)

    def _keys(self, rows: pa.Table, number_of: RowNumber, file: str) -> pa.Table:
        def conformed(some: pa.Table) -> pa.Table:
            return as_key_table(some, self.schema, self.primary_key)

        held = [name for name in rows.column_names if name in self.primary_key]
        self._refuse_nulls(rows.select(held), number_of, file)
        return _located(conformed, rows, number_of, file)

    def _refuse_nulls(self, rows: pa.Table, number_of: RowNumber, file: str) -> None:
        for name in dict.fromkeys(rows.column_names):
            if name not in self.schema.names or rows.column_names.count(name) > 1:
                continue
            column = rows.column(name)
            is_key = name in self.primary_key
            if column.null_count and (is_key or not self.schema.field(name).nullable):
                row = int(pc.index(column.is_null(), True).as_py())
                where = row_place(file, number_of(row), name)
                if is_key:
                    raise KeyValueError(
                        f"primary-key column {name!r} is missing or null",
                        where=where,
                        hint=f"Every row needs its key: {', '.join(self.primary_key)}",
                    )
                raise SchemaError(f"column {name!r} is missing or null, and cannot be null", where=where)

    def _no_keys(self) -> pa.Table:
        return pa.schema([self.schema.field(name) for name in self.primary_key]).empty_table()


def _is_delete(
    column: pa.ChunkedArray, name: str, number_of: RowNumber, file: str
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    text = column.cast(pa.string())
    known = pc.is_in(text, pa.array([UPSERT, DELETE]))
    if not pc.all(known, min_count=0).as_py():
        row = int(pc.index(known, False).as_py())
        raise SchemaError(
            f"{text[row].as_py()!r} is not an operation",
            where=row_place(file, number_of(row), name),
            hint=f"Column {name!r} holds {UPSERT!r} or {DELETE!r}",
        )
    is_delete: np.ndarray[tuple[int], np.dtype[np.bool_]] = pc.equal(text, DELETE).to_numpy()
    return is_delete


def _located(
    convert: Callable[[pa.Table], pa.Table], rows: pa.Table, number_of: RowNumber, file: str
) -> pa.Table:
    """Convert rows; if they are refused, say in which file and row."""
    try:
        return convert(rows)
    except InputError as error:
        # Rows of a piece are none of the file.
        place = (error.where or "").rsplit(", row ", 1)[0]
        column = place if place in rows.column_names else None
        row = None

        def works(start: int, stop: int) -> bool:
            try:
                convert(rows.slice(start, stop - start))
            except InputError:
                return False
            return True

        # What is wrong with no rows at all is wrong with the columns, not with a row.
        if rows.num_rows and works(0, 0):
            row = number_of(first_failing(rows.num_rows, works))
        raise type(error)(error.message, where=row_place(file, row, column), hint=error.hint) from error
